"""Rows of several tasks in one matrix: adding differences against going through the tasks in turn.

    python benchmarks/performance/row_differences.py        # three minutes

For batches of several tasks in prefix mode (a task has what those before it added): the time of
both ways over that of one product of all rows with one weight, on one thread, layout included.
Each is the quarter of 25 rounds below which the machine was quiet. Beside it what the two ways
cost a difference of a token and a weight of a further product, from which `cheaper_to_add` has its
constants. Goes to ``benchmarks/results/row_differences.md``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.inference.mixed_batches import mixed_batch
from cl_graft.inference.task_switch import Switch

INPUTS, OUTPUTS, ROWS, COORDINATES = 768, 3072, 32, 236
RESULTS = Path(__file__).parents[1] / "results"
HEAD = ["dtype", "tasks", "tokens", "add", "in turn", "a difference, ns", "a weight, ns", "ratio"]


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--tokens", default="32,512,2048", help="of all rows together")
    parser.add_argument("--tasks", default="8,32", help="in a batch")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)]]
    for dtype in (torch.float32, torch.bfloat16):
        for tasks in map(int, given.tasks.split(",")):
            model, switch = make_bank(tasks, dtype)
            for tokens in map(int, given.tokens.split(",")):
                lines.append(row(model, switch, tasks, tokens, given.rounds))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    table += (
        f"\n{INPUTS} × {OUTPUTS}, {COORDINATES} coordinates a task, {ROWS} rows in the order of "
        f"their tasks, 1 thread, torch {torch.__version__}\n"
    )
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "row_differences.md").write_text(table)
    sys.stdout.write(table)


def make_bank(tasks: int, dtype: torch.dtype) -> tuple[nn.Module, Switch]:
    """Make a matrix, and a bank of tasks that change other coordinates of it each."""
    model = nn.Sequential(nn.Linear(INPUTS, OUTPUTS)).to(dtype).eval()
    layout = Layout.of({"0.weight": model.get_parameter("0.weight")})
    name = str(dtype).removeprefix("torch.")
    bank = GraftBank(layout, BaseIdentity("f" * 64, "matrix", name), "prefix")
    draw = torch.Generator().manual_seed(0)
    order = torch.randperm(layout.total, generator=draw)[: tasks * COORDINATES]
    for task, places in enumerate(order.view(tasks, -1)):
        region = Region.of(layout, places)
        values = torch.randn(COORDINATES, generator=draw).to(dtype)
        bank = bank.append(Entry(f"task{task}", task, Graft(region, values), Region.empty(layout)))
    return model, Switch(model, bank)


@torch.inference_mode()
def row(model: nn.Module, switch: Switch, tasks: int, tokens: int, rounds: int) -> list[str]:
    """Time both ways, and return a line of the table."""
    dtype = model.get_parameter("0.weight").dtype
    x = torch.randn(ROWS, tokens // ROWS, INPUTS).to(dtype)
    owners = [place * tasks // ROWS for place in range(ROWS)]
    one = _seconds(lambda: model(x), rounds)
    with mixed_batch(switch, owners, method="add") as adding:
        add = _seconds(lambda: adding(x), rounds)
    with mixed_batch(switch, owners, method="by_task") as turning:
        in_turn = _seconds(lambda: turning(x), rounds)
    start = owners[(ROWS - 1) // 2]  # a mixed batch begins at its middle row's task
    differences = sum(abs(task - start) * COORDINATES * tokens // tasks for task in range(tasks))
    difference = 1e9 * (add - one) / differences
    weight = 1e9 * (in_turn - one) / ((tasks - 1) * INPUTS * OUTPUTS)
    shown = [str(dtype).removeprefix("torch."), str(tasks), str(tokens)]
    shown += [f"{add / one:.2f}", f"{in_turn / one:.2f}", f"{difference:.2f}", f"{weight:.2f}"]
    return [*shown, f"{difference / weight:.0f}"]


def _seconds(run: Callable[[], Tensor], rounds: int) -> float:
    times = []
    for _ in range(rounds + 2):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.quantiles(times[2:], n=4)[0]


if __name__ == "__main__":
    main()
