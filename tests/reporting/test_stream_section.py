"""What others published stands in the summary, and in none of its numbers."""

import json
from dataclasses import asdict

import pytest
from configs import config_with
from small_results import shifted_results

from cl_graft.data.streams import STREAMS
from cl_graft.reporting.stream_section import stream_section
from cl_graft.reporting.summary import summarize, write_summary


@pytest.fixture
def config(tmp_path):
    named = {"stream.name": "long15-order4", "data": str(tmp_path), "max_length": 64}
    return config_with(named, tasks="mnli,cb").values()


def test_the_summary_shows_published_rows_and_what_differs(config, tmp_path):
    write_summary(summarize(shifted_results(), config=config), tmp_path, whole=False)
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


def test_scores_by_task_are_shown():
    lines = stream_section(config_with({"stream.name": "table4"}).values())
    assert any("qnli 86.5, ag_news 90.8, sst2_sent 92.5" in line for line in lines)
    assert not any("Otherwise here" in line for line in lines)


def test_streams_without_a_name_and_files_that_are_gone_have_no_section(config):
    assert stream_section({}) == []
    assert stream_section(config_with(tasks="sentiment").values()) == []
    assert stream_section({"stream": {**config["stream"], "name": "gone.yaml"}}) == []
