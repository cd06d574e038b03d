"""Data choose their kind by their columns, and faults of rows name file and line."""

import json
import pickle

import datasets
import pyarrow
import pyarrow.parquet as parquet
import pytest

from cl_graft import load_task
from cl_graft.errors import InputError
from cl_graft.kinds import ColumnError

TAGGED = [
    {"tokens": ["Ada", "met", "Bob"], "tags": ["B-person", "O", "B-person"]},
    {"tokens": ["Rain", "in", "New", "York"], "tags": ["O", "O", "B-place", "I-place"]},
]
ASKED = [
    {
        "question": "Who met Bob?",
        "context": "On Monday Ada met Bob.",
        "answers": [{"text": "Ada", "start": 10}],
    }
]
NUMBERS = [
    {"text": "a cat", "text_pair": "a dog", "label": 2.5},
    {"text": "x", "text_pair": "x", "label": 5},
]


def write(path, rows, *, times=8):
    """Write rows several times, each with a text of its own where it has one."""
    lines = [json.dumps(row) for _ in range(times) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def number_row(row, n):
    """Return a row whose text is its own."""
    if "tokens" in row:
        return {**row, "tokens": [*row["tokens"], str(n)], "tags": [*row["tags"], "O"]}
    name = "context" if "context" in row else "text"
    return {**row, name: f"{row[name]} {n}"}


@pytest.mark.parametrize(
    ("rows", "settings", "kind", "metric"),
    [
        (TAGGED, {}, "tagging", "span_f1"),
        ([{**row, "label": "news"} for row in TAGGED], {}, "tagging", "span_f1"),
        (ASKED * 2, {}, "extractive_qa", "answer_f1"),
        (NUMBERS, {"kind": "regression"}, "regression", "pearson"),
        (NUMBERS, {"label_names": ()}, "regression", "pearson"),
        ([{"text": f"t {n}", "label": n % 2} for n in range(9)], {}, "classification", "accuracy"),
    ],
)
def test_the_columns_of_data_choose_the_kind(tmp_path, rows, settings, kind, metric):
    numbered = [number_row(row, n) for n, row in enumerate(rows * 4)]
    task = load_task(write(tmp_path / "rows.jsonl", numbered, times=1), **settings)
    assert (task.kind, task.metric) == (kind, metric)


def test_a_kind_that_does_not_fit_the_columns_says_what_is_missing(tmp_path):
    path = write(tmp_path / "rows.jsonl", TAGGED)
    with pytest.raises(InputError, match=r"kind 'extractive_qa' needs a column question"):
        load_task(path, kind="extractive_qa")
    with pytest.raises(InputError, match="unknown kind of task 'taging'"):
        load_task(path, kind="taging")


def test_shots_count_all_rows_of_a_task_without_classes(tmp_path):
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}.jsonl", TAGGED)
    assert len(load_task(str(tmp_path), shots=5).train) == 5


def test_a_tag_that_train_lacks_is_an_error_unless_it_is_declared(tmp_path):
    write(tmp_path / "train.jsonl", TAGGED)
    write(tmp_path / "test.jsonl", [TAGGED[0], {"tokens": ["UNO"], "tags": ["B-club"]}], times=1)
    with pytest.raises(InputError, match=r"test\.jsonl:2: the tag 'B-club' is not among"):
        load_task(str(tmp_path))
    left = load_task(str(tmp_path), on_bad_row="skip")
    assert len(left.test) == 1
    (tmp_path / "meta.json").write_text(json.dumps({"span_types": ["person", "place", "club"]}))
    task = load_task(str(tmp_path))
    assert task.label_names[-2:] == ("B-club", "I-club")
    assert len(task.test) == 2


def test_a_metric_of_another_kind_is_refused_with_those_that_fit(tmp_path):
    path = write(tmp_path / "rows.jsonl", [{**row, "tokens": [*row["tokens"]]} for row in TAGGED])
    with pytest.raises(InputError, match=r"'accuracy' does not fit it; fitting are .*span_f1"):
        load_task(path, metric="accuracy")


DAMAGED = [
    {"tokens": ["{}"], "tags": ["O"]},
    {"tokens": ["Ada"], "tags": ["B-{}"]},
    {"question": "{}", "context": "Ada met Bob.", "answers": [{"text": "Ada", "start": 0}]},
    {"question": "Who?", "context": "Ada {}", "answers": [{"text": "Ada", "start": 0}]},
    {"question": "Who?", "context": "{} Ada", "answers": {"text": ["{}"], "answer_start": [0]}},
]


@pytest.mark.parametrize(
    ("row", "text", "fault"),
    [(row, "a\ud800b", "half a character") for row in DAMAGED]
    + [(row, "\u200b\u2060", "invisible") for row in (DAMAGED[0], DAMAGED[2])],
)
def test_damaged_texts_of_every_kind_are_refused_with_file_and_line(tmp_path, row, text, fault):
    good = TAGGED if "tokens" in row else ASKED
    written = json.loads(json.dumps(row).replace("{}", json.dumps(text)[1:-1]))
    path = write(tmp_path / "rows.jsonl", [*good, written], times=1)
    with pytest.raises(InputError, match=rf"rows\.jsonl:{len(good) + 1}: the text in .*{fault}"):
        load_task(path)


def test_columns_named_for_a_kind_with_columns_of_its_own_are_refused(tmp_path):
    path = write(tmp_path / "rows.jsonl", TAGGED)
    with pytest.raises(InputError, match=r"kind 'tagging' is read from columns .*tokens, tags"):
        load_task(path, kind="tagging", text="tokens")
    with pytest.raises(InputError, match=r"kind: .* valid string, got 3"):
        load_task(path, kind=3)


def test_label_names_that_nothing_is_named_by_are_refused(tmp_path):
    tagged = write(tmp_path / "tagged.jsonl", TAGGED)
    asked = write(tmp_path / "asked.jsonl", ASKED)
    with pytest.raises(InputError, match=r"label names O, B-person are those of intents here"):
        load_task(tagged, label_names=["O", "B-person"])
    with pytest.raises(InputError, match=r"has no label names, got yes, no"):
        load_task(asked, label_names=["yes", "no"])


@pytest.mark.parametrize("name", ["rows.parquet", "saved"])
@pytest.mark.parametrize("kind", ["tagging", None])
def test_a_column_of_lists_under_another_name_is_told(tmp_path, name, kind):
    rows = [{"text": "a", "words_of_it": row["tokens"]} for row in TAGGED]
    if name == "saved":
        datasets.Dataset.from_list(rows).save_to_disk(tmp_path / name)
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / name)
    with pytest.raises(InputError, match="; not read are words_of_it, as lists and records are"):
        load_task(str(tmp_path / name), kind=kind)


CHATS = [
    {"messages": [{"role": "user", "content": f"Say {n}"}, {"role": "assistant", "content": "b"}]}
    for n in range(4)
]


@pytest.mark.parametrize("rows", [TAGGED, ASKED, CHATS])
@pytest.mark.parametrize("by_datasets", [True, False])
def test_lists_and_records_of_parquet_are_read_as_those_of_json_lines(tmp_path, rows, by_datasets):
    for folder in ("lines", "tables"):
        (tmp_path / folder).mkdir()
    for split, own in {"train": rows * 5, "test": [*rows, *rows[:1]]}.items():
        write(tmp_path / "lines" / f"{split}.jsonl", own, times=1)
        path = tmp_path / "tables" / f"{split}.parquet"
        if by_datasets:
            datasets.Dataset.from_list(own).to_parquet(path)
        else:
            parquet.write_table(pyarrow.Table.from_pylist(own), path, row_group_size=7)
    lines = load_task(str(tmp_path / "lines"), warn=False)
    tables = load_task(str(tmp_path / "tables"), warn=False)
    assert (tables.kind, tables.label_names) == (lines.kind, lines.label_names)
    assert tables.train == lines.train
    assert tables.test == lines.test


def test_tables_of_the_datasets_library_hold_words_with_named_or_numbered_tags_and_answers(
    tmp_path,
):
    words = [["Ada", "in", str(n)] for n in range(6)]
    names = datasets.ClassLabel(names=["O", "B-person", "I-person"])
    types = {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(names)}
    numbered = {"tokens": words, "ner_tags": [[1, 0, 0]] * 6}
    features = datasets.Features(types)
    saved = datasets.Dataset.from_dict(numbered, features=features)
    saved.save_to_disk(tmp_path / "numbered")
    saved.to_parquet(tmp_path / "table.parquet")
    spelt = {"tokens": words, "tags": [["B-person", "O", "O"]] * 6}
    datasets.Dataset.from_dict(spelt).save_to_disk(tmp_path / "spelt")
    for name in ("numbered", "table", "spelt"):
        task = load_task(name, data=tmp_path, warn=False)
        assert (task.kind, task.label_names) == ("tagging", ("O", "B-person", "I-person"))
        assert all(row.tags == (1, 0, 0) for row in task.train)
    asked = {
        "question": ["Who?"] * 6,
        "context": [f"Ada met {n}" for n in range(6)],
        "answers": [{"text": ["Ada"], "answer_start": [0]}] * 6,
    }
    datasets.Dataset.from_dict(asked).save_to_disk(tmp_path / "asked")
    task = load_task("asked", data=tmp_path, warn=False)
    assert task.kind == "extractive_qa"
    assert all(row.answers == (("Ada", 0),) for row in task.train)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("3,5", "is no number, because of its comma: write a decimal point"),
        ("much", "is no number, as a regression needs"),
        ("1_000", "is no number"),
        ("\uff11\uff12", "is no number"),
        ("", "is empty"),
        ("1e400", "is not a finite number of single precision"),
        (float("nan"), "is NaN, so its value is missing"),
    ],
)
def test_why_a_label_is_no_number_is_said(tmp_path, number, why):
    rows = [*NUMBERS, {**NUMBERS[0], "label": number}]
    with pytest.raises(InputError, match=rf"rows\.jsonl:3: .*{why}"):
        load_task(write(tmp_path / "rows.jsonl", rows, times=1), kind="regression")


@pytest.mark.parametrize(
    ("rows", "target", "hidden"),
    [
        (TAGGED, "tags", None),
        (TAGGED, "tags", []),
        (ASKED, "answers", {"text": [], "answer_start": []}),
        ([{"input": "1 + 1", "target": "2"}], "target", ""),
    ],
)
@pytest.mark.parametrize("lacking", [True, False])
def test_a_split_without_any_answer_is_left_out_and_told(tmp_path, rows, target, hidden, lacking):
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "dev.jsonl", rows)
    asked = [{name: value for name, value in row.items() if name != target} for row in rows]
    write(tmp_path / "test.jsonl", asked if lacking else [{**row, target: hidden} for row in asked])
    task = load_task(str(tmp_path), warn=False)
    told = f"test.jsonl: no row has an answer in column {target!r}; the test split is left out"
    assert any(told in note for note in task.source["notes"])
    assert task.source["without_labels"] == ["test"]
    assert task.source["test_split"] == "the data's dev split serves as test split"
    # Where one row has an answer, those without one are faults.
    write(tmp_path / "test.jsonl", [*rows, *asked], times=1)
    with pytest.raises(InputError, match=rf"test\.jsonl:{len(rows) + 1}: "):
        load_task(str(tmp_path), warn=False)


def test_a_message_names_a_column_as_the_file_does(tmp_path):
    rows = [{"words": row["tokens"], "ner_tags": [0] * len(row["tokens"])} for row in TAGGED]
    with pytest.raises(InputError, match=r"rows\.jsonl:1: column 'ner_tags' must be a list"):
        load_task(write(tmp_path / "rows.jsonl", rows))
    asked = [{**ASKED[0], "passage": " "}]
    del asked[0]["context"]
    with pytest.raises(InputError, match=r"rows\.jsonl:1: column 'passage' must hold a text"):
        load_task(write(tmp_path / "rows.jsonl", asked))
    # What a value says of columns is left as it is.
    asked[0]["passage"] = ["column 'context'"]
    with pytest.raises(InputError, match=r"column 'passage' must hold .*\[\"column 'context'\"\]"):
        load_task(write(tmp_path / "rows.jsonl", asked))


def test_an_error_of_a_column_says_the_same_in_another_process():
    error = ColumnError("rows.jsonl:3", "target", "is empty", "the answer in ")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "rows.jsonl:3: the answer in column 'target' is empty"
    assert again.rename("output") == "rows.jsonl:3: the answer in column 'output' is empty"


@pytest.mark.parametrize(
    ("rows", "kind", "column"), [(TAGGED, "tagging", "tags"), (ASKED, "extractive_qa", "context")]
)
def test_the_one_column_that_a_kind_lacks_is_named(tmp_path, rows, kind, column):
    lacking = [{name: value for name, value in row.items() if name != column} for row in rows]
    with pytest.raises(InputError, match=f"a task of kind '{kind}' needs a column '{column}', too"):
        load_task(write(tmp_path / "rows.jsonl", lacking))


def test_rows_of_one_text_alone_leave_no_test_rows_and_the_task_is_named(tmp_path):
    with pytest.raises(InputError, match=r"task 'rows': the data have no dev and no test split"):
        load_task(write(tmp_path / "rows.jsonl", ASKED), warn=False)
