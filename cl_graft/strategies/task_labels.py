"""Task labels: the task that an experience belongs to, and the entry that it was learned into."""

from __future__ import annotations

import copy
import gc
import warnings
from collections import Counter
from typing import Any, Literal
from weakref import WeakKeyDictionary

from avalanche.benchmarks import CLScenario

from cl_graft.strategies.heads import has_task_heads
from cl_graft.strategies.strategy import Strategy

TaskLabels = Literal["stream", "experience"]
"""Source of task labels: the stream's own, or the index of the experience."""

_Known = dict[tuple[int, int], int]
"""Positions of entries in the bank, by number in the stream and task label of the experience."""

_HOW = (
    "Make the benchmark with labels: SplitMNIST(..., return_task_id=True), nc_benchmark(..., "
    "task_labels=True), or of any other one benchmark = task_incremental_benchmark(benchmark, "
    'reset_task_labels=True). Or let the index of an experience be its label: task_labels="'
    'experience" in GraftingPlugin or GraftingContinual'
)


def find_label(experience: Any, task_labels: TaskLabels = "stream") -> int | None:
    """Return the label of an experience's task; None where a stream has none."""
    if task_labels == "experience":
        return int(experience.logging().current_experience)
    labels = {int(label) for label in getattr(experience, "task_labels", ())}
    if len(labels) > 1:
        raise ValueError(
            f"an experience holds tasks {sorted(labels)}; grafting learns one task at a time"
        )
    return labels.pop() if labels else None


def has_labels(strategy: Strategy, task_labels: TaskLabels) -> bool:
    """Tell whether labels tell experiences apart; older benchmarks say 0 where they have none."""
    own = find_label(strategy.experience)
    if task_labels == "experience":
        index = find_label(strategy.experience, task_labels)
        if has_task_heads(strategy.model) and own != index:
            raise ValueError(
                f"the model answers by the stream's task labels, and experience {index} has "
                f"{'none' if own is None else f'the label {own}'}: task_labels='experience' is for "
                "models without task heads; make the benchmark with labels for this one"
            )
        return True
    if own is None or has_task_heads(strategy.model):
        return own is not None
    stream = strategy.experience.origin_stream
    if stream is None or len(stream) < 2:
        return True
    return len({int(label) for experience in stream for label in experience.task_labels}) > 1


def warn_of_no_labels() -> None:
    """Warn that nothing is protected in a stream without task labels."""
    warnings.warn(
        "the stream has no task labels: grafting needs them to keep tasks apart, so this "
        f"trains like Naive and nothing is protected from forgetting. {_HOW}",
        stacklevel=3,
    )


class ExperienceEntries:
    """Positions of entries by the benchmark, number and task label of their experience.

    A benchmark that was not trained on in this process, such as a copy, is taken for the latest
    that was, with a warning if there were several.
    """

    def __init__(self) -> None:
        self._by_benchmark: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()
        self._latest = _Latest()
        self._restored = _Latest()
        self._experiences: Counter[int] = Counter()
        self._warned = False

    def add(self, experience: Any, *, label: int, position: int) -> None:
        """Remember that an experience was learned into the entry at a position."""
        key = int(experience.current_experience), label
        known = self._by_benchmark.setdefault(find_benchmark(experience), {})
        self._latest.add(key, position, again=key in known)
        self._experiences[label] += key not in known
        known[key] = position

    def find(self, experience: Any, *, label: int) -> int | None:
        """Return the position of the entry; None if the experience was not learned."""
        key = int(experience.current_experience), label
        known = self._by_benchmark.get(find_benchmark(experience))
        if known is not None and key in known:
            return known[key]
        # What this process trained on it knows, so another benchmark is one of the process before.
        places = self._restored if known is not None or key in self._restored else self._latest
        if key in places.several:
            warnings.warn(
                f"experience {key[0]} with task label {label} was learned in several benchmarks, "
                f"and the {experience.origin_stream.name} stream is of none that this process "
                "trained on, so the newest of their entries answers it. Evaluate the streams of "
                "the benchmark that was trained on, or give each experience a label of its own",
                stacklevel=4,
            )
        return places.get(key)

    def check_label(self, label: int | None) -> None:
        """Warn once, if experiences of an evaluated label are told apart, which it does not do."""
        count = 0 if label is None else self._experiences[label]
        if count > 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f"{count} experiences were learned with task label {label}, and a test experience "
                "is answered by its own entry: these answers know the experience of every row, "
                "which the label does not tell. Class-incremental scores must not know it; a "
                "router finds it from the text. Where it is known, give each experience a label "
                "of its own",
                stacklevel=4,
            )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_by_benchmark": None, "_restored": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= copy.deepcopy(state)
        self._by_benchmark = WeakKeyDictionary()
        self._restored = copy.deepcopy(self._latest)


class _Latest(dict[tuple[int, int], int]):
    """Positions of the latest entries by number and label of the experience, in any benchmark."""

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        self.several: set[tuple[int, int]] = set()

    def add(self, key: tuple[int, int], position: int, *, again: bool) -> None:
        """Remember a position; `again` tells that its benchmark has it already."""
        if key in self and not again:
            self.several.add(key)
        self[key] = position


class _Unnamed:
    """A benchmark that its streams do not name."""


_UNNAMED: WeakKeyDictionary[Any, _Unnamed] = WeakKeyDictionary()
"""Benchmarks by stream, where streams do not name theirs."""


def find_benchmark(experience: Any) -> object:
    """Return an object that stands for the benchmark of an experience, one for all its streams.

    Where a stream does not name its benchmark, as those of `benchmark_from_datasets`, it is looked
    for among the living objects, once; a stream without one counts as a benchmark of its own.
    """
    stream = experience.origin_stream
    named = getattr(stream, "benchmark", None)
    if named is not None:
        return named
    if stream not in _UNNAMED:
        # `type`, as `isinstance` runs code of objects that stand for others.
        made = (each for each in gc.get_objects() if issubclass(type(each), CLScenario))
        streams = next(
            (all_ for all_ in (each.streams.values() for each in made) if stream in all_), (stream,)
        )
        benchmark = _Unnamed()
        for each in streams:
            _UNNAMED[each] = benchmark
    return _UNNAMED[stream]


def is_same_experience(one: Any, other: Any) -> bool:
    """Tell whether two experiences have one number in one benchmark, as test and training rows."""
    return int(one.current_experience) == int(other.current_experience) and (
        find_benchmark(one) is find_benchmark(other)
    )
