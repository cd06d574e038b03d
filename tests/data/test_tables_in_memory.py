"""Tables that a program holds are taken as the same rows of a file are."""

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from answer_tasks import write_rows

from cl_graft import load_task
from cl_graft.errors import InputError

TEXTS = [f"the tap in room {n} drips" for n in range(60)]
FRAME = pd.DataFrame({"text": TEXTS, "label": ["bad", "good"] * 30})
ROWS = [{**row, "more": {"stars": n % 3}} for n, row in enumerate(FRAME.to_dict("records"))]


def load(given: object, **settings):
    return load_task(given, warn=False, **settings)


TABLES = {
    "list": lambda: ROWS,
    "tuple": lambda: tuple(ROWS),
    "pandas": lambda: FRAME,
    "categories": lambda: FRAME.astype({"label": "category", "text": "string"}),
    "Dataset": lambda: datasets.Dataset.from_list(ROWS),
    "Dataset with a format": lambda: datasets.Dataset.from_list(ROWS).with_format("numpy"),
}


@pytest.mark.parametrize("form", TABLES)
def test_every_table_gives_the_rows_of_the_file(form, tmp_path: Path):
    file, task = load(write_rows(tmp_path / "data.jsonl", ROWS)), load(TABLES[form]())
    assert (task.name, task.label_names, task.source["from"]) == ("data", ("bad", "good"), "memory")
    assert task.fingerprint == file.fingerprint
    assert load_task("mine", data=TABLES[form](), shots=4, warn=False).name == "mine"


def test_splits_come_in_a_mapping(tmp_path):
    whole = {"train": FRAME[:40], "validation": ROWS[40:50], "test": FRAME[50:]}
    sizes = {"train": 40, "dev": 10, "test": 10}
    assert {split: len(rows) for split, rows in load(whole).splits.items()} == sizes
    parts = {name: datasets.Dataset.from_list(ROWS[:9]) for name in ("train", "test", "raw")}
    task = load(datasets.DatasetDict(parts))
    assert (len(task.test), task.source["train_test_overlap"]) == (9, 9)
    assert load(ROWS, text="text", label="more.stars").label_names == ("0", "1", "2")


def test_names_of_classes_numbers_and_missing_values_are_read(tmp_path):
    types = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    given = {"text": TEXTS, "label": [0, 1] * 30}
    named = datasets.Dataset.from_dict(given, features=datasets.Features(types))
    assert load(named).label_names == ("no", "yes")
    frame = FRAME.assign(label=np.array([0.0, 1.0] * 29 + [np.nan, 1.0]))
    with pytest.raises(InputError, match=r"data: row 59 \(index 58\): column 'label' is empty"):
        load(frame)
    assert load(frame, on_bad_row="skip").label_names == ("0", "1")
    scores = FRAME.assign(label=np.arange(60) / 7)
    assert load(scores, kind="regression").kind == "regression"
    tagged = [{"tokens": np.array(["in", "Rome"]), "tags": ["O", "B-place"]} for _ in range(9)]
    assert load({"train": tagged, "test": tagged, "dev": tagged}).kind == "tagging"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (FRAME.set_index("label").assign(text=3, label=1), r"row 1 \(index 'bad'\).* got int"),
        ([*ROWS, ["a", "b"]], r"row 61 \(index 60\) must be a dictionary by column, got list"),
        ([], "data: there are no rows"),
        (FRAME.rename(columns={"label": "text"}), "has a column twice: text, text"),
        ({"train": ROWS, "holdout": ROWS}, r"data: 'holdout' is no split; .*test"),
        ({"text": ["a", "b"], "label": [0, 1]}, r"data: 'text' is no split"),
        ({"train": ["a", "b"]}, r"the rows of 'train' must be dictionaries by column, got str"),
        (iter(ROWS), r"data: expected .* a list of dictionaries.*; got list_iterator"),
        (None, r"data: expected .*; got NoneType"),
    ],
)
def test_what_is_no_table_is_told_with_what_is_expected(given, said):
    with pytest.raises(InputError, match=said):
        load(given)


def test_a_stream_of_the_datasets_library_is_told_from_a_table():
    with pytest.raises(InputError, match=r"data: expected .* a Dataset .*; got IterableDataset"):
        load(datasets.Dataset.from_list(ROWS).to_iterable_dataset())
    with pytest.raises(InputError, match="expected the name of a task beside data, got DataFrame"):
        load(FRAME, data=FRAME)
