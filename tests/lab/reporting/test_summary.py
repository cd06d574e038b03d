"""Summaries are means and deviations over seeds, in files of every form."""

import csv
import json
import math

import pytest
from small_results import shifted_results, small_result

from cl_graft.lab.reporting.summary_files import write_summary
from cl_graft.lab.reporting.summary_sections import summary_sections
from cl_graft.lab.results.comparison import Failure, summarize
from cl_graft.lab.results.strategy_statistics import Spread


def test_a_summary_holds_mean_and_sample_deviation_over_seeds():
    other = small_result(seed=1, average_accuracy=0.85, R=[[0.9, None], [0.8, 0.9]])
    row = summarize([small_result(), other], config={}).strategies["naive"]
    assert row.average_accuracy.mean == pytest.approx(0.8)
    assert row.average_accuracy.sd == pytest.approx(math.sqrt(0.005))
    assert row.final["b"].mean == pytest.approx(0.85)
    assert row.bytes_per_task == Spread(10, 0, None, 2)
    assert row.ece.mean == pytest.approx(0.3)
    assert row.forward_transfer == Spread(None, None, None, 0)


def test_a_single_seed_has_no_deviation():
    summary = summarize([small_result()], [Failure("grafting", 0, "no")], config={})
    assert summary.strategies["naive"].average_accuracy.sd is None
    assert summary.failed == [Failure("grafting", 0, "no")]


def test_a_summary_is_written_as_json_with_the_same_names(tmp_path):
    summary = summarize(shifted_results(), config={"steps": 4})
    write_summary(summary, tmp_path)
    stored = json.loads((tmp_path / "summary.json").read_text())
    assert stored["config"] == {"steps": 4}
    stated = stored["strategies"]["naive"]["average_accuracy"]
    assert stated["mean"] == summary.strategies["naive"].average_accuracy.mean
    assert stored["differences"][0]["reference"] == "grafting"


def test_strategies_are_stated_as_a_share_of_independent_fine_tuning():
    best = small_result(strategy="independent", average_accuracy=1.0)
    rows = summarize([small_result(), best], config={}).strategies
    assert rows["naive"].of_independent == 0.75
    assert rows["independent"].of_independent == 1.0


def test_tables_hold_the_summary(tmp_path):
    summary = summarize(shifted_results(), config={})
    write_summary(summary, tmp_path)
    rows = [*csv.DictReader((tmp_path / "summary.csv").read_text().splitlines())]
    for name, stated in summary.strategies.items():
        own = {row["measure"]: row for row in rows if row["strategy"] == name}
        assert float(own["average_accuracy"]["mean"]) == stated.average_accuracy.mean
        assert {f"final {task}" for task in summary.tasks} <= set(own)
    table = (tmp_path / "summary.tex").read_text()
    lines = [line for line in table.splitlines() if line.endswith(r"\\")]
    assert len({line.count("&") for line in lines}) == 1
    assert r"\textbf{61.5 $\pm$ 1.3}" in table
    assert "| grafting | 61.5 ± 1.3 |" in (tmp_path / "summary.md").read_text()


def test_a_named_stream_is_told_with_where_published_results_are():
    config = {"stream": {"name": "long15-order4"}}
    comparison, *_ = summary_sections(summarize(shifted_results(), config=config))
    assert any(
        "cl-graft streams long15-order4 shows its protocol" in one for one in comparison.text
    )
