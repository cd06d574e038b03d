"""Sizes at which the kernels for gradients at coordinates cross over.

    python benchmarks/performance/coordinate_gradient.py --threads 1

For several shapes of a weight and numbers of coordinates in it, the time of each kernel of
`cl_graft.training.coordinate_gradient` and of the dense product, medians of alternating rounds in
one process, into ``results/coordinate_gradient.json`` and ``.md``. `pick_kernel` follows this
table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from cl_graft.training.coordinate_gradient import (
    Coordinates,
    Kernel,
    coordinate_gradient,
    pick_kernel,
)

SHAPES = ((384, 384), (1536, 384), (768, 768), (3072, 768))
DENSITIES = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.4)
KERNELS: tuple[Kernel, ...] = ("gather", "sample", "dense")
_GATHER_LIMIT = 30_000
"""Above it, gathering needs so much time and memory that nobody asks."""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=512, help="rows of the batch times its tokens")
    parser.add_argument("--repeats", type=int, default=15, help="rounds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    table = [
        measure(shape, density, rows=given.rows, repeats=given.repeats)
        for shape in SHAPES
        for density in DENSITIES
    ]
    settings = {"rows": given.rows, "threads": given.threads, "repeats": given.repeats}
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**settings, "milliseconds": table}, indent=1)
    (given.out / "coordinate_gradient.json").write_text(text + "\n", encoding="utf-8")
    page = render(table, settings)
    (given.out / "coordinate_gradient.md").write_text(page, encoding="utf-8")
    print(page)


def measure(
    shape: tuple[int, int], density: float, *, rows: int, repeats: int
) -> dict[str, object]:
    """Time every kernel at one shape and density."""
    draw = torch.Generator().manual_seed(0)
    gradient = torch.randn(rows, shape[0], generator=draw)
    x = torch.randn(rows, shape[1], generator=draw)
    total = shape[0] * shape[1]
    k = max(1, round(density * total))
    inside = torch.randperm(total, generator=draw)[:k].sort().values
    runs: dict[str, Callable[[], Tensor]] = {}
    for kernel in KERNELS:
        if kernel == "gather" and k > _GATHER_LIMIT:
            continue
        where = Coordinates.of(inside, shape, transposed=False, kernel=kernel)
        runs[kernel] = _run(gradient, x, where)
    seconds: dict[str, list[float]] = {kernel: [] for kernel in runs}
    for turn in range(repeats + 1):
        for kernel, run in runs.items():
            started = time.perf_counter()
            run()
            if turn:
                seconds[kernel].append(time.perf_counter() - started)
    return {
        "shape": list(shape),
        "coordinates": k,
        "picked": pick_kernel(k, shape, device=x.device),
        **{
            kernel: 1e3 * statistics.median(seconds[kernel]) if kernel in seconds else None
            for kernel in KERNELS
        },
    }


def _run(gradient: Tensor, x: Tensor, where: Coordinates) -> Callable[[], Tensor]:
    """Return one whole backward of a kernel, with the columns of x that it keeps."""

    def run() -> Tensor:
        kept = x if where.inputs is None else x.index_select(1, where.inputs)
        return coordinate_gradient(
            gradient, kept, where.rows, where.columns, where.starts, where.kernel
        )

    return run


def render(table: list[dict[str, object]], settings: dict[str, int]) -> str:
    """Return the table as Markdown, the fastest kernel in bold."""
    lines = [
        f"Milliseconds for {settings['rows']} rows, fp32, {settings['threads']} CPU thread(s); "
        f"medians of {settings['repeats']} alternating rounds.",
        "",
        "| shape | coordinates | gather | sample | dense | picked |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in table:
        times = {kernel: row[kernel] for kernel in KERNELS if isinstance(row[kernel], float)}
        best = min(times, key=lambda kernel: times[kernel])
        cells = [
            f"**{times[kernel]:.2f}**"
            if kernel == best
            else f"{times[kernel]:.2f}"
            if kernel in times
            else ""
            for kernel in KERNELS
        ]
        shape = "×".join(str(size) for size in row["shape"])  # pyright: ignore[reportGeneralTypeIssues]
        lines.append(
            f"| {shape} | {row['coordinates']:,} | {' | '.join(cells)} | {row['picked']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
