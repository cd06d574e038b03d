"""What checkpoints cost is measured, at the smallest scale."""

import json

import pytest
from benchmark_scripts import run_script


@pytest.mark.slow
def test_the_cost_of_checkpoints_is_measured_for_every_strategy(tiny_bert, tmp_path):
    small = ("--scale", "smoke", "--repeats", 1)
    done = run_script("checkpoint_cost.py", *small, "--model", tiny_bert, "--results", tmp_path)
    stored = json.loads((tmp_path / "checkpoint_cost-smoke.json").read_text())
    assert [row["strategy"] for row in stored["rows"]] == ["grafting", "naive"]
    assert all(row["checkpoints a run"] >= 1 for row in stored["rows"])
    assert (tmp_path / "checkpoint_cost-smoke.md").read_text() == done.stdout
