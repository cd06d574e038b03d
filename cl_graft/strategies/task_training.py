"""The training of one task in a strategy's loop, until `commit` (a new entry) or `abandon`."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.errors import DivergedError, InputError
from cl_graft.grafts.bank import Entry, GraftBank, RecordedBatch, pick_recorded
from cl_graft.grafts.graft import copy_, extract, find_parameters, gather, snapshot, write_
from cl_graft.grafts.hashing import environment, hash_tensors
from cl_graft.grafts.model_state import preserve_modes, train_only
from cl_graft.grafts.region import Region
from cl_graft.inference.task_switch import Switch
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import FoundRegion
from cl_graft.metrics import fit_temperature
from cl_graft.runtime.checkpoints import State, join_tensors, select_tensors
from cl_graft.runtime.run_context import Measure
from cl_graft.runtime.seeding import check_generators, derive, save_generators, seed_generators
from cl_graft.runtime.tensor_names import parameters_by_name, tensors_by_name
from cl_graft.storage.metadata_schema import check_metadata
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.strategy_checks import check_rate
from cl_graft.strategies.task_heads import HeldHeads, copy_head_state, find_head_paths
from cl_graft.training.fine_tuning import beats
from cl_graft.training.learnable_task import LearnableTask, Passes
from cl_graft.training.linear_probe import count_fit_passes, fit_head
from cl_graft.training.region_parameters import RegionParameters
from cl_graft.training.train_mode import dropout_off

logger = logging.getLogger(__name__)

_RECORDED_ROWS = 8
"""Rows of dev that an entry records to be verified with."""


@dataclass(frozen=True)
class TaskMetadata:
    """Name, metric and further metadata of a task that its entry records.

    Attributes:
        name: Name of the task.
        metric: Score of the task, a name that `cl_graft.metrics.score` knows.
        metadata: More values to store with the entry; JSON only.

    Raises:
        InputError: If a bank cannot hold it, as a name with control characters.
    """

    name: str
    metric: str = "accuracy"
    metadata: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            metadata = {**self.metadata, "metric": self.metric}
            check_metadata("task", {"task": self.name, "metadata": metadata})
        except ValueError as error:
            raise InputError(f"no bank can record the task {self.name[:80]!r}: {error}") from error


class TaskTraining:
    """Hold a task's region while the loop trains it; with nothing to train, stop the strategy."""

    def __init__(
        self,
        strategy: Strategy,
        switch: Switch,
        *,
        label: int,
        task: LearnableTask,
        settings: GraftingSettings,
        search: FoundRegion,
        builds_on: tuple[int, ...],
        measure: Measure,
    ) -> None:
        free = switch.bank.free(search.region, builds_on=builds_on)
        if settings.retrain and len(free):
            check_rate(strategy)
        switch.carry_entries(builds_on)
        model = switch.model
        self.label = label
        self.seconds = dict(search.seconds)
        self.passes = {**search.passes, "region": Passes()}
        self._unwrapped = model
        self.switch = switch
        self._builds_on = builds_on
        self._search = search
        self._task = task
        self._settings = settings
        self._measure = measure
        self._suspended = False
        self._started = time.perf_counter()
        self._seed = derive(settings.seed, task.content, "region")
        self._rest = _hash_rest(model)
        self._base = extract(model, free)
        self._model = strategy.model
        self._head_before = snapshot(task.head)
        self._start_(free)
        self._until_closed = ExitStack()
        # No open `with` block: one that is forgotten ends, and seeds, when memory is freed.
        self._until_closed.callback(save_generators())
        self._until_closed.enter_context(train_only(strategy.model))
        if not settings.dropout:
            self._until_closed.enter_context(dropout_off(strategy.model))
        self._live = self._until_closed.enter_context(RegionParameters(model, free))
        self._heads = HeldHeads(model, label, values=False)
        self._optimizer = strategy.optimizer
        self._groups = [list(group["params"]) for group in self._optimizer.param_groups]
        self._enter_optimizer()
        strategy.model.train()
        self._seen = self._versions()
        self._steps = 0
        self._best: tuple[float, Tensor, dict[str, Tensor]] | None = None
        if not len(free) and free.layout.total:
            logger.warning(
                "task %s: no coordinate of its region is free, the earlier tasks answer it%s",
                label,
                " through its own head" if task.head else "",
            )
        if not settings.retrain or not (len(free) or task.head):
            strategy.stop_training()

    def _start_(self, free: Region) -> None:
        """Write the values at which the region's free coordinates and the head begin."""
        task, settings, dense = self._task, self._settings, self._search.dense
        copy_(task.head, dense.head)
        if not settings.retrain:
            write_(self._unwrapped, gather(dense.tuned, free))
            self._refit_head_()

    def _enter_optimizer(self) -> None:
        """Give the optimiser the region, in its first group, and the head, in its last."""
        head = list(self._task.head.values())
        for parameter in head:
            parameter.requires_grad_(True)
        groups = self._optimizer.param_groups
        for group in groups:
            group["params"] = []
        groups[0]["params"] += [self._live.vector] if self._live.vector.numel() else []
        groups[-1]["params"] += head
        self._optimizer.state = defaultdict(dict)

    def seed(self, what: str, number: int) -> None:
        """Make torch's global generator a function of (seed, task, what, number)."""
        if what == "step":
            check_generators()
        seed_generators(derive(self._seed, what, number))

    def write_(self) -> None:
        """Write the region's current values into the model."""
        self._live.write_()
        self._seen = self._versions()

    def end_step(self, *, rows: int) -> None:
        """Count a step, and every `evaluate_every` steps score dev and keep the best values."""
        check_generators()
        self._steps += 1
        self.passes["region"] += Passes(forward_backward=rows)
        every = self._settings.evaluate_every
        if every and self._steps % every == 0:
            self._remember()

    def state(self) -> State:
        """Return what is held beside the values that the optimiser trains."""
        score, vector, head = self._best or (None, None, {})
        tensors = join_tensors(
            best={"vector": vector} if vector is not None else {},
            head={str(number): tensor for number, tensor in enumerate(head.values())},
        )
        passes = asdict(self.passes["region"])
        return tensors, {"steps": self._steps, "passes": passes, "score": score}

    def load_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Take over the state of another training of the task, but for the trained values."""
        self._steps = values["steps"]
        self.passes["region"] = Passes(**values["passes"])
        if values["score"] is not None:
            vector = select_tensors(tensors, "best")["vector"].to(self._live.vector.device)
            saved = select_tensors(tensors, "head")
            head = {
                name: saved[str(number)].to(parameter.device)
                for number, (name, parameter) in enumerate(self._task.head.items())
            }
            self._best = (values["score"], vector, head)
        self.write_()

    def read_(self) -> None:
        """Take over what another plugin wrote into the model, as early stopping does."""
        if not self._suspended and self._versions() != self._seen:
            self._live.read_()
            self._seen = self._versions()

    def suspend(self) -> None:
        """Carry the earlier entries alone, so that the switch may be moved for an evaluation."""
        foreign = self._versions() != self._seen
        self.read_()
        write_(self._unwrapped, self._base)
        if not foreign:
            self.switch.accept_writes()
        self._suspended = True

    def restore(self) -> None:
        """Carry the earlier entries, the live region and head, also if Avalanche grew the head."""
        self._heads.put_back_()
        if self._suspended:
            self.switch.carry_entries(self._builds_on)
            self._suspended = False
            self.write_()

    def commit(self, metadata: TaskMetadata) -> GraftBank:
        """End the training and return the bank with the task's entry."""
        self.restore()
        self._live.read_()
        trained_dev = self._recall_()
        owned = self._live.graft()
        if not all(bool(t.isfinite().all()) for t in (owned.values, *self._task.head.values())):
            self.abandon()
            raise DivergedError(
                f"weights are NaN or infinite after {self._steps} steps of region training; a "
                "lower lr usually helps"
            )
        self._close()
        self._model.eval()
        self._check_rest()
        write_(self._unwrapped, owned)
        bank = self.switch.bank
        layout = bank.layout
        self.seconds["region"] = time.perf_counter() - self._started
        search = self._search
        entry = Entry(
            task=metadata.name,
            label=self.label,
            owned=owned,
            owned_before=search.region - owned.region,
            head=copy_head_state(self._unwrapped, self.label),
            standalone=gather(search.dense.tuned, search.region)
            if self._settings.keep_standalone and search.dense.tuned
            else None,
            weights_sha256=hash_tensors(find_parameters(self._unwrapped, layout)),
            recorded_batch=self._recorded_batch(),
            metadata={
                **metadata.metadata,
                "metric": "negative loss" if self._task.scored_by_loss else metadata.metric,
                "localizer": search.localizer,
                **({} if search.seed is None else {"region_seed": search.seed}),
                "dense_dev": search.dense.dev,
                "graft_dev": search.graft_dev,
                "trained_dev": trained_dev,
                "temperature": self._temperature(),
            },
            builds_on=self._builds_on,
        )
        grown = bank.append(entry)
        self.switch.extend(grown, base=self._base)
        self._model.train()
        return grown

    def abandon(self) -> None:
        """Put model, head, optimiser and generator back as they were before."""
        self._close()
        copy_(self._task.head, self._head_before)

    def _close(self) -> None:
        """Put back everything but the head."""
        self.restore()
        self._until_closed.close()
        write_(self._unwrapped, self._base)
        for group, parameters in zip(self._optimizer.param_groups, self._groups, strict=True):
            group["params"] = parameters
        self._optimizer.state = defaultdict(dict)

    def _refit_head_(self) -> None:
        """Fit the head to the region's dense values: that of the dense run fits all of them."""
        rows = self._settings.head_refit_rows
        if rows and self._task.head:
            copy_(self._task.head, fit_head(self._task, rows=rows, seed=self._seed))
            self.passes["region"] += count_fit_passes(self._task, rows=rows)

    def _check_rest(self) -> None:
        """Raise RuntimeError if a bit outside the region and the heads changed in training."""
        now = _hash_rest(self._unwrapped)
        changed = [name for name, digest in now.items() if digest != self._rest.get(name)]
        if not changed:
            return
        parameters = parameters_by_name(self._unwrapped)
        if any(name in parameters for name in changed):
            raise RuntimeError(
                f"weights outside the region changed while the region trained ({len(changed)} "
                f"tensors, {changed[0]} first); is another plugin or callback writing into the "
                "model?"
            )
        raise RuntimeError(
            f"buffers changed while the region trained ({len(changed)}, {changed[0]} first): the "
            "model writes them itself in train mode, or another plugin does; earlier tasks are "
            "answered with their values of that time, so keep the module that writes them in eval "
            "mode"
        )

    def _remember(self) -> None:
        with preserve_modes(self._model):
            self._model.eval()
            score = self._task.dev_score()
        self._measure("region", "DevScore", self._steps, score)
        self.passes["region"] += Passes(forward=len(self._task.dev))
        if self._best is None or beats(score, self._best[0]):
            vector = self._live.vector.detach().clone()
            self._best = (score, vector, snapshot(self._task.head))

    def _recall_(self) -> float | None:
        """Take the values that scored best on dev; return that score, None without evaluations."""
        every = self._settings.evaluate_every
        if not every:
            return None
        if self._steps % every or not self._steps:
            self._remember()
        if self._best is None:
            return None
        score, vector, head = self._best
        with torch.no_grad():
            self._live.vector.copy_(vector)
        copy_(self._task.head, head)
        self._live.write_()
        return score

    def _versions(self) -> list[int]:
        """Return torch's counts of in-place writes into the graftable parameters."""
        return [parameter._version for parameter in self._task.parameters.values()]

    def _temperature(self) -> dict[str, Any] | None:
        """Fit the temperature that makes confidence honest on dev; None where there is none."""
        if self._task.scored_by_loss:
            return None
        fitted = fit_temperature(*self._task.dev_logits())
        self.passes["region"] += Passes(forward=len(self._task.dev))
        return asdict(fitted) if fitted else None

    def _recorded_batch(self) -> RecordedBatch | None:
        dev = self._task.dev
        count = min(_RECORDED_ROWS, len(dev))
        # Evenly spaced, as rows in the order of their lengths would be all alike at one end.
        inputs = dev.batch([number * len(dev) // count for number in range(count)])[0]
        if not isinstance(inputs, Tensor):  # a batch that only the strategy can answer
            return None
        with torch.no_grad():
            logits: Tensor = self._task.forward(inputs.to(self._task.device))
        recorded = pick_recorded(logits.float().cpu(), inputs)
        return RecordedBatch(inputs, recorded, environment(self._task.device))


def _hash_rest(model: nn.Module) -> dict[str, str]:
    """Hash each parameter and buffer outside the task heads, as the model stands."""
    prefixes = tuple(f"{path}." if path else "" for path in find_head_paths(model))
    tensors = tensors_by_name(model)
    return {
        name: hash_tensors({name: tensor})
        for name, tensor in tensors.items()
        if not (prefixes and name.startswith(prefixes))
    }
