"""Runs are killed, at the smallest scale, and end as if they had not been."""

import json
import sys

import pytest
from benchmark_scripts import run_script


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are forked")
def test_killed_runs_end_bit_identical_and_finished_cases_are_not_done_again(tmp_path):
    for _ in range(2):
        run_script("torture_kills.py", "--scale", "smoke", "--out", tmp_path)
    found = json.loads((tmp_path / "kills.json").read_text(encoding="utf-8"))
    assert sum(row["survived"] for row in found["rows"]) >= 3
    assert found["identical_runs"] == found["runs"]
    lines = (tmp_path / "kills" / "cases-smoke-0.jsonl").read_text().splitlines()
    assert len(lines) == found["runs"]
