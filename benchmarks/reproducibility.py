"""Changes of bits by threads, batches, precision and device, and their sizes.

A stream is learned twice with the same seed, and once more with another number of threads; then
the first bank answers the same test rows in other ways. Every line says whether bits were the same,
the largest difference of a logit, and how many rows got another label.

    python benchmarks/reproducibility.py                # MiniLM, built-in tasks, minutes
    python benchmarks/reproducibility.py --scale smoke  # does it run?

Writes ``benchmarks/results/reproducibility.json`` and ``.md``. With a GPU, it answers there, too.
"""

from __future__ import annotations

import argparse
import copy
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.banks.open_bank import OpenBank, open_bank
from cl_graft.data import encode
from cl_graft.grafts.bank import GraftBank
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.lab.results.run_results import machine
from cl_graft.settings import ExperimentConfig, config_from, to_nested
from cl_graft.settings.run_files import versions
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage import load_bank

sys.path.append(str(Path(__file__).parents[1] / "tests" / "stress"))
from tiny_checkpoint import tiny_checkpoint

RESULTS = Path(__file__).parent / "results"
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "stream.shots": 8,
        "fine_tuning.steps": 4,
        "stream.max_test": 24,
        "stream.max_dev": 16,
        "grafting.mask_steps": 2,
        "grafting.mask_batch": 16,
        "grafting.density": 0.01,
    },
    "cpu": {
        "stream.shots": 128,
        "fine_tuning.steps": 100,
        "stream.max_test": 300,
        "stream.max_dev": 64,
        "grafting.mask_steps": 4,
    },
}
LENGTH = 64


@dataclass(frozen=True)
class Line:
    """Outcome of one change."""

    what: str
    same_bits: bool
    difference: float
    flipped: int
    rows: int
    detail: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--model", help="default minilm; a tiny random BERT for smoke")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        smoke = asked.scale == "smoke" and asked.model is None
        model = str(tiny_checkpoint(Path(folder))) if smoke else asked.model or "minilm"
        values = {"stream.tasks": ["scope", "topic"], "model.name": model, "model.device": "cpu"}
        config = config_from(
            to_nested({**SCALES[asked.scale], **values, "stream.max_length": LENGTH})
        )
        lines = measure(config, Path(folder))
    name = "reproducibility" if asked.scale == "cpu" else f"reproducibility-{asked.scale}"
    command = shlex.join(["python", "benchmarks/reproducibility.py", *sys.argv[1:]])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stored = {
        "lines": [asdict(line) for line in lines],
        "config": config.with_values({"model.name": "tiny" if smoke else model}).shared_values(),
        "versions": versions(device),
        "machine": machine(device),
        "command": command,
    }
    asked.results.mkdir(parents=True, exist_ok=True)
    (asked.results / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    (asked.results / f"{name}.md").write_text(table(lines))
    sys.stdout.write(table(lines))


def measure(config: ExperimentConfig, out: Path) -> list[Line]:
    """Train three times, and answer in every way."""
    banks = {}
    for name, threads in (("first", 1), ("again", 1), ("two threads", 2)):
        with on_threads(threads):
            run(config, strategy="grafting", seed=0, out=out / name)
        banks[name] = run_folder(out / name, "grafting", 0) / "bank"
        print(f"trained: {name}", file=sys.stderr)
    opened = open_bank(banks["first"])
    asked = [load_rows(opened, config, position) for position in range(len(opened.bank))]
    reference = [plain(opened, rows, position) for position, rows in enumerate(asked)]
    first = load_bank(banks["first"])
    lines = []
    for name, what in (("again", "trained again, 1 thread"), ("two threads", "trained, 2 threads")):
        other = open_bank(banks[name])
        logits = [plain(other, rows, position) for position, rows in enumerate(asked)]
        same = all(
            a.owned.same_bits(b.owned)
            for a, b in zip(first.entries, other.bank.entries, strict=True)
        )
        lines.append(line(what, reference, logits, same=same, detail=regions(first, other.bank)))
    for what, way in ways():
        print(what, file=sys.stderr)
        logits = [way(opened, rows, position) for position, rows in enumerate(asked)]
        lines.append(line(what, reference, logits))
    return lines


Way = Callable[[OpenBank, Tensor, int], Tensor]


def ways() -> Iterator[tuple[str, Way]]:
    """Yield how the rows are asked; the reference is 1 thread, batches of 64 rows, fp32."""
    yield "the same once more", plain
    yield "2 threads", lambda o, rows, p: on(2, o, rows, p)
    yield "batches of 1 row", lambda o, rows, p: plain(o, rows, p, batch=1)
    yield "batches of 7 rows", lambda o, rows, p: plain(o, rows, p, batch=7)
    yield "other rows in the batch", predict_shuffled
    yield "precision bf16", in_bf16
    yield "parameters in bf16", lambda o, rows, p: predict_converted(o, rows, p, torch.bfloat16)
    yield "parameters in fp16", lambda o, rows, p: predict_converted(o, rows, p, torch.float16)
    if torch.cuda.is_available():
        yield "on the GPU, fp32", on_gpu
        yield "on the GPU, fp32, once more", on_gpu
        yield "on the GPU, TF32", lambda o, rows, p: on_gpu(o, rows, p, tf32=True)


def plain(opened: OpenBank, rows: Tensor, position: int, *, batch: int = 64) -> Tensor:
    return torch.cat([opened.logits(part, position) for part in rows.split(batch)])


def on(threads: int, opened: OpenBank, rows: Tensor, position: int) -> Tensor:
    with on_threads(threads):
        return plain(opened, rows, position)


def predict_shuffled(opened: OpenBank, rows: Tensor, position: int) -> Tensor:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    answered = plain(opened, rows[order], position)
    return answered[order.argsort()]


def in_bf16(opened: OpenBank, rows: Tensor, position: int) -> Tensor:
    """Compute the matrix products of the model in bf16."""
    model = opened.loaded.model
    model.precision = "bf16"
    try:
        return plain(opened, rows, position)
    finally:
        model.precision = "fp32"


def predict_converted(opened: OpenBank, rows: Tensor, position: int, dtype: torch.dtype) -> Tensor:
    opened.carry(position)
    model = copy.deepcopy(opened.loaded.model).to(dtype)
    return predict_with(model, rows, opened.bank.entries[position].label)


def on_gpu(opened: OpenBank, rows: Tensor, position: int, *, tf32: bool = False) -> Tensor:
    opened.carry(position)
    model = copy.deepcopy(opened.loaded.model).to("cuda")
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return predict_with(model, rows.to("cuda"), opened.bank.entries[position].label)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def predict_with(model: nn.Module, rows: Tensor, label: int) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part, label).float().cpu() for part in rows.split(64)])


def load_rows(opened: OpenBank, config: ExperimentConfig, position: int) -> Tensor:
    task = load_tasks(config.stream, seed=0)[position]
    return encode(task.test, opened.loaded.tokenizer, family="encoder", max_length=LENGTH)


def line(
    what: str, expected: list[Tensor], found: list[Tensor], *, same: bool = True, detail: str = ""
) -> Line:
    pairs = list(zip(expected, found, strict=True))
    return Line(
        what,
        same_bits=same and all(torch.equal(a, b) for a, b in pairs),
        difference=max(float((a - b).abs().max()) for a, b in pairs),
        flipped=sum(int((a.argmax(1) != b.argmax(1)).sum()) for a, b in pairs),
        rows=sum(len(a) for a, _ in pairs),
        detail=detail,
    )


def regions(first: GraftBank, other: GraftBank) -> str:
    """Say how much of the regions is common."""
    shares = [
        len(a.region & b.region) / len(a.region | b.region)
        for a, b in zip(first.entries, other.entries, strict=True)
    ]
    return f"regions: Jaccard {min(shares):.3f}"


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def table(lines: list[Line]) -> str:
    shown = [
        "| what is otherwise | bits | largest difference of a logit | other label | |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for entry in lines:
        bits = "same" if entry.same_bits else "other"
        flipped = f"{entry.flipped} of {entry.rows}"
        shown.append(
            f"| {entry.what} | {bits} | {entry.difference:.2g} | {flipped} | {entry.detail} |"
        )
    return "\n".join(shown) + "\n"


if __name__ == "__main__":
    main()
