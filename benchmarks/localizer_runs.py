"""Runs of a benchmark of localizers: the tasks of one seed, learned in several ways."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from cl_graft.grafts.graft import copy_, gather, grafted
from cl_graft.grafts.region import Region
from cl_graft.lab.experiments.run_setup import load_stream
from cl_graft.metrics import score
from cl_graft.runtime.run_context import RunContext
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.bank_metadata import base_identity, task_metadata
from cl_graft.settings.schedule_of_task import make_schedule
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies import MultiTaskText, text_model
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.registry import build_strategy
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.learnable_task import LearnableTask


class Bench:
    """The stream of one seed, on a base that every run copies."""

    def __init__(self, config: ExperimentConfig, seed: int, cache: DirectoryCache) -> None:
        self.config, self.seed, self.cache = config, seed, cache
        self.device = torch.device("cpu")
        self.tasks = load_tasks(config.stream, seed=seed)
        self.loaded, self.stream = load_stream(config, self.tasks)
        self.identity = base_identity(self.loaded, config, seed=seed)

    def dense(self) -> dict[str, Any]:
        """Score the dense runs themselves; they gather their paths on the way."""
        scores: dict[str, float] = {}
        passes: dict[str, Any] = {}
        for label, name in enumerate(self.stream.names):
            model = self._model()
            task = self._task(model, label)
            run = self._dense_run(task, label)
            copy_(dict(task.model.named_parameters()), run.tuned | run.head)
            scores[name] = self._test(model, label)
            passes[name] = {"dense": asdict(run.passes)}
        return {"scores": {"dense": scores}, "passes": passes}

    def run(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Score the grafts of one localizer: as they are, re-trained alone, and in the stream."""
        continual, first = self._learn(settings, "prefix", range(len(self.tasks)))
        # Alone on the base, the first task is what it is in the stream.
        alone, others = self._learn(settings, "isolated", range(1, len(self.tasks)))
        regions = [first.regions[0], *others.regions]
        names = self.stream.names
        return {
            "scores": {
                "graft": self._grafts(regions),
                "retrained": {names[0]: continual[names[0]], **alone},
                "continual": continual,
            },
            "passes": {names[0]: first.passes[names[0]], **others.passes},
            "coordinates": {name: len(r) for name, r in zip(names, regions, strict=True)},
        }

    def alone(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Score the grafts of one localizer without a stream, and say where they are."""
        scores, learned = self._learn(settings, "isolated", range(len(self.tasks)))
        return {
            "scores": {"graft": self._grafts(learned.regions), "retrained": scores},
            "passes": learned.passes,
            "regions": {
                name: region.index.tolist()
                for name, region in zip(self.stream.names, learned.regions, strict=True)
            },
        }

    def _learn(
        self, settings: Mapping[str, Any], mode: str, labels: Sequence[int]
    ) -> tuple[dict[str, float], Learned]:
        # Avalanche finds torchvision's operators only after cl_graft has declared them.
        from avalanche.logging import BaseLogger
        from avalanche.training.plugins import EvaluationPlugin

        config = self.config.with_values({**settings, "grafting.mode": mode})
        dense = {label: make_schedule(config, task) for label, task in enumerate(self.tasks)}
        model = self._model()
        strategy: Any = build_strategy(
            "grafting",
            StrategyInputs(
                model=model,
                stream=self.stream,
                metadata={
                    label: task_metadata(task, config, seed=self.seed)
                    for label, task in enumerate(self.tasks)
                },
                identity=self.identity,
                grafting={
                    label: config.grafting.of_task(schedule, seed=self.seed)
                    for label, schedule in dense.items()
                },
                fine_tuning=dense,
                region_optimizer=config.grafting.optimizer,
                region_lr=config.grafting.lr,
                head_lr=config.grafting.head_lr,
                region_decay=config.grafting.lr_decay,
                clip=config.loop_clip,
                seed=self.seed,
                eval_batch=config.training.eval_batch,
                device=self.device,
                evaluator=EvaluationPlugin(loggers=[BaseLogger()]),
                cache=self.cache,
            ),
        )
        for label in labels:
            experience = self.stream.benchmark.streams["train"][label]
            strategy.train(experience, eval_streams=[])
        plugin, scores = strategy.grafting, {}
        for position, label in enumerate(labels):
            plugin.carry(model, position)
            scores[self.stream.names[label]] = self._test(model, label)
        return scores, Learned(self.stream.names, plugin)

    def _grafts(self, regions: Sequence[Region]) -> dict[str, float]:
        """Score the tuned values on the regions of the tasks."""
        scores: dict[str, float] = {}
        for label, region in enumerate(regions):
            model = self._model()
            task = self._task(model, label)
            run = self._dense_run(task, label)
            copy_(task.head, run.head)
            with grafted(task.model, gather(run.tuned, region)):
                scores[self.stream.names[label]] = self._test(model, label)
        return scores

    def _model(self) -> MultiTaskText:
        base = copy.deepcopy(self.loaded.model)
        return text_model(base, self.stream, seed=self.seed)

    def _task(self, model: MultiTaskText, label: int) -> LearnableTask:
        base = self.identity.fingerprint
        return make_stream_task(model, self.stream, label, base=base, seed=self.seed)

    def _dense_run(self, task: LearnableTask, label: int) -> Any:
        schedule = make_schedule(self.config, self.tasks[label])
        context = RunContext(self.cache)
        return fine_tune_task(task, schedule, seed=self.seed, path=True, context=context)

    def _test(self, model: MultiTaskText, label: int) -> float:
        inputs, targets = self.stream.tasks[label].splits["test"]
        order = (inputs[:, 1] != 0).sum(1).argsort(descending=True)
        task_model = model.task_model.eval()
        with torch.no_grad():
            logits = [task_model(part, label) for part in inputs[order].split(64)]
        return score(torch.cat(logits), targets[order], self.tasks[label].scored_by)


class Learned:
    """Regions that a plugin found, in the order of the tasks, and passes by task."""

    def __init__(self, names: Sequence[str], plugin: Any) -> None:
        self.regions: list[Region] = [entry.region for entry in plugin.bank.entries]
        self.passes: dict[str, Any] = {
            str(names[label]): {phase: asdict(passes) for phase, passes in phases.items()}
            for label, phases in plugin.passes.items()
        }
