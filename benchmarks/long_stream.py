"""A stream of 100 tasks of words: what is forgotten, what it costs, and whether it stays so.

    python benchmarks/long_stream.py --scale cpu      # RoBERTa-base's shape, 100 tasks, 0.01 %
    python benchmarks/long_stream.py --scale tiny     # a tiny model, 100 tasks, learned well
    python benchmarks/long_stream.py --scale smoke    # the same, 12 tasks: does it run?

Grafting learns 100 tasks that divide the same words in two (`word_tasks.py` in tests/stress; half
of the words lie alike in all) one after the other, each tested together with all before it; then
the bank is verified in a model made anew. After every task the process is asked what memory it
holds. The model of ``--scale cpu`` has the 85,054,464 graftable coordinates of RoBERTa-base and
random weights, and its rows and steps are few, so its accuracies say little; all else is as it
would be with the published weights. Writes ``results/long_stream-<scale>.json``, ``.md`` and
``.png``. Started again it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from cl_graft.banks.inspect import inspect_bank
from cl_graft.banks.verify import verify
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.lab.results.run_results import RunResult
from cl_graft.runtime.progress import Step
from cl_graft.settings import ExperimentConfig, config_from, override_, to_nested
from cl_graft.storage import load_bank

sys.path.append(str(Path(__file__).parents[1] / "tests" / "stress"))
from tiny_checkpoint import roberta_base_shape, tiny_checkpoint
from word_tasks import write_word_tasks

RESULTS = Path(__file__).parent / "results"
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "tasks": 12,
        "grafting.density": 0.01,
        "stream.shots": 8,
        "fine_tuning.steps": 4,
        "grafting.mask_batch": 16,
        "stream.max_length": 12,
        "stream.max_test": 20,
    },
    "tiny": {
        "tasks": 100,
        "grafting.density": 0.005,
        "stream.shots": 64,
        "fine_tuning.steps": 80,
        "fine_tuning.batch_size": 16,
        "grafting.lr": 1.0,
        "grafting.mask_batch": 16,
        "stream.max_length": 12,
        "stream.max_test": 50,
    },
    "cpu": {
        "tasks": 100,
        "grafting.density": 1e-4,
        "stream.shots": 8,
        "fine_tuning.steps": 6,
        "fine_tuning.batch_size": 4,
        "grafting.mask_batch": 8,
        "stream.max_length": 8,
        "stream.max_test": 4,
    },
}
COMMON: dict[str, Any] = {
    "preset": "fast",
    "grafting.mask_steps": 1,
    "stream.max_dev": 16,
    "fine_tuning.evaluations": 0,
    "model.device": "cpu",
}
FROM_TASK = 10
MOST_BYTES = 10_000_000
FLAT = 0.05


def main() -> None:
    """Learn what is not learned yet, verify, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--out", type=Path, help="where the run goes; runs/long_stream-<scale>")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    out = given.out or Path("runs") / f"long_stream-{given.scale}"
    config = make_config(given.scale, out, given.sets)
    result = learn(config, out)
    stored = summary(config, result, out)
    sets = [part for text in given.sets for part in ("--set", text)]
    words = ["python", "benchmarks/long_stream.py", "--scale", given.scale, *sets]
    stored["command"] = shlex.join(words)
    given.results.mkdir(parents=True, exist_ok=True)
    name = f"long_stream-{given.scale}"
    (given.results / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    (given.results / f"{name}.md").write_text(render(stored))
    draw(stored, given.results / f"{name}.png")
    sys.stdout.write(render(stored))


def make_config(scale: str, out: Path, sets: Sequence[str]) -> ExperimentConfig:
    """Return the settings of a scale; its model is made where it is missing."""
    model = roberta_base_shape(out) if scale == "cpu" else tiny_checkpoint(out)
    values: dict[str, Any] = {**COMMON, **SCALES[scale], "model.name": str(model)}
    numbers = range(values.pop("tasks"))
    values["stream.data"] = str(write_word_tasks(out / "data", numbers, share=0.5))
    values["stream.tasks"] = [f"words-{number}" for number in numbers]
    settings = to_nested(values)
    for override in sets:
        override_(settings, override)
    return config_from(settings)


def learn(config: ExperimentConfig, out: Path) -> RunResult:
    """Run the stream, or the rest of it, and note after every task what the process holds."""
    notes = out / "memory.jsonl"

    def look(step: Step) -> None:
        if step.phase == "evaluate" and step.step == step.steps:
            row = {"task": step.task, "process": os.getpid(), "memory": living()}
            with notes.open("a") as file:
                file.write(json.dumps(row) + "\n")

    return run(config, strategy="grafting", seed=0, out=out, progress=look)


def living() -> int:
    """Return the resident bytes of this process once malloc gave back what is free.

    Without that they fall by a third now and then, whenever malloc does so by itself.
    """
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def read_memory(result: RunResult, out: Path) -> dict[str, Any]:
    """Return what the process held after every task, and how far from flat that is.

    A stream that was taken up by another process is compared process by process.
    """
    rows = [json.loads(line) for line in (out / "memory.jsonl").read_text().splitlines()]
    last = {row["task"]: row for row in rows}  # what was killed is learned again
    first: dict[int, int] = {}
    off: list[float] = []
    for task in result.tasks[FROM_TASK - 1 :]:
        row = last[task]
        start = first.setdefault(row["process"], row["memory"])
        off.append(row["memory"] / start - 1)
    return {
        "bytes": [last[task]["memory"] for task in result.tasks],
        "processes": len({row["process"] for row in last.values()}),
        "least": min(off),
        "most": max(off),
    }


def summary(config: ExperimentConfig, result: RunResult, out: Path) -> dict[str, Any]:
    """Verify the bank and put together what is to be known."""
    folder = run_folder(out, "grafting", 0)
    bank = folder / "bank"
    report, found = verify(folder), inspect_bank(bank)
    size = sum(path.stat().st_size for path in bank.rglob("*") if path.is_file())
    made = dict.fromkeys(("model.name", "stream.data"), "made here")
    memory = read_memory(result, out)
    hashes = result.logit_hashes.values()
    same_logits = all(h["learned"] == h["end"] for h in hashes)
    return {
        "tasks": [result.tasks[0], result.tasks[-1], len(result.tasks)],
        "coordinates": load_bank(bank).layout.total,
        "forgetting": result.forgetting,
        "same_logits": same_logits,
        "verified": report.ok,
        "verified_bits": all(e.weights == e.recorded_batch == "same bits" for e in report.entries),
        "bank_bytes": size,
        "bytes_a_task": list(result.bytes.values()),
        "memory": memory,
        "learned": [row[i] for i, row in enumerate(result.R)],
        "end": result.R[-1],
        "lost": [entry.owned_before for entry in found.entries],
        "seconds_a_task": [sum(phases.values()) for phases in result.seconds.values()],
        "passed": {
            "forgetting is exactly 0": result.forgetting == 0.0 and same_logits,
            "verify passes": report.ok,
            f"memory within 5 % from task {FROM_TASK} on": max(-memory["least"], memory["most"])
            <= FLAT,
            "bank below 10 MB": size < MOST_BYTES,
        },
        "config": config.with_values(made).shared_values(),
        "versions": result.versions,
        "machine": result.machine,
    }


def render(stored: Mapping[str, Any]) -> str:
    """Return the outcome as Markdown."""
    memory, (first, last, count) = stored["memory"], stored["tasks"]
    mean = [sum(stored[name]) / count for name in ("learned", "end")]
    rows = [
        ("tasks", f"{count}, {first} to {last}"),
        ("graftable coordinates", f"{stored['coordinates']:,}"),
        ("forgetting", f"{stored['forgetting']}"),
        ("logits at the end", "the same bits" if stored["same_logits"] else "DIFFERENT"),
        ("verify", "same bits" if stored["verified_bits"] else str(stored["verified"])),
        ("bank", f"{stored['bank_bytes']:,} bytes"),
        ("memory of the process", f"{memory['bytes'][-1] / 1e6:,.0f} MB at the end"),
        (
            f"from task {FROM_TASK} on",
            f"{memory['least']:+.1%} to {memory['most']:+.1%} ({memory['processes']} processes)",
        ),
        ("average accuracy, learned and at the end", f"{mean[0]:.3f}, {mean[1]:.3f}"),
        ("seconds a task", f"{sum(stored['seconds_a_task']) / count:.1f}"),
    ]
    lines = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += [
        f"{'Holds' if good else 'DOES NOT HOLD'}: {name}."
        for name, good in stored["passed"].items()
    ]
    return "\n".join(lines) + "\n"


def draw(stored: Mapping[str, Any], path: Path) -> None:
    """Draw memory, the bank and accuracy over the stream."""
    from matplotlib.figure import Figure

    places = range(1, stored["tasks"][2] + 1)
    figure = Figure(figsize=(7, 7), layout="constrained")
    memory, bank, scores = figure.subplots(3, sharex=True)
    memory.plot(places, [value / 1e6 for value in stored["memory"]["bytes"]])
    most = max(stored["memory"]["bytes"]) / 1e6
    memory.set(ylabel="MB of the process", ylim=(0, 1.2 * most))
    total, sums = 0, []
    for value in stored["bytes_a_task"]:
        total += value
        sums.append(total / 1e6)
    bank.plot(places, sums)
    bank.axhline(MOST_BYTES / 1e6, linestyle=":", color="grey")
    bank.set(ylabel="MB of the entries")
    scores.plot(places, stored["learned"], ".", label="when learned")
    scores.plot(places, stored["end"], "o", fillstyle="none", label="at the end")
    scores.set(xlabel="task", ylabel="accuracy", ylim=(0, 1.02))
    scores.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
