"""A run whose config has no parts yet, as 0.1.0 wrote it in November 2026, is read and reported.

It was made at commit b3507cbb by ``cl-graft run stream.yaml --strategy naive --out old_run`` of the
tasks sentiment and topic: MiniLM, 8 rows per class, 3 steps of 8 rows, 20 test rows, 24 tokens.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cl_graft.banks.file_checks import read_run_config
from cl_graft.cli.report import report_command
from cl_graft.lab.results.stored_runs import find_runs

OLD = Path(__file__).parent / "fixtures" / "old_run"


def test_its_results_and_settings_are_read():
    (run,) = find_runs([OLD])
    assert (run.result.strategy, run.result.seed, list(run.result.tasks)) == (
        "naive",
        0,
        ["sentiment", "topic"],
    )
    assert run.result.R == [[0.4, None], [0.4, 0.4]]
    config = read_run_config(run.folder, run.result)
    assert (config.stream.shots, config.stream.max_length) == (8, 24)
    assert (config.fine_tuning.steps, config.fine_tuning.batch_size) == (3, 8)


def test_a_report_is_made_of_it(tmp_path):
    folder = shutil.copytree(OLD, tmp_path / "old")
    report_command([folder], out=tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert all(task in page for task in ("sentiment", "topic"))
    stored = json.loads((OLD / "naive" / "seed0" / "results.json").read_text())
    assert f"{100 * stored['average_accuracy']:.1f}" in page
