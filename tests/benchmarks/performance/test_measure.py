"""Peak memory counts what lives at once while a callable runs, and pairs alternate."""

import os
from functools import partial
from pathlib import Path

import measure
import pytest
from memory_runs import MIB, failing, noting, one_after_the_other, side_by_side

on_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc"
)


@on_linux
@pytest.mark.slow
def test_memory_is_that_of_the_tensors_that_live_at_once_and_not_of_the_set_up():
    few = measure.peak_memory(one_after_the_other, 3)
    many = measure.peak_memory(side_by_side, 3)
    assert few.memory == pytest.approx(48 * MIB, rel=0.05)
    assert many.memory == pytest.approx(3 * 48 * MIB, rel=0.05)
    assert (few.result, few.device) == (3, None)


@on_linux
def test_what_fails_in_the_process_fails_here():
    with pytest.raises(ValueError, match="no such model"):
        measure.peak_memory(failing)


def test_pairs_alternate_and_leave_out_the_warm_up():
    calls: list[str] = []
    first, second = measure.pairs(
        lambda: calls.append("a"), lambda: calls.append("b"), repeats=2, warm_up=1
    )
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert (len(first), len(second)) == (2, 2)
    assert min(first + second) >= 0


@pytest.mark.slow
def test_pairs_apart_alternate_in_processes_of_their_own(tmp_path):
    notes = tmp_path / "notes"
    first, second = measure.pairs_apart(
        partial(noting, "a", notes), partial(noting, "b", notes), threads=1, repeats=2, warm_up=1
    )
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert [name for name, *_ in lines] == ["a", "b", "b", "a", "a", "b"]
    processes = {name: process for name, process, _ in lines}
    assert len({*processes.values(), str(os.getpid())}) == 3
    assert {threads for *_, threads in lines} == {"1"}
    assert (len(first), len(second)) == (2, 2)


@pytest.mark.slow
def test_a_process_that_fails_ends_the_pairs(capfd):
    with pytest.raises(RuntimeError, match="a timed process ended"):
        measure.pairs_apart(failing, failing)
    assert "no such model" in capfd.readouterr().err
