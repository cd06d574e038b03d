"""Graft banks: the grafts of all learned tasks of one frozen model, in their order.

A bank is an ordered list of entries, one a learned task. In *prefix* mode (the paper's, App. C.3)
a coordinate has one owner, the first task that trained it, and task n is answered by the base
with the values of entries 1..n. In *isolated* mode every entry stands alone on the base and
coordinates may be shared. Either way the values of an entry never change, so what answers a task
today are the bits that answered it on the day it was learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from cl_graft.errors import InputError, nearest
from cl_graft.grafts.graft import Graft, merge
from cl_graft.grafts.region import Layout, Region, union

__all__ = [
    "BaseIdentity",
    "Entry",
    "GraftBank",
    "Mode",
    "RecordedBatch",
    "find_entries",
    "find_entry",
]

Mode = Literal["prefix", "isolated"]

_SHOWN = 5
"""Tasks that the representation of a bank names."""


@dataclass(frozen=True)
class BaseIdentity:
    """The base model a bank belongs to.

    Attributes:
        fingerprint: SHA-256 over every parameter and buffer outside the heads and the tokenizer.
        model: Hub name or path that the model came from.
        dtype: Dtype of the graft values, as ``"float32"``.
        metadata: Values that rebuild the model (family, pooling, …), and that tell its weights
            from others (`weights_sha256`, `heads`); JSON values only.
    """

    fingerprint: str
    model: str
    dtype: str
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def weights_sha256(self) -> str:
        """SHA-256 over every parameter and buffer outside the heads; empty if not recorded."""
        found = self.metadata.get("weights_sha256")
        return found if isinstance(found, str) else ""

    @property
    def heads(self) -> tuple[str, ...]:
        """Module paths of the task heads, which are no part of the base."""
        found = self.metadata.get("heads")
        return tuple(str(path) for path in found) if isinstance(found, list) else ("heads",)


@dataclass(frozen=True, eq=False)
class RecordedBatch:
    """A batch and its logits, recorded when a task was learned, to check later (a canary).

    Attributes:
        inputs: Encoded batch.
        logits: Logits right after the task was learned, shape (rows, classes).
        environment: Threads, device and versions of the recording, under which bits are promised.
    """

    inputs: Tensor
    logits: Tensor
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        return f"RecordedBatch({len(self.inputs)} rows, logits of shape {tuple(self.logits.shape)})"


@dataclass(frozen=True, eq=False)
class Entry:
    """The values, head and metadata that one learned task leaves behind.

    Attributes:
        task: Name of the task.
        label: Task label that the entry answers.
        owned: Values trained on the free part of γ_n, the region that localization chose.
        owned_before: Rest of γ_n, which earlier tasks own.
        head: State of the task's head, names relative to the head; empty for prompts.
        standalone: Values of the independent dense run on all of γ_n; None if they were not kept.
        weights_sha256: Hash of the graftable weights that answer the task.
        recorded_batch: Batch and logits to verify the task with; None if none was kept.
        metadata: Label names, prompt, scores…; JSON values only.
    """

    task: str
    label: int
    owned: Graft
    owned_before: Region
    head: Mapping[str, Tensor] = field(default_factory=dict)
    standalone: Graft | None = None
    weights_sha256: str = ""
    recorded_batch: RecordedBatch | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if both := len(self.owned_before & self.owned.region):
            raise ValueError(f"entry {self.task!r} owns {both} coordinates that earlier tasks own")

    def __repr__(self) -> str:
        return (
            f"Entry({self.task!r}, label {self.label}, owns {len(self.owned):,} of the "
            f"{self.size:,} coordinates of its region)"
        )

    @property
    def size(self) -> int:
        """Number of coordinates of γ_n."""
        return len(self.owned) + len(self.owned_before)

    @property
    def density(self) -> float:
        """Size of γ_n over all coordinates, in [0, 1]; 0 where there are none."""
        return self.size / self.owned_before.layout.total if self.size else 0.0

    @property
    def share_owned_before(self) -> float:
        """Share of γ_n that earlier tasks own, in [0, 1]; 0 for an empty region."""
        return len(self.owned_before) / self.size if self.size else 0.0

    @property
    def region(self) -> Region:
        """The whole region γ_n, computed at every call."""
        return self.owned.region | self.owned_before


@dataclass(frozen=True, eq=False)
class GraftBank:
    """The ordered entries of one base model.

    Attributes:
        layout: Layout of the graftable parameters.
        base: Base model that the bank belongs to.
        mode: ``"prefix"`` or ``"isolated"``: whether entries 1..n answer task n, or entry n alone.
        entries: Entries, one a learned task, in the order of learning.

    Examples:
        >>> layout = Layout(("weight",), ((2, 2),))
        >>> bank = GraftBank(layout, BaseIdentity("0" * 64, "a model", "float32"))
        >>> graft = Graft(Region.of(layout, [0, 2]), torch.tensor([0.5, 1.5]))
        >>> bank = bank.append(Entry("topic", 0, graft, Region.empty(layout)))
        >>> bank.free(Region.full(layout)).index.tolist()
        [1, 3]
        >>> bank.answer(0).values.tolist()
        [0.5, 1.5]
    """

    layout: Layout
    base: BaseIdentity
    mode: Mode = "prefix"
    entries: tuple[Entry, ...] = ()

    def __repr__(self) -> str:
        names, more = [repr(entry.task) for entry in self.entries], len(self) - _SHOWN
        shown = f"{', '.join(names[:_SHOWN])}{f' and {more} more' if more > 0 else ''}"
        return (
            f"GraftBank({len(self)} {'task' if len(self) == 1 else 'tasks'}"
            f"{f' ({shown})' if names else ''}, {self.mode} mode, {len(self.owned()):,} of "
            f"{self.layout.total:,} coordinates owned, base {self.base.model!r})"
        )

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> GraftBank:
        """Return a bank with one entry more.

        Raises:
            ValueError: If the entry has another layout or, in prefix mode, owns a coordinate
                that an earlier entry owns.
        """
        if entry.owned_before.layout != self.layout:
            raise ValueError(f"entry {entry.task!r} belongs to a model with other parameters")
        if self.mode == "prefix" and len(taken := entry.owned.region & self.owned()):
            raise ValueError(
                f"a coordinate has one owner, but {len(taken)} of {entry.task!r} are taken already"
            )
        return replace(self, entries=(*self.entries, entry))

    def extend(self, entries: Sequence[Entry]) -> GraftBank:
        """Return a bank with entries more, as `append` one after the other would, but at once.

        Raises:
            ValueError: Where `append` raises it.
        """
        grown = replace(self, entries=(*self.entries, *entries))
        same = all(entry.owned_before.layout == self.layout for entry in entries)
        owned = sum(len(entry.owned) for entry in grown.entries)
        if same and (self.mode == "isolated" or len(grown.owned()) == owned):
            return grown
        bank = self
        for entry in entries:  # to find out which one is at fault
            bank = bank.append(entry)
        return bank

    def owned(self, *, upto: int | None = None) -> Region:
        """Return the coordinates owned by the first `upto` entries; None means by all."""
        return union((e.owned.region for e in self.entries[:upto]), layout=self.layout)

    def covered(self, *, upto: int | None = None) -> Region:
        """Return the union of the regions γ of the first `upto` entries; None means of all."""
        entries = self.entries[:upto]
        return union(
            (r for e in entries for r in (e.owned.region, e.owned_before)), layout=self.layout
        )

    def free(self, region: Region) -> Region:
        """Return what a new task may train: in prefix mode `region` minus what is owned."""
        return region - self.owned() if self.mode == "prefix" else region

    def answer(self, position: int) -> Graft:
        """Return the graft that answers entry `position`: ∪_{i≤n} in prefix mode, else its own."""
        if not 0 <= position < len(self):
            raise ValueError(f"position must be in [0, {len(self)}), got {position}")
        if self.mode == "isolated":
            return self.entries[position].owned
        grafts = [entry.owned for entry in self.entries[: position + 1]]
        return merge(grafts, layout=self.layout, dtype=getattr(torch, self.base.dtype))

    def find(self, *, label: int) -> int | None:
        """Return the position of the latest entry that answers a task label; None if unknown."""
        positions = [i for i, entry in enumerate(self.entries) if entry.label == label]
        return positions[-1] if positions else None


def find_entry(bank: GraftBank, task: str | int) -> int:
    """Return the position of an entry, by position or as the latest of a task's name.

    Where no task is called so, a name of digits is a position.

    Raises:
        InputError: If there is none.
    """
    if isinstance(task, int):
        if not 0 <= task < len(bank):
            raise InputError(f"entry {task} is not in the bank: positions are 0 to {len(bank) - 1}")
        return task
    positions = find_entries(bank, task)
    if not positions and task.isdecimal():
        return find_entry(bank, int(task))
    if not positions:
        raise InputError(
            f"no task {task!r} in the bank; {nearest(task, {entry.task for entry in bank.entries})}"
        )
    return positions[-1]


def find_entries(bank: GraftBank, task: str) -> list[int]:
    """Return the positions of all entries of a task's name."""
    return [position for position, entry in enumerate(bank.entries) if entry.task == task]
