"""The speed benchmarks run, at the smallest scale, and write what they say they write."""

import json
import statistics
from pathlib import Path

import pytest
from benchmark_scripts import run_script


@pytest.mark.slow
def test_speed_writes_medians_with_their_raw_values(tmp_path: Path) -> None:
    small = ("--shape", "tiny", "--repeats", "2", "--memory-repeats", "1", "--threads", "1")
    run_script("speed.py", *small, "--groups", "steps", "--results", str(tmp_path))
    first = json.loads((tmp_path / "speed-tiny-cpu-fp32.json").read_text())
    raw = first["region_step/full_step/raw"]
    assert len(raw) == 2
    assert first["region_step/full_step"] == statistics.median(raw)
    run_script("speed.py", *small, "--groups", "memory", "--results", str(tmp_path))
    second = json.loads((tmp_path / "speed-tiny-cpu-fp32.json").read_text())
    assert first.items() <= second.items()
    assert "region_memory/full_memory" in second


@pytest.mark.slow
def test_the_crossover_of_the_kernels_is_measured_for_every_shape(tmp_path: Path) -> None:
    run_script("coordinate_gradient.py", "--rows", "4", "--repeats", "1", "--out", str(tmp_path))
    table = json.loads((tmp_path / "coordinate_gradient.json").read_text())["milliseconds"]
    assert len({tuple(row["shape"]) for row in table}) == 4
    assert all(row["dense"] > 0 for row in table)


@pytest.mark.slow
def test_the_profile_adds_up_for_every_variant(tmp_path: Path) -> None:
    run_script("profile_step.py", "--shape", "tiny", "--rounds", "1", "--results", str(tmp_path))
    stored = json.loads((tmp_path / "profile_step.json").read_text())["milliseconds"]
    assert set(stored) == {"full_step", "region_step", "limit"}
    assert stored["full_step"]["aten::mm"] > 0
    page = (tmp_path / "profile_step.md").read_text()
    sums = next(line for line in page.splitlines() if line.startswith("| sum"))
    assert f"{sum(stored['region_step'].values()):.1f}" in sums
