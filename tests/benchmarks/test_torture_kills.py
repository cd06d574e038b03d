"""Runs are killed, at the smallest scale, and end as if they had not been."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "torture_kills.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are forked")
def test_killed_runs_end_bit_identical_and_finished_cases_are_not_done_again(tmp_path):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--scale", "smoke"]
    for _ in range(2):
        done = subprocess.run(
            [*command, "--out", str(tmp_path)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "kills.json").read_text(encoding="utf-8"))
    assert sum(row["survived"] for row in found["rows"]) >= 3
    assert found["identical_runs"] == found["runs"]
    lines = (tmp_path / "kills" / "cases-smoke-0.jsonl").read_text().splitlines()
    assert len(lines) == found["runs"]
