"""A drafted config says what lies in a folder of data, and runs."""

import json
from pathlib import Path

import pytest
from answer_tasks import write_answer_tasks
from configs import changed, places
from kind_data import tagged_folder
from tiny_runs import QUICK, cl_graft

from cl_graft import InputError
from cl_graft.data import load_task
from cl_graft.data.record_files import Columns
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.settings import load_config
from cl_graft.settings.draft import draft_config
from cl_graft.settings.tasks import load_tasks


def rows(count: int, **columns: list) -> list[dict]:
    return [{key: values[n % len(values)] for key, values in columns.items()} for n in range(count)]


def write_csv(path: Path, found: list[dict]) -> None:
    lines = [",".join(found[0]), *(",".join(f'"{v}"' for v in row.values()) for row in found)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("mine") / "data"
    (there / "tickets").mkdir(parents=True)
    texts = [f"the printer in room {n} is on fire" for n in range(60)]
    reviews = rows(60, text=texts, label=["good", "bad", "good"])
    write_csv(there / "reviews.csv", reviews)
    tickets = rows(40, premise=texts, hypothesis=texts[::-1], label=["0", "1"])
    for split in ("train", "test"):
        lines = "".join(f"{json.dumps(row)}\n" for row in tickets)
        (there / "tickets" / f"{split}.jsonl").write_text(lines)
    write_csv(there / "odd.csv", rows(60, id=list(range(60)), inhalt=texts, art=["a", "b"]))
    write_csv(there / "weather.csv", rows(60, text=texts, degrees=[f"{n}.5" for n in range(60)]))
    (there / "notes.pdf").write_text("%PDF-1.4")
    (there / ".hidden.csv").write_text("text,label\n")
    return there


def test_tasks_columns_labels_and_rows_are_found_and_the_rest_is_named(data):
    draft = draft_config(data)
    found = {task.name: task for task in draft.tasks}
    assert list(found) == ["odd", "reviews", "tickets"]
    assert found["reviews"].labels.keys() == {"good", "bad"}
    assert sum(found["reviews"].rows.values()) == 60
    assert found["reviews"].words == 8
    tickets = found["tickets"].columns
    assert (tickets.text, tickets.text_pair, tickets.label) == ("premise", "hypothesis", "label")
    assert (found["odd"].columns.text, found["odd"].columns.label) == ("inhalt", "art")
    assert [task.guessed for task in draft.tasks] == [True, False, False]
    assert draft.left_out.keys() == {"notes.pdf", "weather.csv"}
    assert "guessed from what they hold" in draft.text
    assert "# notes.pdf was left out: " in draft.text
    assert "# label_names: [name of 0, name of 1]" in draft.text


def test_a_draft_runs_as_it_is_on_a_small_model(data, tiny_bert, tmp_path):
    path = tmp_path / "stream.yaml"
    path.write_text(draft_config(data).text)
    small = {**QUICK, "model": str(tiny_bert)} | {"shots": 512}
    config = load_config(path, options=places(small))
    assert config.stream.tasks == ["odd", "reviews", "tickets"]
    config = changed(config, {"strategies": ["grafting"]})
    assert len(compare(config, out=tmp_path / "out").runs) == 1


def test_a_draft_of_tags_names_their_kind_and_runs_as_it_is(tiny_bert, tmp_path):
    tagged_folder(tmp_path / "data" / "names")
    tagged_folder(tmp_path / "data" / "plans", intents=True)
    path = tmp_path / "stream.yaml"
    path.write_text(draft_config(tmp_path / "data").text)
    assert "# 2 span types, 2 intents\n      kind: tagging\n" in path.read_text()
    config = load_config(path, options=places({**QUICK, "model": str(tiny_bert), "shots": 512}))
    assert config.stream.task_settings["plans"].kind == "tagging"
    config = changed(config, {"strategies": ["grafting"]})
    assert len(compare(config, out=tmp_path / "out").runs) == 1


def test_questions_and_numbers_are_drafted_with_their_kind(tmp_path):
    (tmp_path / "mine").mkdir()
    write_answer_tasks(tmp_path / "mine")
    (tmp_path / "mine" / "cheer" / "meta.json").unlink()
    path = tmp_path / "stream.yaml"
    draft = draft_config(tmp_path / "mine")
    assert not any(task.guessed for task in draft.tasks)  # their columns have usual names
    path.write_text(draft.text)
    config = load_config(path, options=places(QUICK))
    tasks = {task.name: task.kind for task in load_tasks(config.stream, seed=0)}
    assert tasks == {"cheer": "regression", "places": "extractive_qa"}


def test_one_file_or_one_folder_of_splits_is_one_task(data):
    for path, name in ((data / "reviews.csv", "reviews"), (data / "tickets", "tickets")):
        draft = draft_config(path)
        assert [task.name for task in draft.tasks] == [name]
        assert draft.left_out == {}


def test_a_usual_name_decides_between_columns_and_where_there_is_none_the_draft_asks(tmp_path):
    channels = ["mail", "chat", "phone"]
    intents = ["refund", "delivery", "invoice", "account"]
    asked = [f"please help me with the {intents[n % 4]} of order {n}" for n in range(120)]
    found = {"subject": asked, "channel": channels, "intent": intents}
    write_csv(tmp_path / "tickets.csv", rows(120, **found))
    renamed = {"nachricht": asked, "kanal": channels, "anliegen": intents}
    write_csv(tmp_path / "anfragen.csv", rows(120, **renamed))
    write_csv(tmp_path / "usual.csv", rows(120, text=asked, lang=["de", "en"], topic=intents))
    draft = draft_config(tmp_path)
    columns = {task.name: (task.columns.text, task.columns.label) for task in draft.tasks}
    assert columns == {"tickets": ("subject", "intent"), "usual": ("text", "topic")}
    asked = "which column holds the label, kanal (3 values) or anliegen (4 values)? Name it with"
    assert asked in draft.left_out["anfragen.csv"]
    named = draft_config(tmp_path, columns=Columns(label="anliegen"))
    assert [task.columns.label for task in named.tasks] == ["anliegen", "intent", "topic"]


def test_names_that_look_like_numbers_are_drafted_as_texts(tmp_path):
    texts = [f"day {n} was long" for n in range(60)]
    write_csv(tmp_path / "1e5.csv", rows(60, **{"3e1": texts, "label": ["x", "y"]}))
    assert "    - '1e5'\n" in draft_config(tmp_path).text


def test_what_a_reader_should_know_of_the_rows_stands_in_the_draft(tmp_path):
    texts = [f"the café in street {n // 2} is closed" for n in range(60)]
    write_csv(tmp_path / "a.csv", rows(60, text=texts, label=["x", "y"]))
    path = tmp_path / "a.csv"
    path.write_bytes(path.read_text().encode("latin-1"))
    draft = draft_config(tmp_path)
    (task,) = draft.tasks
    assert any("not UTF-8, read as cp1252" in note for note in task.notes)
    assert any("also stand in train with another label" in note for note in task.notes)
    assert all(f"      # {note}" in draft.text.splitlines() for note in task.notes)


@pytest.mark.parametrize("columns", [("text", "label"), ("Message text", "Class")])
def test_a_few_rows_without_a_label_are_left_out_and_the_draft_says_so(tmp_path, columns):
    texts = [f"the {word} is {number}" for number in range(40) for word in ("tap", "sea")]
    own = [dict(zip(columns, (text, f"a{n % 2}"), strict=True)) for n, text in enumerate(texts)]
    own[6][columns[1]] = ""
    (tmp_path / "mine").mkdir()
    write_csv(tmp_path / "mine" / "half.csv", own)
    draft = draft_config(tmp_path / "mine")
    [task] = draft.tasks
    assert (task.columns.text, task.columns.label) == columns
    assert (task.skipped, sum(task.rows.values())) == (1, 79)
    assert "half.csv:8: column " in draft.text
    config = tmp_path / "stream.yaml"
    config.write_text(draft.text)
    assert load_config(config).stream.on_bad_row == "skip"
    for n in range(20, 66):
        own[n][columns[1]] = ""
    write_csv(tmp_path / "mine" / "half.csv", own)
    with pytest.raises(InputError, match=r"half\.csv"):
        draft_config(tmp_path / "mine")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tickets.xlsx", "a spreadsheet: save its sheet as CSV"),
        ("tickets.pdf", "a document: write its texts into a CSV file"),
        ("tickets.zip", "an archive: unpack it"),
    ],
)
def test_files_of_other_kinds_are_answered_with_how_to_export_them(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    for wrong in (lambda: draft_config(tmp_path), lambda: draft_config(tmp_path / name)):
        with pytest.raises(InputError, match=said):
            wrong()
    for wrong in (
        lambda: load_task(str(tmp_path / name)),
        lambda: load_task("tickets", data=tmp_path),
        lambda: load_task("tickets", data=tmp_path / name),
    ):
        with pytest.raises(InputError, match=said):
            wrong()
    (tmp_path / "folder").mkdir()
    (tmp_path / name).rename(tmp_path / "folder" / name.replace("tickets", "train"))
    with pytest.raises(InputError, match=said):
        load_task("folder", data=tmp_path)


def test_names_of_all_kinds_are_written_so_that_they_are_read_again(tmp_path):
    labels = ["a: b # c", "größe\u2028\x7f"]
    texts = [f"text {n}" for n in range(40)]
    there = tmp_path / "no"
    there.mkdir()
    named = rows(40, **{"on": texts, "label": labels})
    lines = "".join(f"{json.dumps(row)}\n" for row in rows(40, text=texts, label=["x", "y"]))
    (there / "null.jsonl").write_text(lines)
    (there / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in named))
    draft = draft_config(there)
    path = tmp_path / "stream.yaml"
    path.write_text(draft.text)
    config = load_config(path)
    assert config.stream.tasks == [task.name for task in draft.tasks]
    assert "null" in config.stream.tasks


def test_nothing_to_draft_is_said_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        draft_config(tmp_path / "nowhere")
    with pytest.raises(InputError, match="nothing there is a task: it is empty"):
        draft_config(tmp_path)
    (tmp_path / "notes.md").write_text("a")
    with pytest.raises(InputError, match=r"notes\.md: unknown kind of file"):
        draft_config(tmp_path)


def test_the_command_shows_what_it_found_and_overwrites_nothing_unasked(data, tmp_path):
    out = tmp_path / "stream.yaml"
    told = cl_graft("init", data, "--out", out)
    assert told.code == 0, told
    for said in (
        "reviews",
        "inhalt (guessed)",
        "premise",
        "Left out: notes.pdf",
        "cl-graft compare",
    ):
        assert said in told.out
    refused = cl_graft("init", data, "--out", out)
    assert refused.code == 2
    assert "--force overwrites it" in refused.err
    assert cl_graft("init", data, "--out", out, "--force", "--json").json["config"] == str(out)


def test_a_draft_of_text_to_text_names_a_model_that_writes_and_room_for_all_of_a_row(tmp_path):
    rows = [
        {
            "messages": [
                {"role": "system", "content": "one " * 30},
                {"role": "user", "content": f"{n} " * 30},
                {"role": "assistant", "content": "three " * 30},
            ]
        }
        for n in range(20)
    ]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    draft = draft_config(tmp_path)
    assert draft.tasks[0].words > 90
    assert "  name: smollm2\n" in draft.text.replace('"', "")
    assert "  family: causal_lm\n" in draft.text
    assert '#   localizer: "random"' in draft.text
