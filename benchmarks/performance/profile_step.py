"""Time of a training step by operator, for a region, a full step and the limit.

    python benchmarks/performance/profile_step.py

The variants and shapes are those of ``speed.py``; torch's profiler counts what every operator takes
itself, in rounds that alternate between the variants. Writes ``results/profile_step.json`` and
``.md``. The profiler's own cost is in the figures: sums are larger than steps timed without it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from speed_training import SHAPES, VARIANTS, Shape, Step
from torch.profiler import ProfilerActivity, profile

RESULTS = Path(__file__).parents[1] / "results"
PROFILED = ("full_step", "region_step", "limit")
SHOWN = 12
"""Operators with a row of their own."""


def main() -> None:
    """Profile and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    stored = {
        "milliseconds": measure(SHAPES[given.shape], rounds=given.rounds),
        "rounds": given.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {given.threads} threads, "
        f"torch {torch.__version__}",
        "shape": f"RoBERTa {given.shape} with random weights, 8 × 64 tokens, fp32, SGD",
    }
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "profile_step.json").write_text(json.dumps(stored, indent=1) + "\n")
    page = f"{render(stored['milliseconds'])}\n{stored['shape']}; {stored['machine']}\n"
    (given.results / "profile_step.md").write_text(page)
    sys.stdout.write(page)


def measure(shape: Shape, *, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median milliseconds a step that operators take themselves, by variant."""
    steps = {name: VARIANTS[name](shape, "sgd") for name in PROFILED}
    for step in steps.values():
        step()
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in PROFILED}
    for _ in range(rounds):
        for name, step in steps.items():
            seen[name].append(_profile(step))
    return {
        name: {
            operator: statistics.median(times.get(operator, 0.0) for times in taken)
            for operator in sorted({operator for times in taken for operator in times})
        }
        for name, taken in seen.items()
    }


def _profile(step: Step) -> dict[str, float]:
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    return {event.key: event.self_cpu_time_total / 1000 for event in found.key_averages()}


def render(times: Mapping[str, Mapping[str, float]]) -> str:
    """Return the table in Markdown: the dearest operators of the region's step, then the rest."""
    order = sorted(times["region_step"], key=lambda operator: -times["region_step"][operator])
    shown = order[:SHOWN]
    lines = [
        f"| operator, ms a step | {' | '.join(name.replace('_', ' ') for name in PROFILED)} |",
        f"| --- | {' | '.join('---:' for _ in PROFILED)} |",
    ]
    for operator in shown:
        row = " | ".join(f"{times[name].get(operator, 0.0):.1f}" for name in PROFILED)
        lines.append(f"| `{operator}` | {row} |")
    for label, chosen in (
        ("all others", lambda operator: operator not in shown),
        ("sum", lambda operator: True),
    ):
        sums = (sum(t for o, t in times[name].items() if chosen(o)) for name in PROFILED)
        lines.append(f"| {label} | {' | '.join(f'{total:.1f}' for total in sums)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
