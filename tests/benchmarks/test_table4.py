"""The benchmark scripts run, at the smallest scale."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_table4_runs_and_goes_on_from_what_is_finished(data_dir, minilm, tmp_path):
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "table4.py"),
        *("--scale", "smoke", "--data", str(data_dir)),
        *("--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
        stored = json.loads((tmp_path / "results" / "table4-smoke.json").read_text())
        assert set(stored["strategies"]) == {"grafting", "naive", "independent"}
        assert stored["strategies"]["grafting"]["forgetting"]["mean"] == 0.0
