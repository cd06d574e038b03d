"""The checkpoint of a run between two tasks, and how another process resumes from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.run_record import RunRecord
from cl_graft.models.config_settings import describe_other_settings
from cl_graft.runtime.checkpoints import State
from cl_graft.storage.checkpoint_files import FileCheckpoints
from cl_graft.strategies.loop.resuming import LOOP, make_loop_key, read_clock, set_clock_
from cl_graft.strategies.method import Method
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import cut_log

RUN_KEY = "run"
"""Key of the checkpoint among those of a run."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RunCheckpoint:
    """The state of a run between two tasks, of which `learned` are measured.

    Its origin are data, model, versions and machine, which decide the bits. Tensors are the state
    of the strategy; there are none where the loop's own state holds it.
    """

    learned: int
    measured: Mapping[str, Any]
    scores: Mapping[str, Any]
    clock: Mapping[str, int]
    log: Mapping[str, int]
    origin: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, state: State) -> RunCheckpoint:
        """Return the checkpoint of a state; an InputError says that another version wrote it."""
        tensors, values = state
        if set(values) | {"tensors"} != {known.name for known in fields(cls)}:
            raise InputError(
                "the checkpoints of this run were written by another version of cl_graft; go on "
                "with that one, or choose another output folder"
            )
        return cls(**values, tensors=tensors)

    @property
    def values(self) -> dict[str, Any]:
        """The values that `checkpoint_values` returned."""
        return {known.name: getattr(self, known.name) for known in fields(self)[:-1]}

    def check(self, record: RunRecord, *, folder: object) -> None:
        """Raise an InputError if data or model are not those with which the run began.

        Other versions or another machine are warned of: the bits may differ then.
        """
        now = _origin(record)
        changed = [what for what in ("data", "model") if self.origin[what] != now[what]]
        if other := describe_other_settings(self.origin.get("config"), now["config"]):
            changed.append(f"the model's config ({other})")
        if changed:
            raise InputError(
                f"{folder}: {' and '.join(changed)} changed since the run began, so it cannot go "
                "on; choose another output folder"
            )
        other = [
            f"{name} was {then.get(name)}, is {here.get(name)}"
            for then, here in ((self.origin[what], now[what]) for what in ("versions", "machine"))
            for name in sorted({*then, *here})
            if then.get(name) != here.get(name)
        ]
        if other:
            logger.warning(
                "the run goes on under other conditions, so its bits may differ from those of a "
                "run that was never interrupted: %s",
                "; ".join(other),
            )


def find_checkpoint(
    folder: Path, method: Method, record: RunRecord, checkpoints: FileCheckpoints
) -> RunCheckpoint | None:
    """Return the checkpoint from which a run resumes, and cut its log back to there.

    None if the run has to begin: its folder is emptied for that. An InputError says that data or
    model changed, or that the folder holds files of others.
    """
    folders.delete_leftovers(folder)
    found: list[RunCheckpoint] = []
    if method.is_resumable:
        if (state := checkpoints.load(RUN_KEY)) is not None:
            found.append(RunCheckpoint.of(state))
        if (loop := checkpoints.latest(LOOP)) is not None:
            # A loop stores the run's state before it, under this key of stored files. Its own state
            # holds that of the strategy.
            found.append(RunCheckpoint.of(({}, loop[1]["standing"])))
    if not found:
        # A dense run does not depend on the rest of the run.
        folders.clear_unfinished(folder, keep=[folders.CONFIG, folders.CHECKPOINTS])
        checkpoints.clear(but="dense")
        return None
    latest = max(found, key=lambda one: one.learned)
    latest.check(record, folder=folder)
    own = checkpoints.load(make_loop_key(latest.learned))
    cut_log(folders.curves_folder(folder), latest.log if own is None else own[1]["log"])
    return latest


def checkpoint_values(
    strategy: SupervisedTemplate,
    record: RunRecord,
    scores: StreamScores,
    *,
    learned: int,
    log: Mapping[str, int],
) -> dict[str, Any]:
    """Return the values of a `RunCheckpoint`; they do not change while the run continues."""
    return {
        "learned": learned,
        "measured": deepcopy(record.collect()),
        "scores": scores.state(),
        "clock": read_clock(strategy),
        "log": log,
        "origin": _origin(record),
    }


def resume_strategy_(
    checkpoint: RunCheckpoint,
    strategy: SupervisedTemplate,
    method: Method,
    scores: StreamScores,
    *,
    train: Sequence[Any],
    asked: Sequence[Any],
) -> None:
    """Bring a new strategy, on a model at its base, and the scores to the state of a checkpoint.

    Given are all training experiences, and the test experiences that the model answered before any
    training.
    """
    # Heads are made and put into the optimiser in the order in which the strategy met them.
    strategy.model.train()
    for experience in asked:
        strategy.experience = experience
        strategy.model_adaptation()
    for experience in train[: checkpoint.learned]:
        strategy.experience = experience
        strategy.check_model_and_optimizer()
    strategy.experience = None
    if checkpoint.learned:
        method.load_state_(strategy, train[: checkpoint.learned], checkpoint.tensors)
    set_clock_(strategy, checkpoint.clock)
    scores.load_state_(checkpoint.scores)


def _origin(record: RunRecord) -> dict[str, Any]:
    return {
        "data": record.data_fingerprints,
        "model": record.model["fingerprint"],
        "config": record.model["config"],
        "versions": record.versions,
        "machine": record.machine,
    }
