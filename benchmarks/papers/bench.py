"""The bench: one sample of the tasks, on one model at its base.

Experiments ask it for dense runs, rankings and answers. What took long to train or to rank is kept
in a cache, so that experiments share it, and a cell that was killed goes on where it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cl_graft.errors import InputError, join_names
from cl_graft.grafts.graft import Graft, gather, grafted
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.lab.experiments.localized_task import refuse_stream_settings
from cl_graft.lab.experiments.run_setup import load_stream
from cl_graft.localization import LocalizerInputs, Ranking, find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.inputs_of_task import RowCounter, inputs_of_task
from cl_graft.localization.parameter_subsets import biases
from cl_graft.localization.region_search import rank_task
from cl_graft.models import TaskModel
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.run_context import ALONE, RunContext, cache_key
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.bank_metadata import base_identity
from cl_graft.settings.schedule_of_task import choose, list_schedules
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies import text_model
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask
from papers.answers import Answers

Outcome = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors and JSON values, as a cache keeps them."""


class Bench:
    """One sample of the tasks of a config, drawn by a data seed."""

    def __init__(
        self,
        config: ExperimentConfig,
        *,
        data_seed: int,
        cell: int = 0,
        cache: DirectoryCache,
        kinds: Sequence[str] = ("classification",),
    ) -> None:
        refuse_stream_settings(config)
        self.config = config.with_values({"stream.data_seed": data_seed})
        self.seed, self.cell, self._cache = config.comparison.seeds[0], cell, cache
        self.device = pick_device(config.model.device)
        tasks = load_tasks(self.config.stream, seed=self.seed)
        for task in tasks:
            if task.kind not in kinds:
                raise InputError(
                    f"task {task.name!r} is a {task.kind.replace('_', ' ')} task; this experiment "
                    f"runs tasks of {join_names(kinds)}"
                )
        loaded, self.stream = load_stream(self.config, tasks)
        self.identity = base_identity(loaded, self.config, seed=self.seed)
        self.model = text_model(loaded, self.stream, seed=self.seed).to(self.device)
        self.names = self.stream.names
        self._rows: dict[int, Sequence[int]] = {}
        self._tasks: dict[int, LearnableTask] = {}
        self._schedules: dict[int, FineTuning] = {}
        self._dense: tuple[Any, DenseRun] | None = None

    def task(self, label: int) -> LearnableTask:
        """Return a task as a problem, on the model at its base."""
        if label not in self._tasks:
            task = make_stream_task(
                self.model.eval(),
                self.stream,
                label,
                base=self.identity.fingerprint,
                seed=self.seed,
            )
            if label in self._rows:
                train = task.train.pick(self._rows[label])
                content = f"{task.content}|{train.fingerprint()}"
                task = replace(task, train=train, content=content)
            self._tasks[label] = task
        return self._tasks[label]

    def replace_task(self, label: int, task: LearnableTask) -> None:
        """Let another problem stand for a task, such as one with another head at its start."""
        self._tasks[label] = task

    @contextmanager
    def fewer_rows(self, label: int, places: Sequence[int]) -> Iterator[None]:
        """Let a task have only some of its training rows for a `with` block."""
        whole = self.task(label)
        del self._tasks[label]
        self._rows[label] = places
        try:
            yield
        finally:
            del self._rows[label]
            self._tasks[label] = whole

    def with_parts(self, insert: Callable[[TaskModel], None]) -> Bench:
        """Return this bench on a copy of its model that has more parts, such as adapters.

        Schedules are asked of this one, which chooses them without the parts.
        """
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model)
        other._tasks, other._dense = {}, None
        insert(other.model.task_model)
        return other

    @property
    def layout(self) -> Layout:
        """The graftable parameters."""
        return Layout.of(self.task(0).parameters)

    def size(self, density: float) -> int:
        """Return how many coordinates a density is; at least 1."""
        return max(1, round(density * self.layout.total))

    @property
    def density(self) -> float:
        """The config's density."""
        return self.config.grafting.density

    def schedules(self, label: int) -> tuple[FineTuning, ...]:
        """Return the dense schedules of a task of which dev chooses one."""
        return list_schedules(self.config, self.stream.tasks[label].task)

    def schedule(self, label: int) -> FineTuning:
        """Return the dense schedule of a task, chosen on dev where the config has a grid."""
        if label not in self._schedules:
            self._schedules[label] = choose(
                self.task(label),
                self.schedules(label),
                seed=self.seed,
                context=RunContext(self._cache),
            )
        return self._schedules[label]

    def dense(
        self, label: int, *, path: bool | None = None, anew: bool = False, **changes: Any
    ) -> DenseRun:
        """Return the dense run of a task, with changes to its schedule."""
        settings = replace(self.schedule(label), **changes)
        path = find_localizer(self.config.grafting.localizer).needs_path if path is None else path
        task, context = self.task(label), ALONE if anew else RunContext(self._cache)
        key = task.content, settings, path
        if anew or self._dense is None or self._dense[0] != key:
            run = fine_tune_task(task, settings, seed=self.seed, path=path, context=context)
            self._dense = key, run
        return self._dense[1]

    def get_or_make(
        self,
        phase: str,
        identity: str,
        recipe: Mapping[str, Any],
        make: Callable[[], Outcome],
        *,
        anew: bool = False,
    ) -> Outcome:
        """Return tensors and JSON values from the cache, or make them and keep them there."""
        key = cache_key(phase, identity, recipe, self.seed)
        found = None if anew else self._cache.get(key)
        if found is None:
            found = make()
            self._cache.put(key, *found)
        return found

    def ranking(
        self,
        label: int,
        localizer: str,
        *,
        dense: DenseRun,
        k: int | None = None,
        depth: int | None = None,
        steps: int | None = None,
        task: LearnableTask | None = None,
        anew: bool = False,
        counter: RowCounter | None = None,
    ) -> Ranking:
        """Rank the coordinates of a task, all of them, whatever `mask_candidates` says."""
        row, own = find_localizer(localizer), self.task(label)
        part = row.allowed(own.model, own.parameters) if row.allowed else own.parameters
        most = Layout.of(part).total
        return rank_task(
            task or own,
            self.localization(label, localizer=localizer, steps=steps),
            dense,
            k=min(most, self.size(self.density) if k is None else k),
            depth=depth,
            context=ALONE if anew or task is not None else RunContext(self._cache),
            counter=counter,
        )

    def localization(
        self, label: int, *, localizer: str | None = None, steps: int | None = None
    ) -> GraftingSettings:
        """Return how a task is localized here, where all coordinates are candidates."""
        # A task of a joint model has no schedule chosen for it alone; any gives the settings that
        # count here, and its rate stands only in the message of an error.
        schedule = self._schedules.get(label) or self.schedules(label)[0]
        settings = self.config.grafting.of_task(schedule, seed=self.seed)
        return replace(
            settings,
            localizer=localizer or settings.localizer,
            mask_steps=steps or settings.mask_steps,
            mask_candidates=None,
        )

    def describe_choice(
        self, label: int, dense: DenseRun, *, k: int, steps: int, **more: str
    ) -> dict[str, Any]:
        """Return what determines coordinates that gradients chose, beside task and seed."""
        head = self.task(label).to_cache(dense.head)
        return {
            **more,
            "k": k,
            "steps": steps,
            "batch": self.config.grafting.mask_batch,
            "micro": self.config.fine_tuning.micro_batch,
            "what": hash_tensors({**dense.tuned, **head}),
        }

    @contextmanager
    def open_inputs(
        self, label: int, localizer: str, dense: DenseRun, task: LearnableTask
    ) -> Iterator[LocalizerInputs]:
        """Return the inputs of a localizer, with the head of a dense run, for a `with` block."""
        settings = self.localization(label, localizer=localizer)
        with inputs_of_task(task, settings, dense, counter=RowCounter()) as inputs:
            yield inputs

    def region(
        self, label: int, dense: DenseRun, *, localizer: str | None = None, anew: bool = False
    ) -> Region:
        """Choose a task's region of the config's density."""
        k, localizer = self.size(self.density), localizer or str(self.config.grafting.localizer)
        ranking = self.ranking(label, localizer, dense=dense, depth=k, anew=anew)
        return self.first(ranking, self.density)

    def first(self, ranking: Ranking, density: float) -> Region:
        """Return the first coordinates of a ranking, all of it where it holds fewer."""
        return ranking.top(min(self.size(density), ranking.order.numel()))

    def biases(self, label: int) -> Region:
        """Return the region of all biases, which BitFit trains."""
        task = self.task(label)
        return Region.full(Layout.of(biases(task.model, task.parameters))).within(self.layout)

    def answers(self, label: int, *, split: str = "test", through: int | None = None) -> Answers:
        """Answer the rows of a task with the model as it is now."""
        encoded = self.stream.tasks[label]
        inputs, targets = encoded.splits[split]
        task = self.task(label if through is None else through)
        task.model.eval()
        with torch.no_grad():
            parts = inputs.split(self.config.training.eval_batch)
            logits = [task.forward(part.to(self.device)).float().cpu() for part in parts]
        return Answers(torch.cat(logits), targets, encoded.scored_by)

    def tuned_answers(self, label: int, run: DenseRun, *, split: str = "test") -> Answers:
        """Answer with the densely fine-tuned model."""
        task = self.task(label)
        with (
            replace_parameters(task.parameters, run.tuned),
            replace_parameters(task.head, run.head),
        ):
            return self.answers(label, split=split)

    def graft_answers(
        self, label: int, graft: Graft, head: Parameters, *, split: str = "test"
    ) -> Answers:
        """Answer with a graft on the base, and a head."""
        with self.apply_graft(label, graft, head):
            return self.answers(label, split=split)

    @contextmanager
    def apply_graft(self, label: int, graft: Graft, head: Parameters) -> Iterator[None]:
        """Have a graft on the base, and a task's head, for a `with` block."""
        task = self.task(label)
        with grafted(task.model, graft), replace_parameters(task.head, head):
            yield

    def cut(self, run: DenseRun, region: Region) -> Graft:
        """Take the tuned values of a region."""
        return gather(run.tuned, region)
