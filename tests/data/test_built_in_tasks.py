"""What holds for every task in the package: honest splits, balanced classes, a named source."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from cl_graft import load_task
from cl_graft.data import BUILT_IN
from cl_graft.kinds.rows import Row

FOLDER = next(iter(BUILT_IN.values())).parent
SPLITS = ("train", "dev", "test")

every_task = pytest.mark.parametrize("name", BUILT_IN)


def normalise(text: str | None) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", (text or "").lower()).split())


def rows(name: str, split: str) -> tuple[Row, ...]:
    return getattr(load_task(name), split)


def test_they_are_at_most_600_kb_in_all():
    assert 3 <= len(BUILT_IN) <= 5
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 600_000


@every_task
def test_classes_are_balanced_in_every_split_and_the_test_has_at_least_200_rows(name):
    task = load_task(name)
    for split in SPLITS:
        counts = Counter(row.label for row in rows(name, split))
        assert set(counts) == set(range(len(task.label_names)))
        assert len(set(counts.values())) == 1
    assert len(task.test) >= 200


def test_no_row_stands_twice_in_whatever_split_or_task():
    every = [
        (normalise(row.text), normalise(row.text_pair))
        for name in BUILT_IN
        for split in SPLITS
        for row in rows(name, split)
    ]
    assert len(set(every)) == len(every)


@every_task
def test_no_first_text_of_a_row_stands_in_two_splits(name):
    texts = [{normalise(row.text) for row in rows(name, split)} for split in SPLITS]
    assert len(set().union(*texts)) == sum(map(len, texts))


@every_task
def test_a_task_names_its_source_its_licence_and_its_counts(name):
    meta = json.loads((BUILT_IN[name] / "meta.json").read_text())
    assert meta["licence"].startswith(("CC BY", "CC0"))
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in meta["repositories"].values())
    assert meta["rows"] == {split: len(rows(name, split)) for split in SPLITS}
    card = (FOLDER / "README.md").read_text()
    assert f"`{name}`" in card
    assert meta["licence"].split(",")[0] in card


def test_a_task_has_the_rows_that_are_asked_for_and_the_same_test_rows_for_every_seed():
    one = load_task("built-in:scope", shots=30, data_seed=5)
    other = load_task("scope", shots=30, data_seed=6)
    assert (one.name, len(one.train), len(one.test)) == ("scope", 60, 300)
    assert (other.train == one.train, other.test == one.test) == (False, True)
    assert one.source["from"] == "built-in:scope"
    assert one.prompt is not None


def test_a_folder_of_the_users_goes_before_a_built_in_task_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scope").mkdir()
    assert load_task("scope", shots=8).source["from"] == "built-in:scope"
    lines = [{"text": f"text {n}", "label": ("ham", "spam")[n % 2]} for n in range(100)]
    (tmp_path / "scope" / "train.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert load_task("scope").label_names == load_task("scope", data=tmp_path).label_names
    assert load_task("scope").label_names == ("ham", "spam")
    assert load_task("topic", data=tmp_path, shots=8).source["from"] == "built-in:topic"
    assert load_task("built-in:scope", data=tmp_path, shots=8).source["from"] == "built-in:scope"


def test_labels_of_a_built_in_task_serve_as_answers():
    task = load_task("entailment", kind="text2text", shots=4)
    assert task.train[0].targets[0] in ("entailment", "neutral", "contradiction")
