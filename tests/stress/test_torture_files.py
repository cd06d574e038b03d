"""Torture's part on files runs, finds nothing, and goes on from what is finished."""

import json

import pytest
from benchmark_scripts import run_script


@pytest.mark.slow
def test_no_mutated_file_is_let_in_and_no_flip_is_missed(tmp_path):
    for _ in range(2):
        done = run_script("torture_files.py", "--scale", "smoke", "--out", tmp_path)
    told = json.loads((tmp_path / "files.json").read_text())
    assert told["part"] == "files"
    assert all(row["cases"] == row["survived"] > 0 for row in told["rows"])
    assert "mutated graft files:" not in done.stderr  # the chunks of the first start were read


@pytest.mark.slow
def test_reproducibility_is_measured(tmp_path):
    run_script("reproducibility.py", "--scale", "smoke", "--results", tmp_path)
    told = json.loads((tmp_path / "reproducibility-smoke.json").read_text())
    lines = {line["what"]: line for line in told["lines"]}
    assert lines["trained again, 1 thread"]["same_bits"]
    assert lines["the same once more"]["same_bits"]
    assert not lines["bf16 autocast"]["same_bits"]
