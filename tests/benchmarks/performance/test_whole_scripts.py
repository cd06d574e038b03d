"""Scripts that measure run from beginning to end on tiny models, and store what they say."""

import json

import pytest
from benchmark_scripts import run_script


def test_a_stream_is_timed_beside_a_naive_one(tiny_bert, tmp_path):
    sets = (
        *(f"model.name={tiny_bert}", "stream.tasks=[sentiment, topic]", "fine_tuning.steps=2"),
        *("stream.shots=8", "stream.max_test=8", "stream.max_length=24", "grafting.mask_batch=8"),
    )
    run_script(
        *("stream_cost.py", "--scale", "smoke", "--seeds", "0"),
        *("--out", tmp_path / "runs", "--results", tmp_path),
        *(word for value in sets for word in ("--set", value)),
    )
    stored = json.loads((tmp_path / "stream_cost-smoke.json").read_text())
    table = (tmp_path / "stream_cost-smoke.md").read_text()
    assert stored["grafting_stream/naive_stream"] > 0
    assert "| 0 | grafting |" in table
    assert stored["seeds"]["0"]["grafting"]["backward_transfer"] == 0


@pytest.mark.slow
def test_rows_of_several_tasks_are_timed_in_both_ways(tmp_path):
    asked = ("--tokens", "32", "--tasks", "8", "--rounds", 4, "--results", tmp_path)
    run_script("row_differences.py", *asked)
    table = (tmp_path / "row_differences.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table[2:4]] == ["| float32", "| bfloat16"]
