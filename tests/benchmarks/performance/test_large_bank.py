"""The script that times banks of many tasks runs, and counts what `forget` wrote."""

from __future__ import annotations

import json

import pytest
from benchmark_scripts import run_script


@pytest.mark.slow
def test_forgetting_a_task_writes_no_file_of_another(tiny_bert, tmp_path):
    done = run_script("large_bank.py", "--tasks", "4", "--model", tiny_bert, "--results", tmp_path)
    stored = json.loads((tmp_path / "large_bank.json").read_text())
    assert stored["tasks"] == 4
    wrote = [row["many"] for row in stored["rows"] if row["what"].startswith("files of other")]
    assert wrote == ["0", "0"]
    assert (tmp_path / "large_bank.md").read_text() == done.stdout
