"""Named streams on the command line: listed, shown whole, and used."""

import json

from tiny_runs import cl_graft, cl_graft_each

OWN = """
title: Two tasks.
source: Written for this test.
tasks: {scope: null, topic: null}
protocol: {shots: 6, max_test: 12}
pitfalls: [Both are made up.]
"""


def test_streams_are_listed_and_shown():
    every, one, wrong = cl_graft_each(
        [["streams", "--json"], ["streams", "long15-order4"], ["streams", "long15-order7"]]
    )
    listed = {row["name"]: row for row in json.loads(every.out)}
    assert {"built_in", "table4", "clinc150-domains"} <= set(listed)
    assert listed["long15-order4"]["tasks"][:2] == ["mnli", "cb"]
    assert "Tasks: mnli → cb → wic" in " ".join(one.out.split())
    assert "77.9, mean over orders 4-6" in " ".join(one.out.split())
    assert "Take care: " in one.out
    assert wrong.code == 2
    assert "unknown stream 'long15-order7': did you mean 'long15-order" in wrong.err


def test_a_stream_of_ones_own_is_compared_with_its_pitfalls_told(tiny_bert, settings, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    short = [*settings[2:6], *settings[8:]]  # shots and max-test are the stream's
    told = cl_graft(
        "compare", "--stream", file, "--strategies", "naive", "--model", tiny_bert, *short,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert told.code == 0, told
    assert told.err.count("Both are made up.") == 1
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert f"cl-graft streams {file} shows its protocol" in summary
    stored = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(stored["strategies"]) == ["naive"]
    assert stored["config"]["stream"]["shots"] == 6
