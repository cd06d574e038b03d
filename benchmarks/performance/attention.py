"""Training with plain attention against torch's fused one, by type and length of rows.

    python benchmarks/performance/attention.py        # five minutes

The time of a forward and backward pass of an encoder of MiniLM's shape (6 × 384, 12 heads) with
random weights, 512 tokens a batch, on one thread, over that with fused attention: the median of
alternating pairs. It shows where the limit of `cl_graft.models.attention` should lie. Goes to
``benchmarks/results/attention.md``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import pairs

from cl_graft.training.precision import autocast

RESULTS = Path(__file__).parents[1] / "results"
LENGTHS = (32, 64, 128, 256, 512)
TOKENS = 512


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    fused, plain = encoder("sdpa"), encoder("eager")
    lines = [["precision", *(f"{length} tokens" for length in LENGTHS)]]
    lines.append(["---", *["---:"] * len(LENGTHS)])
    for precision in ("fp32", "bf16", "fp16"):
        line = [precision]
        for length in LENGTHS:
            step = training(precision, length)
            a, b = pairs(lambda: step(plain), lambda: step(fused), repeats=given.pairs)  # noqa: B023
            ratio = statistics.median(x / y for x, y in zip(a, b, strict=True))
            line.append(f"{ratio:.2f}")
        lines.append(line)
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    table += (
        f"\nplain / fused; {TOKENS} tokens a batch, median of {given.pairs} pairs, 1 thread, "
        f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}\n"
    )
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "attention.md").write_text(table)
    sys.stdout.write(table)


def encoder(attention: str) -> Any:
    """Make an encoder that trains all but its embeddings."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        attn_implementation=attention,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    model.embeddings.requires_grad_(False)
    return model


def training(precision: str, length: int) -> Callable[[Any], None]:
    """Return what computes the gradients of a batch, half of whose rows are a quarter shorter."""
    rows = max(2, TOKENS // length)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30000, (rows, length), generator=draw)
    mask = torch.ones_like(ids)
    mask[: rows // 2, length * 3 // 4 :] = 0

    def step(model: Any) -> None:
        with autocast(precision, ids.device):
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        states.float().square().mean().backward()
        model.zero_grad()

    return step


if __name__ == "__main__":
    main()
