"""Summaries are means and deviations over seeds, and what others published is in none of them."""

import csv
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from configs import config_with
from small_results import shifted_results, small_result

from cl_graft.data.streams import STREAMS
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.sections import make_sections
from cl_graft.lab.reporting.summary_files import write_summary
from cl_graft.lab.results.comparison import Failure, summarize
from cl_graft.lab.results.stored_runs import StoredRun
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


@pytest.fixture
def config(tmp_path):
    named = {"stream.name": "long15-order4", "data": str(tmp_path), "max_length": 64}
    return config_with(named, tasks="mnli,cb").values()


def test_the_summary_shows_published_rows_and_what_differs(config, tmp_path):
    write_summary(summarize(shifted_results(), config=config), tmp_path)
    text = (tmp_path / "summary.md").read_text()
    section = text[text.index("## The stream long15-order4") :]
    assert "| ProgPrompt | T5-large | 77.9, mean over orders 4-6 | yes |" in section
    assert "- Otherwise here: 2 of the 15 tasks" in section
    assert "- Otherwise here: max_length 64 in place of 512" in section
    for pitfall in STREAMS["long15-order4"].pitfalls:
        assert pitfall[:30] in section


def test_published_rows_enter_no_number(config):
    named = asdict(summarize(shifted_results(), config=config))
    without = asdict(summarize(shifted_results(), config={}))
    for both in (named, without):
        del both["config"]
    assert json.dumps(named) == json.dumps(without)


def sections_of(config) -> dict:
    results = [replace(result, config=config) for result in shifted_results()]
    runs = tuple(StoredRun(Path("run"), result) for result in results)
    data = ReportData((), runs, summarize(results, config=config), ("command",))
    return {section.name: section for section in make_sections(data)}


def test_a_report_shows_published_rows_apart_from_its_own(config):
    sections, without = sections_of(config), sections_of({})
    ((file, table),) = sections["named-stream"].tables
    assert (file, table.sortable) == ("published", False)
    assert "Published by others" in table.caption
    rows = [[cell.text for cell in row] for row in table.rows]
    assert ["ProgPrompt", "T5-large", "77.9, mean over orders 4-6", "yes"] in [r[:4] for r in rows]
    assert not any(cell.best or cell.value is not None for row in table.rows for cell in row)
    assert "They enter no mean" in sections["named-stream"].text[0]
    assert "Otherwise here: 2 of the 15 tasks" in sections["named-stream"].lines
    assert sections["comparison"].tables == without["comparison"].tables
    assert "named-stream" not in without
    gone = {"stream": {**config["stream"], "name": "gone.yaml"}}
    assert "named-stream" not in sections_of(gone)
    named = sections_of(config_with({"stream.name": "table4"}).values())["named-stream"]
    table = dict(named.tables)["published"]
    assert any("qnli 86.5, ag_news 90.8, sst2_sent 92.5" in row[2].text for row in table.rows)
