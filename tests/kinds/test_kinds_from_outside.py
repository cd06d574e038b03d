"""The kind of the page "Add a kind of task" is learned, kept and answered like the others."""

import sys
from pathlib import Path

import pytest
from answer_tasks import write_rows, write_task
from configs import changed
from own_registries import registries_restored

from cl_graft import load_task
from cl_graft.banks.open_bank import open_bank
from cl_graft.banks.verify import verify
from cl_graft.errors import InputError
from cl_graft.kinds import KINDS
from cl_graft.lab.experiments.run import run, run_folder


@pytest.fixture(scope="module")
def aspects():
    """Register the kind of the page while the tests of this module run."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
    try:
        from pages import DOCS, blocks
    finally:
        sys.path.pop(0)
    with registries_restored():
        exec(blocks(DOCS / "guides" / "add_a_kind.md", "python")[0].text, {"__name__": __name__})
        yield KINDS.find("aspects")


@pytest.fixture
def dinners(tmp_path):
    names = ("food", "price", "service")
    rows = [
        {"text": f"{a} {one}, {b} {other} {n}", "ratings": {a: one, b: other}}
        for n in range(3)
        for one in ("good", "bad")
        for other in ("good", "bad")
        for a in names
        for b in names
        if a < b
    ]
    return write_rows(tmp_path / "dinners.jsonl", rows)


def test_a_kind_from_outside_is_learned_kept_and_answered(aspects, dinners, tiny_config, tmp_path):
    config = changed(tiny_config, {"tasks": [str(dinners), "scope"], "shots": None})
    result = run(config, strategy="grafting", seed=0, out=tmp_path / "run")
    assert result.R[0][0] == result.R[1][0] is not None
    folder = run_folder(tmp_path / "run", "grafting", 0)
    bank = open_bank(folder)
    assert bank.bank.entries[0].metadata["kind"] == "aspects"
    answer = bank.predict("food good, price bad", task="dinners")
    assert set(answer.probabilities) == {"food", "price", "service"}
    assert all(0 <= share <= 1 for share in answer.probabilities.values())
    mixed = bank.predict([("food good, price bad", "dinners"), ("A delight.", "scope")])
    assert mixed[0].probabilities == pytest.approx(answer.probabilities, abs=1e-4)
    report = verify(folder)
    assert [entry.recorded_batch for entry in report.entries] == ["same bits", "same bits"]


def test_an_aspect_that_train_lacks_is_named_with_its_line(aspects, tmp_path):
    rows = [{"text": f"text {n}", "ratings": {"food": "good"}} for n in range(8)]
    write_task(tmp_path, {"train": rows, "test": [{"text": "text", "ratings": {"smell": "bad"}}]})
    with pytest.raises(InputError, match=r"test\.jsonl:1: unknown aspects \['smell'\]"):
        load_task(tmp_path)
