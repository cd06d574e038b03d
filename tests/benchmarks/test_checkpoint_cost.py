"""What checkpoints cost is measured, at the smallest scale."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoint_cost.py"


@pytest.mark.slow
def test_the_cost_of_checkpoints_is_measured_for_every_strategy(tiny_bert, tmp_path):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--scale", "smoke", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--model", str(tiny_bert), "--results", str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "checkpoint_cost-smoke.json").read_text())
    assert [row["strategy"] for row in stored["rows"]] == ["grafting", "naive"]
    assert all(row["checkpoints a run"] >= 1 for row in stored["rows"])
    assert (tmp_path / "checkpoint_cost-smoke.md").read_text() == done.stdout
