"""The worth of the choice among five steps on dev, method by method.

Every task is learned once, and is answered twice: with the values of the last step, and with the
best on dev of five steps spread over the training, as dense runs choose. Naive fine-tuning goes on
to the next task from either. Results go with command, versions and machine to
``benchmarks/results/last_step-<scale>.json`` and ``.md``. The data is found through the environment
variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/last_step.py --scale cpu      # MiniLM, 256 rows a class, 3 seeds
    python benchmarks/last_step.py --scale smoke    # 16 shots, 4 steps: does it run?

Every finished seed is a file and is not computed again, so an interrupted benchmark goes on where
it stopped; several processes may share OUT if each has its own ``--seeds``. The summary is made of
all seeds that are finished.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

import torch
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
from torch import nn

from cl_graft.grafts.graft import load_
from cl_graft.lab.baselines.lora import LoRASettings, add_lora_, find_lora
from cl_graft.lab.baselines.own_values import find_biases
from cl_graft.lab.experiments.run_setup import load_stream
from cl_graft.lab.results.strategy_statistics import Spread
from cl_graft.lab.results.tables import spread_text
from cl_graft.metrics import score
from cl_graft.models import graftable_parameters
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.bank_metadata import base_identity
from cl_graft.settings.schedule_of_task import make_schedule
from cl_graft.settings.tasks import load_tasks
from cl_graft.strategies import MultiTaskText, text_model
from cl_graft.strategies.experience_tasks import make_learnable_task
from cl_graft.training.examples import Examples, compute_logits

VALUES: dict[str, Any] = {"stream.tasks": ["sst2_sent", "qnli"], "fine_tuning.evaluations": 5}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {**SMOKE, **VALUES},
    "cpu": {
        **VALUES,
        "stream.shots": 256,
        "fine_tuning.steps": 200,
        "fine_tuning.group_by_length": True,
        "stream.max_length": 40,
        "stream.max_dev": 128,
        "stream.max_test": 300,
        "comparison.seeds": [0, 1, 2],
    },
}
SMALL = {"optimizer": "adamw", "lr": 2e-3, "weight_decay": 0.0}
"""Settings under which the comparison trains parts of a task's own, at a constant rate."""

ALONE: dict[str, Callable[[nn.Module], Mapping[str, nn.Parameter]]] = {
    "independent": graftable_parameters,
    "lora": find_lora,
    "bitfit": find_biases,
}
"""Trained parts, by method whose tasks begin at the base."""

CHOICES = ("last", "best")


def main() -> None:
    """Run the missing seeds, and store the summary of all."""
    parser = make_parser(str(__doc__).splitlines()[0], SCALES, seeds=True)
    arguments = parse_options(parser, "last_step")
    config = make_config(SCALES[arguments.scale], arguments.data, arguments.sets)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in choose_seeds(arguments, config):
        file = arguments.out / f"seed{seed}.json"
        if not file.exists():
            started = time.process_time()
            found = {"seed": seed, "scores": learn(config, seed)}
            found["cpu_seconds"] = time.process_time() - started
            scratch = file.with_suffix(".part")
            scratch.write_text(json.dumps(found, indent=1) + "\n")
            scratch.replace(file)
    write_summary(config, arguments)


class Stream:
    """Tasks of a config with a seed, each on a model of its own or one after the other."""

    def __init__(self, config: ExperimentConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.tasks = load_tasks(config.stream, seed=seed)
        self.loaded, self.stream = load_stream(config, self.tasks)
        self.identity = base_identity(self.loaded, config, seed=seed)

    def model(self) -> MultiTaskText:
        """Return a model at the base, with the heads of all tasks."""
        base = copy.deepcopy(self.loaded.model)
        model = text_model(base, self.stream, seed=self.seed)
        for experience in self.stream.benchmark.train_stream:
            model.adaptation(experience)
        return model

    def train(
        self, model: MultiTaskText, label: int, trained: Mapping[str, nn.Parameter], **changes: Any
    ) -> tuple[dict[str, Any], int]:
        """Train; return the values of the best step, and which it is. The model keeps the last."""
        streams = self.stream.benchmark.streams
        task = make_learnable_task(
            model,
            streams["train"][label],
            label=label,
            criterion=nn.functional.cross_entropy,
            base=self.identity.fingerprint,
            device=torch.device("cpu"),
            dev=streams["valid"][label],
            seed=self.seed,
        )
        plain = make_schedule(self.config, self.tasks[label])
        schedule = replace(plain, lr_decay="constant", warm_up=0.0, **changes)
        found = task.fine_tune({**trained, **task.head}, schedule, seed=self.seed)
        return found.tensors, found.step

    def test(self, model: MultiTaskText, label: int) -> float:
        """Return the accuracy of a task in %."""
        tensors = self.stream.tasks[label].splits["test"]
        rows = Examples(range(len(tensors[1])), tensors=tensors)
        answers = compute_logits(
            lambda inputs: model.eval()(inputs, label), rows, device=torch.device("cpu")
        )
        return 100 * score(*answers, "accuracy")


def learn(config: ExperimentConfig, seed: int) -> dict[str, dict[str, Any]]:
    """Learn all tasks with every method, and score them by choice."""
    stream = Stream(config, seed)
    scores: dict[str, dict[str, Any]] = {}
    first: dict[str, Any] = {}
    for method, choose in ALONE.items():
        own: dict[str, Any] = {"steps": [], **{choice: [] for choice in CHOICES}}
        for label in range(len(stream.tasks)):
            model = stream.model()
            if method == "lora":
                add_lora_(model.task_model, LoRASettings(), seed=seed)
            small = {} if method == "independent" else SMALL
            best, step = stream.train(model, label, choose(model.task_model), **small)
            if method == "independent" and not label:
                last = {n: p.detach().clone() for n, p in model.task_model.named_parameters()}
                first = {"last": last, "best": {**last, **best}}
            own["steps"].append(step)
            own["last"].append(stream.test(model, label))
            load_(model.task_model, best)
            own["best"].append(stream.test(model, label))
        scores[method] = own
    scores["naive"] = {choice: _naive(stream, choice, first[choice]) for choice in CHOICES}
    return scores


def _naive(stream: Stream, choice: str, first: Mapping[str, torch.Tensor]) -> list[float]:
    """Go on from the first task, as independent fine-tuning learned it; score all at the end."""
    model = stream.model()
    load_(model.task_model, first)
    for label in range(1, len(stream.tasks)):
        best, _ = stream.train(model, label, graftable_parameters(model.task_model))
        if choice == "best":
            load_(model.task_model, best)
    return [stream.test(model, label) for label in range(len(stream.tasks))]


def write_summary(config: ExperimentConfig, arguments: argparse.Namespace) -> None:
    """Write JSON and table of all finished seeds."""
    runs = [json.loads(path.read_text()) for path in sorted(arguments.out.glob("seed*.json"))]
    rows = [summarize(method, runs) for method in ("independent", "naive", "lora", "bitfit")]
    stored = {**describe_run("last_step.py", config, arguments), "rows": rows, "cells": runs}
    write_results("last_step", arguments, stored, format_table(rows, len(runs)))


def summarize(method: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a method's average accuracy by choice and what choosing gained, over the seeds."""
    by_seed = [{c: mean(run["scores"][method][c]) for c in CHOICES} for run in runs]
    gains = [scores["best"] - scores["last"] for scores in by_seed]
    over = {choice: summarize_seeds([scores[choice] for scores in by_seed]) for choice in CHOICES}
    return {"method": method, **over, "gain": summarize_seeds(gains), "gains": gains}


def format_table(rows: Sequence[Mapping[str, Any]], seeds: int) -> str:
    """Return the table in Markdown."""
    head = ["method", "last step", "best of five", "gain", "95 % interval", "gain of each seed"]
    lines = [head, ["---", *["---:"] * 5]]
    for row in rows:
        numbers = [spread_text(Spread(**row[kind]), scale=1) for kind in (*CHOICES, "gain")]
        each = ", ".join(f"{gain:z.1f}" for gain in row["gains"])
        interval = row["gain"]["interval"]
        within = "–" if interval is None else " to ".join(f"{end:z.1f}" for end in interval)
        lines.append([row["method"], *numbers, within, each])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"{text}\n\nAverage accuracy over the tasks at the end in %, mean ± sd over {seeds} seeds; "
        "gains in points.\n"
    )


if __name__ == "__main__":
    main()
