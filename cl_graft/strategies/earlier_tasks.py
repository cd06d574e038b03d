"""The choice of the earlier tasks that a task builds on.

A task may be answered on top of all earlier tasks, of some, or of none. Related tasks help each
other and unrelated ones may hurt, so the choice can be made on dev. While the model carries the
values of a candidate's tasks, a head is fitted to the features of a few training rows. The
candidate whose head scores best on dev is chosen. This takes forward passes only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cl_graft.errors import InputError, nearest
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.inference.task_switch import Switch
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import FoundRegion
from cl_graft.runtime.cache import Cache, cache_key
from cl_graft.runtime.seeding import derive
from cl_graft.training.dense_run import Progress, ignore_progress
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.linear_probe import count_probe_passes, score_fitted_head
from cl_graft.training.passes import Passes

__all__ = ["EarlierTasks", "choose_earlier", "list_candidates"]

_PHASE = "earlier"
_ROWS = 128
"""Training rows that a head is fitted to."""

_MOST_SINGLE = 4
"""Largest number of earlier tasks that are tried one by one."""


@dataclass(frozen=True)
class EarlierTasks:
    """The earlier entries that a task builds on.

    Attributes:
        positions: Positions of the entries in the bank, ascending.
        scores: Candidates (positions of entries) with their scores on dev, the longest candidate
            first; empty if none were compared.
        seconds: Wall time of the choice, in seconds.
        passes: Rows that the choice takes; they count also where the cache had the scores.
    """

    positions: tuple[int, ...]
    scores: tuple[tuple[tuple[int, ...], float], ...] = ()
    seconds: float = 0.0
    passes: Passes = Passes()  # noqa: RUF009  # frozen

    def describe(self, bank: GraftBank) -> str:
        """Say which tasks it builds on, and with which score."""
        names = ", ".join(bank.entries[place].task for place in self.positions) or "the base alone"
        scores = dict(self.scores)
        chosen = scores.pop(self.positions)
        others = ", ".join(f"{score:.3f}" for score in scores.values())
        return f"builds on {names}: {chosen:.3f} on dev, others {others}"

    def count(self, found: FoundRegion) -> FoundRegion:
        """Return a task's region with the time and rows of this choice added, if one was made."""
        if not self.scores:
            return found
        return replace(
            found,
            seconds={_PHASE: self.seconds, **found.seconds},
            passes={_PHASE: self.passes, **found.passes},
        )


def choose_earlier(
    task: LearnableTask,
    settings: GraftingSettings,
    switch: Switch,
    *,
    names: Iterable[str] = (),
    label_names: object = None,
    cache: Cache | None = None,
    progress: Progress = ignore_progress,
) -> EarlierTasks:
    """Choose the earlier tasks that a task builds on, by its settings.

    Args:
        task: The task, on the switch's model at its base, which is put back there.
        settings: Settings of the task; only `builds_on` and `may_build_on` are read.
        switch: Switch of the bank of the earlier tasks.
        names: Names of all tasks of the stream, learned or not.
        label_names: Names of the task's labels; None where they are not known.
        cache: Cache of the candidates' scores.
        progress: Called after each candidate.

    Raises:
        InputError: If `may_build_on` names an unknown task.
        DivergedError: If a feature is NaN or infinite.
    """
    bank = switch.bank
    allowed = _find_allowed(bank, settings, names)
    can_choose = settings.builds_on == "dev" and (task.head_module is not None or not task.head)
    if bank.mode == "isolated" or settings.builds_on == "none" or not allowed:
        return EarlierTasks(())
    if not can_choose:
        return EarlierTasks(allowed)
    started = time.perf_counter()
    candidates = list_candidates(bank, allowed, label_names=label_names)
    scores: list[tuple[tuple[int, ...], float]] = []
    with preserve_modes(task.model):
        try:
            for under in candidates:
                scores.append((under, _score(task, settings, switch, under, cache)))
                progress(_PHASE, len(scores), len(candidates))
        finally:
            switch.to(None)
    best = max(score for _, score in scores)
    one = count_probe_passes(task, rows=_ROWS)
    return EarlierTasks(
        positions=next(under for under, score in scores if score == best),
        scores=tuple(scores),
        seconds=time.perf_counter() - started,
        passes=sum([one] * len(scores), Passes()),
    )


def list_candidates(
    bank: GraftBank, allowed: Sequence[int], *, label_names: object = None
) -> list[tuple[int, ...]]:
    """List what a task may build on, the longest first: all, single entries, and the base alone.

    A single entry comes with the entries that it builds on itself. At most four are listed: first
    those of tasks with the same labels, then the latest.

    Args:
        bank: Bank of the earlier tasks.
        allowed: Positions of entries that the task may build on, ascending.
        label_names: Names of the task's labels; None where they are not known.
    """

    def near(place: int) -> tuple[bool, int]:
        names = bank.entries[place].metadata.get("label_names")
        return label_names is not None and names == label_names, place

    single = sorted(allowed, key=near, reverse=True)[:_MOST_SINGLE]
    answers = [(*bank.builds_on(place), place) for place in single]
    found = dict.fromkeys([tuple(allowed), *answers, ()])
    return sorted(found, key=lambda under: (len(under), under), reverse=True)


def _find_allowed(
    bank: GraftBank, settings: GraftingSettings, names: Iterable[str]
) -> tuple[int, ...]:
    """Return the positions of the entries that a task may build on, and of those under them."""
    wanted = settings.may_build_on
    if wanted is None:
        return tuple(range(len(bank)))
    held = {entry.task for entry in bank.entries}
    known = held | set(names)
    for name in wanted:
        if name not in known:
            raise InputError(f"builds_on: no task {name!r} here; {nearest(name, known)}")
    found: set[int] = set()
    for place, entry in enumerate(bank.entries):
        if entry.task in wanted:
            found |= {*bank.builds_on(place), place}
    return tuple(sorted(found))


def _score(
    task: LearnableTask,
    settings: GraftingSettings,
    switch: Switch,
    under: tuple[int, ...],
    cache: Cache | None,
) -> float:
    """Return the score on dev of a head that is fitted while the model carries some entries."""
    owned = {
        f"{number}.{part}": tensor
        for number, place in enumerate(under)
        for part, tensor in (
            ("index", switch.bank.entries[place].owned.region.index),
            ("values", switch.bank.entries[place].owned.values),
        )
    }
    recipe = {"under": hash_tensors(owned), "rows": _ROWS}
    key = cache_key(_PHASE, task.identity, recipe, settings.seed)
    kept = cache.get(key) if cache is not None else None
    if kept is not None:
        return float(kept[1]["score"])
    switch.carry_entries(under)
    seed = derive(settings.seed, task.content, _PHASE)
    head, score = score_fitted_head(task, rows=_ROWS, seed=seed)
    if cache is not None:
        cache.put(key, task.to_cache(head), {"score": score})
    return score
