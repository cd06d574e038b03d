"""One model for several tasks: what do grafts lose when they lie in it at once, and what do LoRAs?

    python benchmarks/merged.py --seeds 0,1,2

Grafting and a LoRA per task learn a stream, by default MiniLM's five tasks at equal bytes and rows.
Then every subset of two or more is written into one model: the grafts as they are (their regions
are disjoint), or the sum of the LoRAs' products, each with weight 1. This model answers each task
of the subset with the task's head. The loss is what it scores below the answer in the bank, or
with the LoRA alone in the weights. T tasks take T (2^(T-1) - 1) rounds of all test rows. One
thread. With another model, ``--set`` density, LoRA (a causal model has no dense run: leave out
``times_steps``), steps and lengths, too. Writes ``merged-cpu.json``, ``.md`` and ``.png``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from cl_graft.banks.open_bank import open_bank
from cl_graft.data.encoded_task import EncodedTask
from cl_graft.grafts.graft import load_
from cl_graft.lab.baselines.lora import LoRA, find_lora_layers
from cl_graft.lab.baselines.own_values import OwnValues
from cl_graft.lab.experiments.run import run
from cl_graft.metrics import task_score
from cl_graft.models import TaskModel
from cl_graft.settings.tasks import load_tasks
from cl_graft.strategies import StrategyInputs, find_plugin, register_strategy
from cl_graft.strategies.benchmark import text_stream

sys.path.append(str(Path(__file__).parent))
from common import (
    SMOKE,
    choose_seeds,
    describe_run,
    make_config,
    make_parser,
    parse_options,
    summarize_seeds,
    write_results,
)

VALUES: dict[str, Any] = {
    "model.device": "cpu",
    "stream.tasks": ["qnli", "ag_news", "sst2_sent", "mrpc", "mnli"],
    "stream.shots": 128,
    "stream.max_length": 64,
    "stream.max_dev": 100,
    "stream.max_test": 250,
    "stream.evaluate_ahead": "never",
    "fine_tuning.steps": 150,
    "fine_tuning.batch_size": 8,
    "fine_tuning.lr": 0.1,
    "fine_tuning.evaluations": 1,
    "fine_tuning.group_by_length": True,
    "grafting.density": 0.0029,
    "comparison.strategy_settings": {"open_lora": {"lr": 0.004, "times_steps": 1.2}},
    "comparison.seeds": [0, 1, 2],
}
"""The five tasks of docs/results/overview.md, with the rate that dev chose for LoRA."""
Carry = Callable[[Sequence[int]], None]
"""Lays the grafts, or LoRAs, of the tasks at some positions over the base."""
LAST_LORA_RUN: list[tuple[TaskModel, OwnValues]] = []
"""The model of the last LoRA run, with every task's head, and the plugin with the LoRAs."""


@register_strategy(
    "open_lora", family="isolation", source="`lora`", trains="per_task", requires="peft"
)
class OpenLoRA(LoRA):
    """A LoRA per task, as `lora`, whose model stays at hand."""

    def build(self, inputs: StrategyInputs) -> Any:
        """Return the strategy of `lora`, and remember its model."""
        strategy = super().build(inputs)
        LAST_LORA_RUN[:] = [(inputs.model.task_model, find_plugin(strategy, OwnValues))]
        return strategy


def main() -> None:
    """Learn the tasks both ways with every seed, merge, and write."""
    parser = make_parser(str(__doc__).splitlines()[0], ("cpu", "smoke"), seeds=True)
    parser.add_argument("--rows", type=int, default=100, help="test rows of a task")
    given = parse_options(parser, "merged")
    values = {**VALUES, **(SMOKE if given.scale == "smoke" else {})}
    config = make_config(values, given.data, given.sets, recipe={})
    torch.set_num_threads(1)
    runs: dict[str, list[dict[str, Any]]] = {"grafting": [], "LoRA": []}
    for seed in choose_seeds(given, config):
        tasks = load_tasks(config.stream, seed=seed)
        result = run(config, strategy="grafting", seed=seed, out=given.out, tasks=tasks)
        opened = open_bank(given.out / "grafting" / f"seed{seed}")
        tokenizer, length = opened.loaded.tokenizer, config.stream.max_length
        texts = [replace(task, test=task.test[: given.rows]) for task in tasks]
        stream = text_stream(texts, tokenizer, family=config.model.family, max_length=length)
        carry = opened.switch.carry_entries
        merged = merge(opened.loaded.model, stream.tasks, carry=carry, carry_alone=opened.carry)
        runs["grafting"].append({**merged, "R": result.R})
        with tempfile.TemporaryDirectory() as folder:  # a finished run would leave no model
            result = run(config, strategy="open_lora", seed=seed, out=Path(folder), tasks=tasks)
        runs["LoRA"].append({**merge_loras(*LAST_LORA_RUN[0], stream.tasks), "R": result.R})
    stored = {**describe_run("merged.py", config, given), "rows": given.rows, "runs": runs}
    stem = write_results("merged", given, stored, write_table(runs))
    draw(runs).savefig(f"{stem}.png", dpi=120)


def score(model: TaskModel, tasks: Sequence[EncodedTask], position: int) -> float:
    """Return the score of a task's test rows in %, by its head and metric, as the model is now."""
    inputs, targets = tasks[position].splits["test"]
    with model.eval().answering():
        outputs = torch.cat([model(part, position) for part in inputs.split(25)])
    return 100 * task_score.score(outputs, targets, tasks[position].scored_by)


def merge_loras(
    model: TaskModel, plugin: OwnValues, tasks: Sequence[EncodedTask]
) -> dict[str, Any]:
    """Return the scores alone, and the losses, with the sums of LoRAs in the weights."""
    layers = dict(find_lora_layers(model))
    base = {name: layer.get_base_layer().weight.detach().clone() for name, layer in layers.items()}
    moves: list[dict[str, Tensor]] = []
    for values in plugin.values.values():
        load_(model, values)
        moves.append({n: m.get_delta_weight("default").detach() for n, m in layers.items()})
    for layer in layers.values():
        layer.lora_B["default"].weight.detach().zero_()

    def carry(positions: Sequence[int]) -> None:
        for name, layer in layers.items():
            moved = base[name] + sum(moves[at][name] for at in positions)
            layer.get_base_layer().weight.detach().copy_(moved)

    return merge(model, tasks, carry=carry, carry_alone=lambda at: carry([at]))


def merge(
    model: TaskModel,
    tasks: Sequence[EncodedTask],
    *,
    carry: Carry,
    carry_alone: Callable[[int], None],
) -> dict[str, Any]:
    """Return the scores alone, and the losses in every subset by the number of tasks in it.

    `carry_alone` lays what answers a task by itself: of a bank its graft and those before it.
    """
    alone: list[float] = []
    for position in range(len(tasks)):
        carry_alone(position)
        alone.append(score(model, tasks, position))
    losses: dict[str, list[float]] = {}
    for size in range(2, len(tasks) + 1):
        for subset in combinations(range(len(tasks)), size):
            carry(subset)
            losses.setdefault(str(size), []).extend(
                alone[at] - score(model, tasks, at) for at in subset
            )
    return {"alone": alone, "losses": losses}


def average(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean loss and its spread over seeds, by the number merged."""
    sizes = runs[0]["losses"]
    return {n: summarize_seeds(fmean(run["losses"][n]) for run in runs) for n in sizes}


def write_table(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the losses as a table of Markdown."""
    means = {name: average(of) for name, of in runs.items()}
    tell = "{mean:.1f} ± {sd:.1f}" if len(runs["LoRA"]) > 1 else "{mean:.1f}"
    lines = ["| tasks in one model | grafts lose | LoRAs lose |", "| ---: | ---: | ---: |"]
    for n in means["grafting"]:
        lines.append(f"| {n} | {' | '.join(tell.format_map(m[n]) for m in means.values())} |")
    return "\n".join(lines) + "\n"


def draw(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw the loss against the number of tasks in the model."""
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, of in runs.items():
        means = average(of)
        heights, spreads = zip(*((m["mean"], m["sd"] or 0) for m in means.values()), strict=True)
        axes.errorbar([*map(int, means)], heights, spreads, label=name, marker="o", capsize=3)
    axes.set_xlabel("tasks in one model")
    axes.set_ylabel("points lost, mean of the tasks")
    axes.set_xticks(range(2, max(map(int, average(runs["LoRA"]))) + 1))
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
