"""Speed and memory, side by side with what a user would pick instead.

    python benchmarks/performance/speed.py                      # everything that a CPU can measure
    python benchmarks/performance/speed.py --groups steps,memory
    python benchmarks/performance/speed.py --device cuda --shape large --autocast

Every ratio is the median over alternating pairs, for training steps in a process each, else in one;
memory is the peak of one fresh process a variant above a baseline taken after imports, model load
and one forward. Writes ``results/speed.json``, a flat object (key -> median, with the single values
under ``KEY/raw``), and ``results/speed.md``. Groups that are not asked for keep the values that the
file has.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from speed_loading import loading
from speed_masks import mask_memory, mask_ratios
from speed_serving import Values, checked_switching, mixed_batches, steps_of_a_stream, switching
from speed_text import TEXT_SHAPES, decode_mixed_batches, text_memory, text_steps
from speed_training import SHAPES, Shape, memory_ratio, step_ratios

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Run:
    """Measurements to make, and their repeats."""

    shape: Shape
    repeats: int
    memory_repeats: int
    threads: int


BARS: Mapping[str, float] = {
    "region_step/full_step": 0.70,
    "region_step/lora_r1_all_linear_step": 1.00,
    "region_step/shira_step": 0.72,
    "region_memory/full_memory": 0.60,
    "region_memory/lora_r1_all_linear_memory": 0.60,
    "mask_step_dense/full_step": 1.10,
    "mask_step_candidates/full_step": 0.85,
    "mask_memory_dense": 2.2,
    "switch/load_state_dict": 0.03,
    "mixed_batch_8_tasks/single_task_batch": 1.15,
    "step_at_task_100/step_at_task_1": 1.05,
    "load_bank_100_tasks/load_model": 0.5,
    "bytes_per_coordinate": 6.5,
    "grafting_stream/naive_stream": 0.80,
    "gpt2_region_step/full_step": 0.70,
    "t5_base_region_step/full_step": 0.70,
    "gpt2_region_memory/full_memory": 0.60,
    "t5_base_region_memory/full_memory": 0.60,
    "gpt2_decoding_8_tasks/one_task": 1.20,
    "t5_base_decoding_8_tasks/one_task": 1.20,
}
"""At most this much."""


def steps(run: Run) -> Values:
    """Time training steps."""
    found: Values = {}
    for a, b, optimizer in (
        ("region_step", "full_step", "sgd"),
        ("limit", "full_step", "sgd"),
        ("region_step", "limit", "sgd"),
        ("region_step", "lora_r1_all_linear_step", "sgd"),
        ("region_step", "lora_r1_query_value_step", "sgd"),
        ("region_step", "shira_step", "sgd"),
        ("region_step", "full_step", "adamw"),
        ("region_step", "lora_r1_all_linear_step", "adamw"),
    ):
        say(f"{a} against {b}, {optimizer}")
        ratios, first, second = step_ratios(
            a, b, run.shape, threads=run.threads, repeats=run.repeats, optimizer=optimizer
        )
        mark = "" if optimizer == "sgd" else f" ({optimizer})"
        found[f"{a}/{b}{mark}"] = ratios
        found.setdefault(f"{a}{mark}, seconds", []).extend(first)
        found.setdefault(f"{b}{mark}, seconds", []).extend(second)
    return found


def memory(run: Run) -> Values:
    """Measure the peak memory of training steps."""
    found: Values = {}
    for other in ("full", "lora_r1_all_linear", "lora_r1_query_value", "limit"):
        say(f"memory of a region against {other}")
        variant = other if other == "limit" else f"{other}_step"
        ratios, first, second = memory_ratio(
            "region_step", variant, run.shape, repeats=run.memory_repeats, threads=run.threads
        )
        found[f"region_memory/{other}_memory"] = ratios
        found.setdefault("region_memory, MB", []).extend(b / 1e6 for b in first)
        found[f"{other}_memory, MB"] = [b / 1e6 for b in second]
    tensors, *_ = memory_ratio(
        "region_step", "full_step", run.shape, repeats=1, threads=run.threads, allocator="exact"
    )
    found["region_memory/full_memory, living tensors alone"] = tensors
    return found


def masks(run: Run) -> Values:
    """Measure mask learning: steps and memory."""
    say("mask learning against a full step")
    found = mask_ratios(run.shape, repeats=run.repeats, threads=run.threads)
    say("memory of mask learning")
    return found | mask_memory(run.shape, repeats=run.memory_repeats, threads=run.threads)


def stream(run: Run) -> Values:
    """Take over what `stream_cost.py` measured."""
    del run
    path = RESULTS / "stream_cost.json"
    key = "grafting_stream/naive_stream"
    return {key: json.loads(path.read_text())[f"{key}/raw"]} if path.exists() else {}


GROUPS: dict[str, Callable[[Run], Values]] = {
    "steps": steps,
    "memory": memory,
    "masks": masks,
    "switching": lambda run: switching(run.shape, repeats=run.repeats),
    "checked_switching": lambda run: checked_switching(run.shape, repeats=run.repeats),
    "late_steps": lambda run: steps_of_a_stream(run.shape, repeats=run.repeats),
    "mixed_batches": lambda run: mixed_batches(run.shape, repeats=run.repeats),
    "loading": lambda run: loading(run.shape, repeats=run.repeats),
    "text_steps": lambda run: text_steps(TEXT_SHAPES, threads=run.threads, repeats=run.repeats),
    "text_memory": lambda run: text_memory(
        TEXT_SHAPES, threads=run.threads, repeats=run.memory_repeats
    ),
    "text_decoding": lambda run: decode_mixed_batches(
        tuple(replace(shape, rows=run.shape.rows) for shape in TEXT_SHAPES), repeats=run.repeats
    ),
    "stream": stream,
}


ROWS: Mapping[str, int] = {"mixed_batches": 32, "text_decoding": 32}
"""Rows of a batch, where it is not the shape's."""


def main() -> None:
    """Measure the groups asked for, one after the other; each is written when it is done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", default=",".join(GROUPS), help="by comma")
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--autocast", action="store_true", help="bf16")
    parser.add_argument("--repeats", type=int, default=21, help="pairs")
    parser.add_argument("--memory-repeats", type=int, default=7, help="processes a variant")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    asked = given.groups.split(",")
    if unknown := [name for name in asked if name not in GROUPS]:
        parser.error(f"no group {unknown[0]!r}; known: {', '.join(GROUPS)}")
    torch.set_num_threads(given.threads)
    shape = replace(SHAPES[given.shape], device=given.device, autocast=given.autocast)
    plain = (given.shape, given.device, given.autocast) == ("base", "cpu", False)
    name = "speed"
    if not plain:
        name = f"speed-{given.shape}-{given.device}-{'bf16' if given.autocast else 'fp32'}"
        asked = [group for group in asked if group != "stream"]  # of MiniLM on a CPU
    path = given.results / f"{name}.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    for group in asked:
        say(f"{group}:")
        own = replace(shape, rows=ROWS.get(group, shape.rows))
        run = Run(own, given.repeats, given.memory_repeats, given.threads)
        for key, raw in GROUPS[group](run).items():
            stored[key] = statistics.median(raw)
            stored[f"{key}/raw"] = raw
        if group != "stream":
            stored[f"machine/{group}"] = machine(run, group)
        given.results.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(render(stored), encoding="utf-8")
    sys.stdout.write(render(stored))


def machine(run: Run, group: str) -> str:
    """Say where and how the values of a group were measured."""
    shape = run.shape
    texts = " and ".join(one.name for one in TEXT_SHAPES)
    models = texts if group.startswith("text") else f"RoBERTa {shape.name}"
    where = torch.cuda.get_device_name() if shape.device == "cuda" else platform.machine()
    return (
        f"{where}, {os.cpu_count()} cores, {run.threads} threads, torch {torch.__version__}, "
        f"{models} with random weights, batch {shape.rows} × {shape.tokens} tokens, "
        f"{'bf16 autocast' if shape.autocast else 'fp32'}, region of {shape.coordinates:,}"
    )


def render(stored: Mapping[str, object]) -> str:
    """Return the values as a Markdown table, with their bars."""
    lines = [
        "| | median | from | to | pairs | bar | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for key, value in stored.items():
        raw = stored.get(f"{key}/raw")
        if not isinstance(value, float | int) or not isinstance(raw, list):
            continue
        bar = BARS.get(key)
        verdict = "" if bar is None else "met" if value <= bar else "missed"
        lines.append(
            f"| {key} | {value:.3g} | {min(raw):.3g} | {max(raw):.3g} | {len(raw)} "
            f"| {'' if bar is None else f'≤ {bar:.2f}'} | {verdict} |"
        )
    places = dict.fromkeys(str(v) for k, v in stored.items() if k.startswith("machine/"))
    return "\n".join([*lines, "", *places]) + "\n"


def say(text: str) -> None:
    """Tell on the terminal what is being measured."""
    sys.stderr.write(f"{text} …\n")


if __name__ == "__main__":
    main()
