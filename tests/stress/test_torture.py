"""The parts of the torture test run at the smallest scale, and what they find is summed up."""

import json
import sys

import pytest
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
    if part == "long_life":
        assert (tmp_path / "long_life.png").stat().st_size > 1000


def test_parts_that_are_left_out_are_summed_up_as_they_were_found(tmp_path):
    row = {"what": "kills", "cases": 3, "survived": 2, "outcome": "x", "failures": ["one"]}
    kept = {"part": "kills", "seconds": 1.0, "rows": [row]}
    (tmp_path / "kills.json").write_text(json.dumps(kept))
    (tmp_path / "long_life.png").write_bytes(b"picture")
    results = tmp_path / "results"
    run_script("torture.py", "--parts", "", "--out", tmp_path, "--results", results)
    stored = json.loads((results / "torture.json").read_text(encoding="utf-8"))
    assert [part["part"] for part in stored["parts"]] == ["kills"]
    text = (results / "torture.md").read_text(encoding="utf-8")
    assert "2 of 3 cases" in text
    assert "- **kills**: one" in text
    assert (results / "torture_long_life.png").read_bytes() == b"picture"
    run_script("torture.py", "--parts", "weather", code=2)
