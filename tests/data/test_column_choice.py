"""Columns are found by one function: by name, by what they hold, or the error asks which."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from configs import config_with

from cl_graft.banks.input_texts import read_texts
from cl_graft.data import load_task
from cl_graft.errors import InputError
from cl_graft.settings.draft import draft_config
from cl_graft.settings.tasks import load_tasks

SAID = ["the tap drips", "no hot water here", "a lovely room", "they were kind to us"]
TEXTS = [f"{SAID[n % 4]} on day {n} of {n % 7} days" for n in range(60)]
LABELS = ["bad", "bad", "good", "good"] * 15
ROWS = [*zip(TEXTS, LABELS, strict=True)]


def write(path: Path, rows: Sequence, header: list[str] | None = None) -> Path:
    pd.DataFrame(rows).to_csv(path, index=False, header=header or False)
    return path


def columns(path: Path, **named) -> list:
    return load_task(path, warn=False, **named).source["columns"]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (["message", "queue"], ["message", None, "queue"]),
        (["Text", "Label"], ["Text", None, "Label"]),
        (["tweet", "airline-sentiment"], ["tweet", None, "airline-sentiment"]),
        (["v2", "v1"], ["v2", None, "v1"]),
    ],
)
def test_init_and_load_task_find_the_same_columns(tmp_path, header, found):
    path = write(tmp_path / "a.csv", ROWS, header)
    assert columns(path) == found
    (task,) = draft_config(path).tasks
    assert [task.columns.text, task.columns.text_pair, task.columns.label] == found
    told = [note for note in task.notes if "chosen by what the columns hold" in note]
    assert bool(told) == task.guessed == (header == ["v2", "v1"])


def test_several_columns_that_may_be_meant_are_asked_for_with_their_names(tmp_path):
    rows = [[t, t[::-1], b, n % 3] for n, (t, b) in enumerate(ROWS)]
    path = write(tmp_path / "a.csv", rows, ["hin", "her", "art", "stufe"])
    said = r"which column holds the text, hin or her\? Name it with t"
    with pytest.raises(InputError, match=said):
        load_task(str(path))
    with pytest.raises(InputError, match=r"the label, art \(2 values\) or stufe \(3 values\)\?"):
        load_task(str(path), text="hin")
    assert columns(path, text="hin", text_pair="her", label="art") == ["hin", "her", "art"]


def test_texts_without_blanks_are_texts(tmp_path):
    path = tmp_path / "a.csv"
    chinese = [["房间很好我们很喜欢" + "好" * n, b] for n, b in enumerate(LABELS)]
    assert columns(write(path, chinese, ["评论", "极性"])) == ["评论", None, "极性"]


@pytest.mark.parametrize(
    "rows",
    [
        [[b, t] for t, b in ROWS],
        [[t, n % 2] for n, t in enumerate(TEXTS)],
        [[f"user_{n}", t, n % 2 * 4] for n, t in enumerate(TEXTS)],
        [[t.split()[0] + str(n), b] for n, (t, b) in enumerate(ROWS)],
    ],
)
def test_a_table_without_a_header_is_refused_by_every_command(tmp_path, rows):
    path = write(tmp_path / "a.csv", rows)
    said = r"a\.csv:1: the line looks like a row .* put a line with the names of the [23] columns"
    for use in (load_task, draft_config, lambda p: read_texts(p, task="a")):
        with pytest.raises(InputError, match=said):
            use(str(path))
    write(path, [[text] for text in TEXTS])
    with pytest.raises(InputError, match=r"a\.csv:1: the line looks like a row"):
        read_texts(path, task="a")


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (["0", "1"], [[t, n % 2] for n, t in enumerate(TEXTS)]),
        (["text", "spam"], [[t, ("spam", "ham")[n % 2]] for n, t in enumerate(TEXTS)]),
        (["How was your stay with us?", "Mood"], ROWS),
        (["2024", "text", "class"], [[n, t, n % 2] for n, t in enumerate(TEXTS)]),
    ],
)
def test_headers_that_look_odd_are_headers(tmp_path, header, rows):
    path = write(tmp_path / "a.csv", rows, header)
    assert len(load_task(str(path), warn=False).train) > 40


def test_a_test_file_that_lacks_the_column_of_train_is_told_as_a_whole(tmp_path):
    (tmp_path / "a").mkdir()
    write(tmp_path / "a" / "train.csv", ROWS, ["text", "label"])
    write(tmp_path / "a" / "test.csv", ROWS)
    said = r"test\.csv: there is no column 'text', as train has; .*:1"
    with pytest.raises(InputError, match=said):
        load_task("a", data=tmp_path)


def test_columns_of_0_and_1_are_asked_for_and_told_of_several_labels(tmp_path):
    rows = [[t, n, int(n % 2 == 0), int(n % 3 == 0)] for n, t in enumerate(TEXTS)]
    path = write(tmp_path / "a.csv", rows, ["text", "id", "anger", "joy"])
    with pytest.raises(InputError, match=r"the label, anger .* or joy .*'multi_label'"):
        load_task(str(path))
    assert load_task(str(path), label="anger", warn=False).label_names == ("0", "1")


def test_columns_named_for_a_stream_are_those_of_tasks_that_name_none_and_have_some(tmp_path):
    rows = [[t, b, n % 3] for n, (t, b) in enumerate(ROWS)]
    for name in ("one", "two"):
        write(tmp_path / f"{name}.csv", rows, ["was", "art", "stufe"])
    config = config_with(
        {
            "stream.data": str(tmp_path),
            "stream.tasks": ["one", "two", "scope"],
            "stream.label": "art",
            "stream.task_settings": {"two": {"text": "was", "label": "stufe"}},
        }
    )
    found = [task.source.get("columns") for task in load_tasks(config.stream, seed=0)]
    assert found == [["was", None, "art"], ["was", None, "stufe"], ["text", None, "label"]]
