"""Faults of data are told before anything is computed; what was left out is in the results."""

import json
import re
from pathlib import Path

import pytest
from configs import config_with

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.folders import differences
from cl_graft.lab.experiments.run import run

QUICK = {
    **{"tasks": ["mine"], "strategies": ["naive"], "shots": 4},
    **{"steps": 1, "evaluations": 1, "max_length": 16, "device": "cpu"},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f"this is text number {n},{'bad' if n % 2 else 'good'}" for n in range(40)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text("\n".join(["text,label", *rows, "ragged", ""]))
    return tmp_path / "data"


@pytest.fixture
def settings(data: Path, tiny_bert: Path) -> dict:
    return {**QUICK, "data": str(data), "model": str(tiny_bert), "on_bad_row": "skip"}


def test_rows_left_out_and_cut_stand_in_the_results_and_the_summary(settings, data, tmp_path):
    out = tmp_path / "out"
    long = data / "mine.csv"
    long.write_text(long.read_text() + f"{'and on ' * 40},good\n" * 5)
    result = run(config_with(settings), strategy="naive", seed=0, out=out)
    found = result.data["mine"]
    assert {Path(file).name: e["rows"] for file, e in found["source"]["left_out"].items()} == {
        "mine.csv": 1
    }
    assert found["max_length"] == 16
    assert 0 < found["cut"]["train"] + found["cut"]["valid"] + found["cut"]["test"] <= 5
    stored = json.loads((out / "naive" / "seed0" / "results.json").read_text())
    assert stored["data"]["mine"] == found
    summary = (out / "naive" / "seed0" / "summary.md").read_text()
    assert "left out 1 row: " in summary
    assert "rows cut at 16 tokens" in summary


def test_which_label_an_f1_is_of_and_rows_shared_by_tasks_stand_in_results_and_summary(
    settings, data, tmp_path
):
    header, *rows, _ = (data / "mine.csv").read_text().splitlines()
    (data / "again.csv").write_text("\n".join([header, *rows[::-1]]))
    own = {"mine": {"metric": "f1", "positive": "bad"}}
    asked = {**settings, "tasks": ["mine", "again"], "task_settings": own, "shots": None}
    out = tmp_path / "out"
    result = run(config_with(asked), strategy="naive", seed=0, out=out)
    assert result.metrics == {"mine": "f1_of_class_0", "again": "accuracy"}
    left_out, note = result.data["mine"]["source"]["notes"]
    assert "left out 1 row: " in left_out
    assert re.fullmatch("[1-8] of its 8 test rows also stand in train or dev of again", note)
    summary = (out / "naive" / "seed0" / "summary.md").read_text()
    assert note in summary
    assert "its F1 is that of the label 'bad'" in summary


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"family": "masked_lm"}, "task 'mine': the word 'incomprehensibilities' of label"),
        ({"max_length": 5000}, "max_length must be at most"),
    ],
)
def test_what_shows_when_rows_meet_the_tokenizer_is_told_before_anything_is_written(
    settings, data, tmp_path, changes, said
):
    text = (data / "mine.csv").read_text()
    (data / "mine.csv").write_text(text.replace(",bad", ",incomprehensibilities"))
    config = config_with({**settings, **changes})
    with pytest.raises(InputError, match=said):
        compare(config, out=tmp_path / "out")
    with pytest.raises(InputError, match=said):
        run(config, strategy="naive", seed=0, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_setting_younger_than_a_stored_config_had_its_default():
    config = config_with({"tasks": ["a"]})
    stored = config.shared_values()
    del stored["stream"]["on_bad_row"]
    assert differences(stored, config) == []
    other = config_with({"tasks": ["a"], "on_bad_row": "skip"})
    assert differences(stored, other) == ['stream.on_bad_row "error" there, "skip" here']
