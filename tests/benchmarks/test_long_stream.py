"""The benchmark of long streams runs, at the smallest scale."""

import json
import sys

import pytest
from benchmark_scripts import run_script


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc")
def test_a_long_stream_forgets_nothing_and_goes_on_from_what_is_learned(tmp_path):
    stored = {}
    places = ("--out", tmp_path / "run", "--results", tmp_path / "results")
    for _ in range(2):
        done = run_script("long_stream.py", "--scale", "smoke", *places)
        stored = json.loads((tmp_path / "results" / "long_stream-smoke.json").read_text())
        assert all(stored["passed"].values()), done.stdout
        assert stored["memory"]["processes"] == 1
    assert str(tmp_path) not in json.dumps(stored)
    assert stored["tasks"] == ["shared-50-0", "shared-50-11", 12]
    assert (tmp_path / "results" / "long_stream-smoke.png").stat().st_size > 1000
