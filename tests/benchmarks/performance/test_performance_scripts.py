"""The benchmarks of speed, memory and scale run, at the smallest scale, and write what they say."""

from __future__ import annotations

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
    others = "memory,switching,late_steps"
    run_script("speed.py", *small, "--groups", others, "--results", str(tmp_path))
    second = json.loads((tmp_path / "speed-tiny-cpu-fp32.json").read_text())
    assert first.items() <= second.items()
    assert {"region_memory/full_memory", "switch/load_state_dict"} <= set(second)


@pytest.mark.slow
def test_steps_of_language_models_are_measured_beside_a_lora(tmp_path: Path) -> None:
    ways = ("LoRA", "region, scattered", "region, columns")
    small = ("--shape", "tiny", "--device", "cpu", "--tokens", "32", "--ways", *ways)
    once = ("--rounds", "1", "--steps", "2", "--threads", "1", "--results", tmp_path)
    done = run_script("gpu.py", *small, *once)
    stored = json.loads((tmp_path / "gpu-tiny-cpu.json").read_text())
    for steps in stored["steps"].values():
        assert tuple(steps) == ways
        assert all(values["seconds"][0] > 0 for values in steps.values())
    assert {"switch, ms", "mixed_batch_8_tasks, ms"} <= set(stored["serving"])
    assert (tmp_path / "gpu-tiny-cpu.md").read_text() == done.stdout
    assert "| no | LoRA |" in done.stdout


@pytest.mark.slow
def test_the_crossover_of_the_kernels_is_measured_for_every_shape(tmp_path: Path) -> None:
    run_script("coordinate_gradient.py", "--rows", "4", "--repeats", "1", "--out", str(tmp_path))
    table = json.loads((tmp_path / "coordinate_gradient.json").read_text())["milliseconds"]
    assert len({tuple(row["shape"]) for row in table}) == 4
    assert all(row["dense"] > 0 for row in table)


def test_a_stream_is_timed_beside_a_naive_one(tiny_bert, tmp_path):
    sets = (
        *(f"model.name={tiny_bert}", "stream.tasks=[scope, topic]", "fine_tuning.steps=2"),
        *("stream.shots=8", "stream.max_test=8", "stream.max_length=24", "grafting.mask_batch=8"),
    )
    run_script(
        *("stream_cost.py", "--scale", "smoke", "--seeds", "0"),
        *("--out", tmp_path / "runs", "--results", tmp_path),
        *(word for value in sets for word in ("--set", value)),
    )
    stored = json.loads((tmp_path / "stream_cost-smoke.json").read_text())
    table = (tmp_path / "stream_cost-smoke.md").read_text()
    assert stored["grafting_stream/naive_stream"] > 0
    assert "| 0 | grafting |" in table
    assert stored["seeds"]["0"]["grafting"]["backward_transfer"] == 0


@pytest.mark.slow
def test_recipes_are_counted_beside_naive_fine_tuning(tiny_bert, tmp_path):
    sets = (f"model.name={tiny_bert}", "fine_tuning.steps=5", "grafting.mask_batch=8")
    asked = ("--rounds", 1, "--threads", 1, "--results", tmp_path)
    done = run_script("recipe_cost.py", *asked, *(word for s in sets for word in ("--set", s)))
    stored = json.loads((tmp_path / f"recipe_cost-{tiny_bert.name}.json").read_text())["recipes"]
    rows = {name: runs[0]["rows"] for name, runs in stored.items()}
    naive, lora, short, mask = rows.values()
    assert naive == 40
    assert naive < lora <= short < mask
    assert (tmp_path / f"recipe_cost-{tiny_bert.name}.md").read_text() == done.stdout


@pytest.mark.slow
def test_rows_of_several_tasks_are_timed_in_both_ways(tmp_path):
    asked = ("--tokens", "32", "--tasks", "8", "--rounds", 4, "--results", tmp_path)
    run_script("row_differences.py", *asked)
    table = (tmp_path / "row_differences.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table[2:4]] == ["| float32", "| bfloat16"]


@pytest.mark.slow
def test_forgetting_a_task_writes_no_file_of_another(tiny_bert, tmp_path):
    done = run_script("large_bank.py", "--tasks", "4", "--model", tiny_bert, "--results", tmp_path)
    stored = json.loads((tmp_path / "large_bank.json").read_text())
    assert stored["tasks"] == 4
    wrote = [row["many"] for row in stored["rows"] if row["what"].startswith("files of other")]
    assert wrote == ["0", "0"]
    assert (tmp_path / "large_bank.md").read_text() == done.stdout


@pytest.mark.slow
def test_the_cost_of_checkpoints_is_measured_for_every_strategy(tiny_bert, tmp_path):
    small = ("--scale", "smoke", "--repeats", 1)
    done = run_script("checkpoint_cost.py", *small, "--model", tiny_bert, "--results", tmp_path)
    stored = json.loads((tmp_path / "checkpoint_cost-smoke.json").read_text())
    assert [row["strategy"] for row in stored["rows"]] == ["grafting", "naive"]
    assert all(row["checkpoints a run"] >= 1 for row in stored["rows"])
    assert (tmp_path / "checkpoint_cost-smoke.md").read_text() == done.stdout
