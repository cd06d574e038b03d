"""Data choose their kind by their columns, and faults of rows name file and line."""

import json
import pickle

import datasets
import pyarrow
import pyarrow.parquet as parquet
import pytest
from answer_tasks import write_rows, write_task

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
SPLITS = ("train", "dev", "test")
NUMBERS = [
    {"text": "a cat", "text_pair": "a dog", "label": 2.5},
    {"text": "x", "text_pair": "x", "label": 5},
]


def without(rows, column):
    return [{name: value for name, value in row.items() if name != column} for row in rows]


@pytest.mark.parametrize(
    ("rows", "settings", "kind", "metric"),
    [
        (TAGGED, {}, "tagging", "span_f1"),
        ([{**row, "label": "news"} for row in TAGGED], {}, "tagging", "span_f1"),
        (ASKED, {}, "extractive_qa", "answer_f1"),
        (NUMBERS, {"kind": "regression"}, "regression", "pearson"),
        (NUMBERS, {"label_names": ()}, "regression", "pearson"),
        ([{"text": f"t {n}", "label": n % 2} for n in range(9)], {}, "classification", "accuracy"),
    ],
)
def test_the_columns_of_data_choose_the_kind(tmp_path, rows, settings, kind, metric):
    task = load_task(write_task(tmp_path, dict.fromkeys(SPLITS, rows * 4)), **settings)
    assert (task.kind, task.metric) == (kind, metric)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (TAGGED, {"kind": "extractive_qa"}, "kind 'extractive_qa' needs a column question"),
        (TAGGED, {"kind": "taging"}, "unknown kind of task 'taging'"),
        (TAGGED, {"kind": 3}, "kind: .* valid string, got 3"),
        (
            TAGGED,
            {"kind": "tagging", "text": "tokens"},
            "kind 'tagging' is read from columns .*tokens, tags",
        ),
        (TAGGED, {"metric": "accuracy"}, "'accuracy' does not fit it; fitting are .*span_f1"),
        (TAGGED, {"label_names": ["O", "B-a"]}, "label names O, B-a are those of intents here"),
        (ASKED, {"label_names": ["yes", "no"]}, "has no label names, got yes, no"),
        (ASKED, {}, "task 'rows': the data have no dev and no test split"),
        (without(TAGGED, "tags"), {}, "a task of kind 'tagging' needs a column 'tags', too"),
        (
            without(ASKED, "context"),
            {},
            "a task of kind 'extractive_qa' needs a column 'context', too",
        ),
    ],
)
def test_settings_and_rows_that_do_not_fit_are_told(tmp_path, rows, settings, message):
    with pytest.raises(InputError, match=message):
        load_task(write_rows(tmp_path / "rows.jsonl", rows * 8), **settings)


@pytest.mark.parametrize(
    ("rows", "kind"), [(TAGGED, "tagging"), (ASKED, "extractive_qa"), (NUMBERS, "regression")]
)
def test_shots_count_all_rows_of_a_task_without_classes(tmp_path, rows, kind):
    task = write_task(tmp_path, dict.fromkeys(SPLITS, rows * 8))
    assert len(load_task(task, kind=kind, shots=5).train) == 5


def test_a_tag_that_train_lacks_is_an_error_unless_it_is_declared(tmp_path):
    test = [TAGGED[0], {"tokens": ["UNO"], "tags": ["B-club"]}]
    write_task(tmp_path, {"train": TAGGED * 8, "test": test})
    with pytest.raises(InputError, match=r"test\.jsonl:2: the tag 'B-club' is not among"):
        load_task(tmp_path)
    assert len(load_task(tmp_path, on_bad_row="skip").test) == 1
    write_task(tmp_path, {}, span_types=["person", "place", "club"])
    task = load_task(tmp_path)
    assert task.label_names[-2:] == ("B-club", "I-club")
    assert len(task.test) == 2


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
    + [(DAMAGED[0], "\u200b\u2060", "invisible")],
)
def test_damaged_texts_of_every_kind_are_refused_with_file_and_line(tmp_path, row, text, fault):
    good = TAGGED if "tokens" in row else ASKED
    written = json.loads(json.dumps(row).replace("{}", json.dumps(text)[1:-1]))
    path = write_rows(tmp_path / "rows.jsonl", [*good, written])
    with pytest.raises(InputError, match=rf"rows\.jsonl:{len(good) + 1}: the text in .*{fault}"):
        load_task(path)


@pytest.mark.parametrize("kind", ["tagging", None])
def test_a_column_of_lists_under_another_name_is_told(tmp_path, kind):
    rows = [{"text": "a", "words_of_it": row["tokens"]} for row in TAGGED]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="; not read are words_of_it, as lists and records are"):
        load_task(tmp_path / "rows.parquet", kind=kind)


CHATS = [
    {"messages": [{"role": "user", "content": f"Say {n}"}, {"role": "assistant", "content": "b"}]}
    for n in range(4)
]


@pytest.mark.parametrize("rows", [TAGGED, ASKED, CHATS])
def test_lists_and_records_of_parquet_are_read_as_those_of_json_lines(tmp_path, rows):
    splits = {"train": rows * 5, "test": [*rows, *rows[:1]]}
    (tmp_path / "tables").mkdir()
    for split, own in splits.items():
        table = pyarrow.Table.from_pylist(own)
        parquet.write_table(table, tmp_path / "tables" / f"{split}.parquet", row_group_size=7)
    lines = load_task(write_task(tmp_path / "lines", splits), warn=False)
    tables = load_task(tmp_path / "tables", warn=False)
    for part in ("kind", "label_names", "train", "test"):
        assert getattr(tables, part) == getattr(lines, part)


def test_tags_of_the_datasets_library_are_read_by_their_numbers(tmp_path):
    names = datasets.ClassLabel(names=["O", "B-person", "I-person"])
    types = {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(names)}
    numbered = {"tokens": [["Ada", "in", str(n)] for n in range(6)], "ner_tags": [[1, 0, 0]] * 6}
    saved = datasets.Dataset.from_dict(numbered, features=datasets.Features(types))
    saved.save_to_disk(tmp_path / "numbered")
    saved.to_parquet(tmp_path / "table.parquet")
    for name in ("numbered", "table"):
        task = load_task(name, data=tmp_path, warn=False)
        assert (task.kind, task.label_names) == ("tagging", ("O", "B-person", "I-person"))
        assert all(row.tags == (1, 0, 0) for row in task.train)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("3,5", "is no number, as a regression needs"),
        ("\uff11\uff12", "is no number"),
        ("", "is empty"),
        ("1e400", "is not a finite number of single precision"),
        (float("nan"), "is NaN, so its value is missing"),
        *((value, "") for value in (None, "nan", "inf", True, 1e39)),
    ],
)
def test_why_a_label_is_no_number_is_said(tmp_path, number, why):
    bad = {**NUMBERS[0], "label": number}
    write_task(tmp_path, {"train": [*NUMBERS, bad, *NUMBERS], "dev": NUMBERS, "test": NUMBERS})
    with pytest.raises(InputError, match=rf"train\.jsonl:3: .*{why}"):
        load_task(tmp_path, kind="regression")
    left = load_task(tmp_path, kind="regression", on_bad_row="skip")
    assert (left.kind, len(left.train)) == ("regression", 4)


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
    asked = without(rows, target)
    test = asked if lacking else [{**row, target: hidden} for row in asked]
    write_task(tmp_path, {"train": rows * 8, "dev": rows * 8, "test": test * 8})
    task = load_task(tmp_path, warn=False)
    told = f"test.jsonl: no row has an answer in column {target!r}; the test split is left out"
    assert any(told in note for note in task.source["notes"])
    assert task.source["without_labels"] == ["test"]
    assert task.source["test_split"] == "the data's dev split serves as test split"
    # Where one row has an answer, those without one are faults.
    write_task(tmp_path, {"test": [*rows, *asked]})
    with pytest.raises(InputError, match=rf"test\.jsonl:{len(rows) + 1}: "):
        load_task(tmp_path, warn=False)


def test_a_message_names_a_column_as_the_file_does(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"words": ["Ada"], "ner_tags": [0]}] * 8)
    with pytest.raises(InputError, match=r"rows\.jsonl:1: column 'ner_tags' must be a list"):
        load_task(path)


def test_an_error_of_a_column_says_the_same_in_another_process():
    error = ColumnError("rows.jsonl:3", "target", "is empty", "the answer in ")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "rows.jsonl:3: the answer in column 'target' is empty"
    assert again.rename("output") == "rows.jsonl:3: the answer in column 'output' is empty"
