"""What others published stands in the summary, and in none of its numbers."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from configs import config_with
from small_results import shifted_results

from cl_graft.data.streams import STREAMS
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.sections import make_sections
from cl_graft.lab.reporting.summary_files import write_summary
from cl_graft.lab.results.stored_runs import StoredRun
from cl_graft.lab.results.summary import summarize


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
