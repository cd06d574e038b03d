"""Texts from anywhere are answered in their order, with the bits that `verify` proves."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow
import pyarrow.parquet
import pytest
import torch
from tiny_runs import cl_graft, tiny_run

from cl_graft import InputError, load_bank, save_bank
from cl_graft.banks.bank_of_run import read_run_config
from cl_graft.banks.input_texts import drop_instructions, name_texts, parse_texts, read_texts
from cl_graft.banks.open_bank import OpenBank, list_calibration_notes, open_bank, predict
from cl_graft.data import encode, load_task
from cl_graft.data.record_files import Columns
from cl_graft.lab.results.run_results import read_result
from cl_graft.settings.tasks import load_tasks


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked")


@pytest.fixture(scope="module")
def run(there: Path, tiny_bert: Path) -> Path:
    lines = [
        {"said": r.text, "reply": r.text_pair, "verdict": ["no", "yes"][int(r.label)]}
        for r in load_task("answered", max_train=60).train
    ]
    data = there / "answers.jsonl"
    data.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    named = {"stream.text": "said", "stream.text_pair": "reply", "stream.label": "verdict"}
    return tiny_run(there / "run", tiny_bert, ["scope", str(data), "topic"], **named)


@pytest.fixture(scope="module")
def opened(run: Path) -> OpenBank:
    return open_bank(run / "bank")


def test_the_recorded_texts_get_the_recorded_logits_bit_for_bit(run, opened):
    task = load_tasks(read_run_config(run, read_result(run)).stream, seed=0)[0]
    recorded_batch = opened.bank.entries[0].recorded_batch
    rows = {}
    for row in task.dev:
        inputs = encode([row], opened.loaded.tokenizer, family="encoder", max_length=24)
        rows[tuple(inputs[0, 0][inputs[0, 1] > 0].tolist())] = row.text
    asked = [rows[tuple(ids[kinds > 0].tolist())] for ids, kinds in recorded_batch.inputs]
    answers = [a for _, a in predict(opened, name_texts(asked, task="scope"))]
    assert torch.equal(torch.tensor([a.logits for a in answers]), recorded_batch.logits)


def test_a_mixed_file_is_answered_row_by_row_as_its_tasks_alone(opened, there):
    mixed = there / "mixed.jsonl"
    rows = [
        {"task": "scope", "text": "What is my balance?"},
        {"task": "answers", "text": "Who is it?", "text_pair": "It is a man."},
        {"task": "topic", "text": "The team won."},
        {"task": "scope", "text": "Who won the match?"},
    ]
    mixed.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = list(predict(opened, read_texts(mixed)))
    assert [one.origin for one, _ in found] == [f"{mixed}:{n}" for n in (1, 2, 3, 4)]
    own = opened.predict([rows[0]["text"], rows[3]["text"]], task="scope")
    assert [found[0][1].logits, found[3][1].logits] == [answer.logits for answer in own]
    pair = opened.predict(("Who is it?", "It is a man."), task="answers")
    assert found[1][1] == pair


def test_a_bank_remembers_the_columns_of_its_tasks_and_ids_pass_through(opened, run, there):
    learned = [entry.metadata.get("columns") for entry in opened.bank.entries]
    assert learned == [{"text": "text"}, {"text": "said", "text_pair": "reply"}, {"text": "text"}]
    rows = [
        {"id": 7, "task": "answers", "said": "Who is it?", "reply": "A man."},
        {"id": "b", "task": "topic", "text": "The team won."},
    ]
    file = there / "remembered.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = read_texts(file, bank=opened.bank)
    assert [(one.id, one.text, one.pair) for one in found] == [
        (7, "Who is it?", "A man."),
        ("b", "The team won.", None),
    ]
    told = cl_graft("predict", run, "--file", file, "--json")
    assert [json.loads(line)["id"] for line in told.out.splitlines()] == [7, "b"]
    told = cl_graft("predict", run, "--file", file, "--id", "id")
    assert [line.split("\t")[0] for line in told.out.splitlines()] == ["7", "b"]
    # The caller's columns go first; other usual names serve where those of the task are missing.
    own = read_texts(file, task="1", columns=Columns(text="reply"), bank=opened.bank)
    assert own[0].text == "A man."
    file.write_text('{"text": "a", "text_pair": "b"}\n')
    assert read_texts(file, task="answers", bank=opened.bank)[0].pair == "b"
    file.write_text('{"einst": "a b", "jetzt": "b"}\n')
    with pytest.raises(InputError, match="no text in 'said', from which the task was learned"):
        read_texts(file, task="answers", bank=opened.bank)


def test_the_input_that_was_made_of_columns_is_made_of_those_of_a_file(there):
    made = {"inputs": ["{title}: {body}", "{body}"]}
    metadata = {"columns": made, "pair": False}
    entry = SimpleNamespace(task="own", metadata=metadata, label=0)
    bank = cast(Any, SimpleNamespace(entries=[entry]))
    lines = b'{"title": "A", "body": "b"}\n{"body": "c", "title": null}\n{"input": "d"}'
    found = parse_texts(lines, "jsonl", task="own", bank=bank)
    assert [one.text for one in found] == ["A: b", "c", "d"]


def test_rows_of_text_to_text_are_asked_as_they_were_learned():
    lines = b'{"instruction": "Say it.", "input": "a"}\n{"prompt": "b"}\n{"text": "c"}'
    found = parse_texts(lines, "jsonl", task="own")
    assert [(one.text, one.pair) for one in found] == [("a", "Say it."), ("b", None), ("c", None)]
    (asked,) = parse_texts(b'{"question": "Where?", "passage": "Here."}', "jsonl", task="own")
    assert (asked.text, asked.pair) == ("Where?", "Here.")
    for asks, left in ((True, "Say it."), (False, None)):
        bank = SimpleNamespace(entries=[SimpleNamespace(task="own", metadata={"pair": asks})])
        assert drop_instructions(cast(Any, bank), found)[0].pair == left
    named = parse_texts(lines, "jsonl", task="own", columns=Columns(text_pair="instruction"))
    assert drop_instructions(cast(Any, bank), named)[0].pair == "Say it."


CHAT = '[{"role": "user", "content": "Hi"}]'


def test_a_row_without_messages_is_a_text_whatever_their_columns_hold():
    quoted = CHAT.replace('"', '""')
    table = f'task,messages,text\na,"{quoted}",\nb,,hello\n'
    found = parse_texts(table.encode(), "csv")
    assert [(one.task, one.text, len(one.messages)) for one in found] == [
        ("a", "Hi", 1),
        ("b", "hello", 0),
    ]
    numbered = parse_texts(b"text,conversation\nhello,12\n", "csv", task="a")
    assert [(one.text, one.messages) for one in numbered] == [("hello", ())]
    lines = f'{{"messages": {CHAT}}}\n{{"conversations": {CHAT}}}\n'
    assert all(one.messages for one in parse_texts(lines.encode(), "jsonl", task="a"))


@pytest.mark.parametrize(("cell", "shown"), [("", "''"), ("hello", "'hello'"), ("[]", "[]")])
def test_a_row_without_messages_in_a_file_of_messages_alone_is_named(cell, shown):
    quoted = CHAT.replace('"', '""')
    table = f'task,messages\na,"{quoted}"\nb,{cell}\n'
    told = f"stdin:3: messages must be a list of {{'role', 'content'}}, got {shown}"
    with pytest.raises(InputError, match=re.escape(told)):
        parse_texts(table.encode(), "csv")


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_rows_of_one_file_may_have_the_columns_of_their_own_kinds(there, form):
    file = there / f"kinds.{form}"
    rows = [
        {"task": "names", "tokens": "Ada sings" if form == "csv" else ["Ada", "sings"], "id": 1},
        {"task": "places", "question": "Where?", "context": "In the park."},
        {"task": "cheer", "text": "It was warm."},
        {"task": "cheer", "id": 4},
    ]
    columns = dict.fromkeys(name for row in rows for name in row)
    if form == "parquet":
        table = pyarrow.table({name: [row.get(name) for row in rows] for name in columns})
        pyarrow.parquet.write_table(table, file)
    elif form == "csv":
        with file.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, columns)
            writer.writeheader()
            writer.writerows(rows)
    else:
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert [(one.text, one.pair) for one in read_texts(file)] == [
        ("Ada sings", None),
        ("Where?", "In the park."),
        ("It was warm.", None),
        ("", None),
    ]


def test_a_folder_and_a_binary_column_are_told(tmp_path):
    with pytest.raises(InputError, match="a folder; give a file"):
        read_texts(tmp_path, task="a")
    table = pyarrow.table({"text": [b"a"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"got bytes; its column is binary"):
        read_texts(tmp_path / "a.parquet", task="a")


def test_words_have_no_second_text_of_other_kinds_of_rows():
    lines = [
        {"tokens": ["Ada", "sings"], "instruction": "Say it."},
        {"input": "Hi", "instruction": "b"},
    ]
    table = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    found = parse_texts(table, "jsonl", task="a")
    assert [(one.text, one.pair) for one in found] == [("Ada sings", None), ("Hi", "b")]
    found = parse_texts(table, "jsonl", task="a", columns=Columns(text_pair="instruction"))
    assert [(one.text, one.pair) for one in found] == [("Ada sings", "Say it."), ("Hi", "b")]


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_order_and_labels_do_not_depend_on_the_batches(opened, batch_size):
    texts = [f"{word} film number {n}." for n in range(70) for word in ("Good", "Bad")]
    tasks = ["scope", "topic"]
    asked = [q for n, t in enumerate(texts) for q in name_texts([t], task=tasks[n % 2])]
    found = list(predict(opened, asked, batch_size=batch_size))
    assert [one for one, _ in found] == asked
    assert [a.label for _, a in found] == [a.label for _, a in predict(opened, asked)]


def test_forms_of_a_file_and_of_stdin_ask_the_same(there):
    csv = "sentence1,sentence2\nA man.,He is here.\n"
    ways = {
        "csv": csv.encode(),
        "tsv": csv.replace(",", "\t").encode(),
        "jsonl": b'{"sentence1": "A man.", "sentence2": "He is here."}\n',
        "txt": b"\nA man.\tHe is here.\r\n",
    }
    for form, data in ways.items():
        path = there / f"pairs.{form}"
        path.write_bytes(data)
        (one,) = read_texts(path, task="answers")
        (two,) = parse_texts(data, form, task="answers")
        assert (one.text, one.pair) == (two.text, two.pair) == ("A man.", "He is here.")
        assert one.origin.startswith(f"{path}:")
        assert two.origin.startswith("stdin:")
    only = read_texts(there / "pairs.csv", task="topic", columns=Columns(text="sentence2"))
    assert (only[0].text, only[0].pair) == ("He is here.", None)


@pytest.mark.parametrize(
    ("name", "text", "task", "said"),
    [
        ("a.csv", "text,task\nFine.,scope\nFine.,weather\n", None, r"a\.csv:3: no task 'weath"),
        ("b.csv", "text,task\nFine.,\n", None, r"b\.csv:2: column 'task' is empty"),
        ("c.csv", "text\nFine.\n", None, r"c\.csv: no task is named"),
        ("d.txt", "Fine.\n\nFine.\tToo.\n", "topic", r"d\.txt:3: .* single texts, got a pair"),
        ("e.jsonl", '{"text": "Fine."}\n{"text": 3}\n', "topic", r"e\.jsonl:2: .* must hold text"),
        ("f.csv", 'text,id\nFine.,1\n"",2\n', "topic", r"f\.csv:3: the text is empty"),
        ("g.csv", "text\nFine.\n", "answers", r"g\.csv:2: .* pairs of texts, got one text"),
        ("h.txt", "\n\n", "topic", r"h\.txt: there is no text"),
        ("i.pdf", "text", "topic", r"i\.pdf: unknown kind of file; .* a document"),
        ("j.txt", "Fine.", None, "say which task"),
    ],
)
def test_what_cannot_be_asked_is_named_with_file_and_line(opened, there, name, text, task, said):
    path = there / name
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        predict(opened, read_texts(path, task=task))


def test_other_refusals_say_what_is_expected(opened, there):
    with pytest.raises(InputError, match="there is no such file"):
        read_texts(there / "none.txt", task="topic")
    with pytest.raises(InputError, match="unknown format 'xml' of stdin: expected one of txt"):
        parse_texts(b"a", "xml", task="topic")
    with pytest.raises(InputError, match="2 texts and 1 second texts"):
        name_texts(["a", "b"], task="answers", pairs=["c"])
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        predict(opened, [], batch_size=0)


def test_confidence_is_calibrated_by_the_temperature_that_the_bank_holds(opened):
    entry = opened.bank.entries[0]
    fitted = entry.metadata["temperature"]
    assert fitted["rows"] == entry.metadata["rows"]["dev"]
    (answer,) = opened.predict(["What is my balance?"], task="scope")
    assert answer.temperature == fitted["value"]
    shares = (torch.tensor(answer.logits, dtype=torch.float64) / fitted["value"]).softmax(0)
    assert list(answer.probabilities.values()) == pytest.approx(shares.tolist())
    assert answer.confidence == pytest.approx(float(shares.max()))
    (note,) = list_calibration_notes(opened.bank, ["scope", "scope"])
    assert "confidence is calibrated" in note


def test_a_bank_without_temperatures_answers_by_plain_softmax_and_says_so(run, there):
    bank = load_bank(run / "bank")
    entries = tuple(
        replace(e, metadata={k: v for k, v in e.metadata.items() if k != "temperature"})
        for e in bank.entries
    )
    save_bank(replace(bank, entries=entries), there / "older")
    older = open_bank(there / "older")
    (answer,) = older.predict(["What is my balance?"], task="scope")
    assert answer.temperature is None
    plain = torch.tensor(answer.logits, dtype=torch.float64).softmax(0)
    assert list(answer.probabilities.values()) == pytest.approx(plain.tolist())
    (note,) = list_calibration_notes(older.bank, ["scope"])
    assert "not calibrated, but the model's plain softmax" in note
