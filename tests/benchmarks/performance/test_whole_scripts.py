"""Scripts that measure run from beginning to end on tiny models, and store what they say."""

import json

import pytest
from benchmark_scripts import run_script


def test_a_stream_is_timed_with_all_layers_and_with_upper_ones(tiny_bert, tmp_path):
    sets = (
        *(f"model.name={tiny_bert}", "stream.tasks=[sentiment, topic]", "fine_tuning.steps=2"),
        *("stream.shots=8", "stream.max_test=8", "stream.max_length=24", "grafting.mask_batch=8"),
    )
    run_script(
        *("stream_cost.py", "--scale", "smoke", "--seeds", "0", "--layers", "1"),
        *("--out", tmp_path / "runs", "--results", tmp_path),
        *(word for value in sets for word in ("--set", value)),
    )
    stored = json.loads((tmp_path / "stream_cost-smoke.json").read_text())
    table = (tmp_path / "stream_cost-smoke.md").read_text()
    for name in ("grafting", "naive_upper", "grafting_upper"):
        assert stored[f"{name}_stream/naive_stream"] > 0
    assert "| 0 | grafting, upper 1 layers |" in table
    assert stored["seeds"]["0"]["grafting"]["backward_transfer"] == 0


def test_steps_of_upper_layers_are_timed_beside_full_ones(tiny_bert, tmp_path):
    asked = ("--model", tiny_bert, "--layers", "1", "--rounds", 2, "--results", tmp_path)
    table = run_script("upper_layers.py", *asked).stdout
    stored = json.loads((tmp_path / "upper_layers.json").read_text())
    assert (tmp_path / "upper_layers.md").read_text() in table
    assert stored["ratios"].pop("naive, all layers") == 1.0
    assert {
        f"{what}, upper 1, {states}"
        for what in ("naive", "region")
        for states in ("computed", "stored")
    } | {"region, all layers"} == stored["ratios"].keys()
    assert all(ratio > 0 for ratio in stored["ratios"].values())
    assert all(len(spent) == 2 for spent in stored["seconds"].values())


@pytest.mark.slow
def test_eight_tasks_of_one_text_are_timed_beside_one(minilm, tmp_path):
    run_script("shared_answers.py", "--model", minilm, "--repeats", 1, "--results", tmp_path)
    assert json.loads((tmp_path / "shared_answers.json").read_text())


@pytest.mark.slow
def test_rows_of_several_tasks_are_timed_in_both_ways(tmp_path):
    asked = ("--tokens", "32", "--tasks", "8", "--rounds", 4, "--results", tmp_path)
    run_script("row_differences.py", *asked)
    table = (tmp_path / "row_differences.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table[2:4]] == ["| float32", "| bfloat16"]
