"""Cost of a training step of language models, a switch and a mixed batch, beside a LoRA.

    python benchmarks/performance/gpu.py --shape 7b                  # on a GPU, in bf16
    python benchmarks/performance/gpu.py --shape tiny --device cpu   # in fp32: does it run?

Llama models with random weights, 8 rows of 512 tokens, the loss of every next token, AdamW, with
and without gradient checkpointing. Full fine-tuning trains all blocks; LoRA and SHiRA are PEFT's on
all linear layers, of the rank that comes nearest to 0.3 % of the blocks' weights; a region of 0.3 %
is scattered over the blocks, or whole columns of the output matrices of feed-forward layers. Every
way has fresh processes, by turns; seconds are wall time on a GPU, else those of the processor;
memory is the peak beside the weights, of tensors on a GPU, else of the process. Then a switch and a
batch of eight tasks are timed. Writes ``results/gpu-SHAPE-DEVICE.json`` and ``.md``; what does not
fit into memory has a dash.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from speed_serving import mixed_batches, switching
from speed_training import Shape, Step, draw_distinct, full_step, peft_step, region_step
from time_and_memory import peak_memory
from torch import Tensor, nn

from cl_graft.grafts.region import Layout, Region

RESULTS = Path(__file__).parents[1] / "results"
DENSITY = 0.003
NAMES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SIZES: Mapping[str, tuple[int, ...]] = {
    "tiny": (64, 2, 4, 2, 160, 512),
    "smollm2": (576, 30, 9, 3, 1536, 49_152),
    "0.5b": (896, 24, 14, 2, 4864, 32_000),
    "1b": (2048, 16, 32, 8, 8192, 32_000),
    "7b": (4096, 32, 32, 32, 11_008, 32_000),
}
"""Values of `NAMES`, width of the feed-forward part, vocabulary."""


@dataclass(frozen=True)
class LlamaShape(Shape):
    """A Llama model with random weights, of which the blocks can be trained."""

    checkpointing: bool = False
    columns: bool = False
    rank: int = 1

    def model(self) -> nn.Module:
        """Return the model, embeddings and head frozen; bf16 where the batch is computed so."""
        from transformers import LlamaConfig, LlamaModel

        *sizes, inner, words = SIZES[self.name]
        known: dict[str, Any] = {**dict(zip(NAMES, sizes, strict=True)), "use_cache": False}
        config = LlamaConfig(**known, intermediate_size=inner, vocab_size=words)
        torch.manual_seed(0)
        dtype = torch.bfloat16 if self.autocast else torch.float32
        with torch.device(self.device):
            model = _Causal(LlamaModel._from_config(config, dtype=dtype))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".layers." in name)
        if self.checkpointing:
            model.encoder.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train(self.checkpointing)  # which acts in train mode alone

    def graftable(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the block parameters."""
        return {name: p for name, p in model.named_parameters() if "layers." in name}

    def compute_loss(self, model: nn.Module) -> Callable[[], Tensor]:
        """Return the function that computes the loss of every next token."""
        ids, _ = self.batch()

        def loss() -> Tensor:
            logits = model(ids)[:, :-1].flatten(0, 1)
            return nn.functional.cross_entropy(logits.float(), ids[:, 1:].flatten())

        return loss

    def region(self, model: nn.Module, coordinates: int | None = None) -> Region:
        """Draw a region of the block parameters: scattered, or columns of output matrices."""
        if not self.columns:
            return super().region(model, coordinates)
        layout = Layout.of(self.graftable(model))
        draw, parts = torch.Generator().manual_seed(2), []
        starts = [s for s, n in zip(layout.starts, layout.names, strict=False) if "down_proj" in n]
        width, *_, inner, _ = SIZES[self.name]
        count = max(1, round(self.coordinates / (width * len(starts))))
        for start in starts:
            rows = start + inner * torch.arange(width)[:, None]
            parts.append((rows + draw_distinct(inner, count, draw)).flatten())
        return Region.of(layout, torch.cat(parts))

    def choose_sizes(self) -> LlamaShape:
        """Return the shape with the size of its region, and the rank that comes nearest."""
        blocks = self.graftable(replace(self, device="meta").model()).values()
        count = round(DENSITY * sum(p.numel() for p in blocks))
        edges = sum(sum(p.shape) for p in blocks if p.ndim == 2)
        return replace(self, coordinates=count, rank=max(1, round(count / edges)))


class _Causal(nn.Module):
    def __init__(self, encoder: Any) -> None:
        super().__init__()
        words = encoder.embed_tokens.weight
        self.encoder, self.head = encoder, nn.Linear(*words.T.shape, bias=False, dtype=words.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(ids).last_hidden_state)


def adapter_step(kind: str, shape: LlamaShape, optimizer: str) -> Step:
    """Train an adapter of PEFT's on every linear layer of the blocks."""
    config: Any = getattr(importlib.import_module("peft"), kind)
    return peft_step(shape, optimizer, config(r=shape.rank, target_modules="all-linear"))


WAYS: Mapping[str, Callable[[LlamaShape, str], Step]] = {
    "LoRA": partial(adapter_step, "LoraConfig"),
    "full fine-tuning": full_step,
    "SHiRA": partial(adapter_step, "ShiraConfig"),
    "region, scattered": region_step,
    "region, columns": lambda shape, kind: region_step(replace(shape, columns=True), kind),
}


def prepare(way: str, shape: LlamaShape, steps: int) -> Callable[[], list[float]]:
    """Return a function that makes a first step, and then times some, in seconds."""
    step, gpu = WAYS[way](shape, "adamw"), shape.device == "cuda"

    def take_step() -> float:
        step()
        if gpu:
            torch.cuda.synchronize()
        return time.perf_counter() if gpu else time.process_time()

    return lambda: [b - a for a, b in pairwise([take_step() for _ in range(1 + steps)])]


def measure_steps(shape: LlamaShape, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return seconds of a step and peak MB of every way; none where memory does not suffice."""
    found: dict[str, dict[str, Any]] = {way: {"seconds": [], "MB": []} for way in given.ways}
    for way, values in list(found.items()) * given.rounds:
        sys.stderr.write(f"{way}, checkpointing {shape.checkpointing} …\n")
        try:
            peak = peak_memory(prepare, way, shape, given.steps, threads=given.threads)
        except torch.OutOfMemoryError:
            continue
        values["seconds"].append(statistics.median(peak.result))
        values["MB"].append((peak.memory if peak.device is None else peak.device) / 1e6)
    return found


def render(stored: Mapping[str, Any]) -> str:
    """Return the values as Markdown, each beside LoRA's of the same turn."""
    lines = ["| checkpointing | | seconds | / LoRA | MB | / LoRA |", "|---|---|--:|--:|--:|--:|"]
    for key, ways in stored["steps"].items():
        for way, values in ways.items():
            cells = [key, way]
            for what in ("seconds", "MB"):
                ratios = [a / b for a, b in zip(values[what], ways["LoRA"][what], strict=False)]
                cells += [_middle(values[what]), _middle(ratios)]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| serving | median |", "|---|--:|"]
    lines += [f"| {key} | {_middle(raw)} |" for key, raw in stored["serving"].items()]
    return "\n".join([*lines, "", stored["machine"]]) + "\n"


def _middle(raw: list[float]) -> str:
    return f"{statistics.median(raw):.3g}" if raw else "–"


def main() -> None:
    """Measure, and write after every part."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--shape", choices=SIZES, default="0.5b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="LoRA first")
    parser.add_argument("--rounds", type=int, default=3, help="processes of a way")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a process")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    gpu = given.device == "cuda"
    shape = LlamaShape(
        given.shape, 8, given.tokens, device=given.device, autocast=gpu
    ).choose_sizes()
    stored: dict[str, Any] = {"steps": {}, "serving": {}}
    stored["machine"] = (
        f"{torch.cuda.get_device_name() if gpu else platform.machine()}, {given.threads} threads, "
        f"torch {torch.__version__}, {'bf16' if gpu else 'fp32'}, {given.shape}, "
        f"batch 8 × {given.tokens}, region of {shape.coordinates:,}, adapters of rank {shape.rank}"
    )
    stem = given.results / f"gpu-{given.shape}-{given.device}"
    given.results.mkdir(parents=True, exist_ok=True)
    for part in ("no", "yes", "serving"):
        if part != "serving":
            run = replace(shape, checkpointing=part == "yes")
            stored["steps"][part] = measure_steps(run, given)
        else:
            stored[part] |= switching(shape, repeats=given.rounds, tasks=3)
            stored[part] |= mixed_batches(shape, repeats=given.rounds)
        Path(f"{stem}.json").write_text(json.dumps(stored, indent=1) + "\n")
        Path(f"{stem}.md").write_text(render(stored))
    sys.stdout.write(render(stored))


if __name__ == "__main__":
    main()
