"""Torture's part on files runs, finds nothing, and goes on from what is finished."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_no_mutated_file_is_let_in_and_no_flip_is_missed(tmp_path):
    script = ROOT / "benchmarks" / "torture_files.py"
    command = [sys.executable, str(script), "--scale", "smoke", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "files.json").read_text())
    assert told["part"] == "files"
    assert all(row["cases"] == row["survived"] > 0 for row in told["rows"])
    assert "mutated graft files:" not in done.stderr  # the chunks of the first start were read


@pytest.mark.slow
def test_reproducibility_is_measured(tmp_path):
    script = ROOT / "benchmarks" / "reproducibility.py"
    command = [sys.executable, str(script), "--scale", "smoke", "--results", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    told = json.loads((tmp_path / "reproducibility-smoke.json").read_text())
    lines = {line["what"]: line for line in told["lines"]}
    assert lines["trained again, 1 thread"]["same_bits"]
    assert lines["the same once more"]["same_bits"]
    assert not lines["bf16 autocast"]["same_bits"]
