"""The parts of the torture test run at the smallest scale, and what they find is summed up."""

import json
import sys

import pytest
import torture_report as report
from benchmark_scripts import run_script


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at through Linux's /proc")
@pytest.mark.parametrize("part", ["storms", "long_life"])
def test_a_part_runs_and_everything_survives(part, tmp_path):
    done = run_script(f"torture_{part}.py", "--scale", "smoke", "--out", tmp_path, code=None)
    found = json.loads((tmp_path / f"{part}.json").read_text(encoding="utf-8"))
    failures = [failure for row in found["rows"] for failure in row["failures"]]
    assert done.returncode == 0, failures or done.stderr
    assert found["part"] == part
    assert all(row["survived"] == row["cases"] > 0 for row in found["rows"])
    assert done.stdout.startswith("| what | cases | survived | outcome |")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are forked")
def test_killed_runs_end_bit_identical_and_finished_cases_are_not_done_again(tmp_path):
    for _ in range(2):
        run_script("torture_kills.py", "--scale", "smoke", "--out", tmp_path)
    found = json.loads((tmp_path / "kills.json").read_text(encoding="utf-8"))
    assert sum(row["survived"] for row in found["rows"]) >= 3
    assert found["identical_runs"] == found["runs"]
    lines = (tmp_path / "kills" / "cases-smoke-0.jsonl").read_text().splitlines()
    assert len(lines) == found["runs"]


def test_parts_that_are_left_out_are_summed_up_as_they_were_found(tmp_path):
    rows = [report.Row("kills", 3000, 2, "a|b\nc", ("one",))]
    report.write_part(tmp_path, "kills", rows, 12.34, machine="mine")
    results = tmp_path / "results"
    run_script("torture.py", "--parts", "", "--out", tmp_path, "--results", results)
    (part,) = json.loads((results / "torture.json").read_text(encoding="utf-8"))["parts"]
    assert (part["part"], part["seconds"], part["machine"]) == ("kills", 12.3, "mine")
    text = (results / "torture.md").read_text(encoding="utf-8")
    assert "2 of 3,000 cases" in text
    assert "| kills | 3,000 | 2 | a\\|b c |\n\n- **kills**: one" in text
    run_script("torture.py", "--parts", "weather", code=2)


def test_a_row_without_cases_or_with_a_failure_is_not_ok():
    assert report.Row("a", 2, 2).ok
    for row in ((0, 0), (2, 1), (2, 2, "", ("why",))):
        assert not report.Row("a", *row).ok
