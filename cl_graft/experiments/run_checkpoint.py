"""Where a run stands between two tasks, and how another process takes it up there."""

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
from cl_graft.experiments import folders
from cl_graft.experiments.run_record import RunRecord
from cl_graft.runtime.checkpoints import State
from cl_graft.storage.checkpoint_files import FileCheckpoints
from cl_graft.strategies.loop.resuming import LOOP, make_loop_key, read_clock, set_clock_
from cl_graft.strategies.method import Method
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import cut_log

__all__ = ["STANDING", "Standing", "find_standing", "standing_facts", "take_up_"]

STANDING = "run"
"""The key of its checkpoint."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a run stands between two tasks.

    Attributes:
        learned: Tasks that are learned and measured.
        measured: Of the record, see `RunRecord.measured`.
        scores: See `StreamScores.state`.
        clock: The strategy's counters.
        log: See `OncePerStepTensorboardLogger.position`.
        origin: What decides the bits: data, model, versions, machine.
        tensors: What the strategy remembers; empty where the loop's own state holds it.
    """

    learned: int
    measured: Mapping[str, Any]
    scores: Mapping[str, Any]
    clock: Mapping[str, int]
    log: Mapping[str, int]
    origin: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, state: State) -> Standing:
        """Read tensors and what `standing_facts` returned.

        Raises:
            InputError: If another version of this package returned it.
        """
        tensors, values = state
        if set(values) | {"tensors"} != {known.name for known in fields(cls)}:
            raise InputError(
                "the checkpoints of this run were written by another version of cl_graft; go on "
                "with that one, or choose another output folder"
            )
        return cls(**values, tensors=tensors)

    @property
    def values(self) -> dict[str, Any]:
        """What `standing_facts` returned."""
        return {known.name: getattr(self, known.name) for known in fields(self)[:-1]}

    def check(self, record: RunRecord, *, folder: object) -> None:
        """Make sure that the run goes on with the data and the model that it began with.

        Versions and machine may differ, with a warning: the run goes on, but other bits may come
        out.

        Raises:
            InputError: If data or model changed.
        """
        now = _origin(record)
        changed = [what for what in ("data", "model") if self.origin[what] != now[what]]
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


def find_standing(
    folder: Path, row: Method, record: RunRecord, checkpoints: FileCheckpoints
) -> Standing | None:
    """Return where a run stands, with its log cut back to where it goes on.

    None if it has to begin: its folder is made ready for that.

    Args:
        folder: The run's.
        row: Its strategy.
        record: What this process knows of it before the first step.
        checkpoints: Its checkpoints.

    Raises:
        InputError: If data or model changed, or the folder holds files of others.
    """
    folders.sweep(folder)
    found: list[Standing] = []
    if row.is_resumable:
        if (state := checkpoints.load(STANDING)) is not None:
            found.append(Standing.of(state))
        if (loop := checkpoints.latest(LOOP)) is not None:
            # A loop knows where it began, and trains all that the strategy remembers.
            found.append(Standing.of(({}, loop[1]["standing"])))
    if not found:
        # A dense run stands by itself.
        folders.clear_unfinished(folder, keep=[folders.CONFIG, folders.CHECKPOINTS])
        checkpoints.clear(but="dense")
        return None
    standing = max(found, key=lambda one: one.learned)
    standing.check(record, folder=folder)
    own = checkpoints.load(make_loop_key(standing.learned))
    cut_log(folder / folders.CURVES, standing.log if own is None else own[1]["log"])
    return standing


def standing_facts(
    strategy: SupervisedTemplate,
    record: RunRecord,
    scores: StreamScores,
    *,
    learned: int,
    log: Mapping[str, int],
) -> dict[str, Any]:
    """Return where a run stands, for `Standing.of`; what goes on later changes nothing of it."""
    return {
        "learned": learned,
        "measured": deepcopy(record.measured()),
        "scores": scores.state(),
        "clock": read_clock(strategy),
        "log": log,
        "origin": _origin(record),
    }


def take_up_(
    standing: Standing,
    strategy: SupervisedTemplate,
    method: Method,
    scores: StreamScores,
    *,
    train: Sequence[Any],
    asked: Sequence[Any],
) -> None:
    """Put a new strategy where a run stands.

    Args:
        standing: Where.
        strategy: The strategy, on a model at its base.
        method: The strategy's.
        scores: Gets the scores so far.
        train: All training experiences.
        asked: Test experiences that the model was asked before any training.
    """
    # As if the strategy had met the experiences: heads are made, and put into the optimiser, in the
    # order in which they were.
    strategy.model.train()
    for experience in asked:
        strategy.experience = experience
        strategy.model_adaptation()
    for experience in train[: standing.learned]:
        strategy.experience = experience
        strategy.check_model_and_optimizer()
    strategy.experience = None
    if standing.learned:
        method.load_state_(strategy, train[: standing.learned], standing.tensors)
    set_clock_(strategy, standing.clock)
    scores.load_state_(standing.scores)


def _origin(record: RunRecord) -> dict[str, Any]:
    return {
        "data": record.data_fingerprints,
        "model": record.model["fingerprint"],
        "versions": record.versions,
        "machine": record.machine,
    }
