"""Graft banks: the grafts of all learned tasks of one frozen model, in their order.

A bank is an ordered list of entries, one a learned task. In *prefix* mode (the paper's, App. C.3)
a coordinate has one owner, the first task that trained it, and task n is answered by the base
with the values of entries 1..n. In *isolated* mode every entry stands alone on the base and
coordinates may be shared. An entry of a prefix bank may also name the earlier entries that it
builds on: it owns no coordinate of theirs, may share those of the others, and is answered by the
base with their values and its own. Either way the values of an entry never change, so what answers
a task today are the bits that answered it on the day it was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal
from unicodedata import normalize

import torch
from torch import Tensor

from cl_graft.errors import InputError, nearest
from cl_graft.grafts.graft import Graft, overlay
from cl_graft.grafts.region import Layout, Region, union

Mode = Literal["prefix", "isolated"]

_MOST_DIGITS = 9  # digits of a position
_SHOWN = 5  # tasks that the representation of a bank names


@dataclass(frozen=True)
class BaseIdentity:
    """The base model a bank belongs to.

    Attributes:
        fingerprint: SHA-256 over every parameter and buffer outside the heads and the tokenizer.
        model: Hub name or path that the model came from.
        dtype: Dtype of the graft values, as ``"float32"``.
        metadata: JSON values that rebuild the model, and tell its weights from others.
    """

    fingerprint: str
    model: str
    dtype: str
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def weights_sha256(self) -> str:
        """SHA-256 over every parameter and buffer outside the heads; empty if not recorded."""
        value = self.metadata.get("weights_sha256")
        return value if isinstance(value, str) else ""

    @property
    def heads(self) -> tuple[str, ...]:
        """Module paths of the task heads, which are no part of the base."""
        paths = self.metadata.get("heads")
        return tuple(str(path) for path in paths) if isinstance(paths, list) else ("heads",)


@dataclass(frozen=True, eq=False)
class RecordedBatch:
    """A batch and its logits, recorded when a task was learned, to check later.

    Attributes:
        inputs: Encoded batch.
        logits: Logits of the batch, (rows, classes); for answers at tokens the values that
            `pick_recorded` picks.
        environment: Threads, device and versions of the recording, under which bits are promised.
    """

    inputs: Tensor
    logits: Tensor
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        return f"RecordedBatch({len(self.inputs)} rows, logits of shape {tuple(self.logits.shape)})"


_RECORDED_TOKENS = 8
_RECORDED_VALUES = 64


def pick_recorded(outputs: Tensor, inputs: Tensor) -> Tensor:
    """Return the part of a model's outputs, (n, …), that an entry records, (rows, values).

    Outputs of rows, (n, K) or (n,), are recorded whole. Where a model answers at tokens, a row has
    thousands of logits, so up to 64 are taken, evenly, of the last 8 tokens that all rows have. For
    other outputs with more than two axes, they are taken from all values.
    """
    if outputs.ndim < 3:
        return outputs.view(len(outputs), -1)
    picked, length = outputs, inputs.shape[-1]
    axis = next((axis for axis in range(1, outputs.ndim) if outputs.shape[axis] == length), None)
    if axis is not None and inputs.shape[1:-1] == (2,):
        shortest = int((inputs[:, 1] != 0).sum(1).min())
        first = max(0, shortest - _RECORDED_TOKENS)
        picked = outputs.narrow(axis, first, shortest - first)
    values = picked.flatten(1)
    places = torch.linspace(0, values.shape[1] - 1, min(_RECORDED_VALUES, values.shape[1]))
    return values[:, places.round().long()].contiguous()


@dataclass(frozen=True, eq=False)
class StoredEntry:
    """An entry in a file: its line in the index of a bank, the bank's folder, and what reads it.

    The line has the number of coordinates of its region γ_n, `size`, and of those `owned`.
    """

    layout: Layout
    read: Callable[[], Entry]
    line: Mapping[str, Any]
    folder: str


@dataclass(frozen=True, eq=False)
class Entry:
    """The values, head and metadata that one learned task leaves behind.

    Attributes:
        task: Name of the task.
        label: Task label that the entry answers.
        owned: Values trained on the free part of γ_n, the region that localization chose.
        owned_before: Rest of γ_n, which the earlier tasks that it builds on own.
        head: State of the task's head, names relative to the head; empty for prompts.
        standalone: Values of the independent dense run on all of γ_n; None if they were not kept.
        weights_sha256: Hash of the graftable weights that answer the task.
        recorded_batch: Batch and logits to verify the task with; None if none was kept.
        metadata: Label names, prompt, scores…; JSON values only.
        builds_on: Positions of the earlier entries whose values lie under its own when it is
            answered, ascending; None means those that the bank's mode says, all or none.
    """

    task: str
    label: int
    owned: Graft
    owned_before: Region
    head: Mapping[str, Tensor] = field(default_factory=dict)
    # Factories, so that the class holds no default that an entry in a file would seem to have.
    standalone: Graft | None = field(default_factory=lambda: None)
    weights_sha256: str = ""
    recorded_batch: RecordedBatch | None = field(default_factory=lambda: None)
    metadata: Mapping[str, object] = field(default_factory=dict)
    builds_on: tuple[int, ...] | None = None
    stored: ClassVar[StoredEntry | None] = None
    """File of the entry, in an instance that was made by `in_file`."""

    def __post_init__(self) -> None:
        if both := self.size - len(self.region):
            raise ValueError(f"entry {self.task!r} owns {both} coordinates that earlier tasks own")

    def __repr__(self) -> str:
        return (
            f"Entry({self.task!r}, label {self.label}, owns {self.owned_size:,} of the "
            f"{self.size:,} coordinates of its region)"
        )

    @classmethod
    def in_file(cls, stored: StoredEntry, **known: Any) -> Entry:
        """Return an entry whose file is read when something else than `known` is asked for."""
        entry = object.__new__(cls)
        entry.__dict__.update(known, stored=stored)
        return entry

    def __getattr__(self, name: str) -> Any:
        """Read the file of an entry that was not read so far."""
        stored = self.stored
        if stored is None or name not in Entry.__dataclass_fields__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        whole = stored.read()
        for key in Entry.__dataclass_fields__:
            self.__dict__.setdefault(key, getattr(whole, key))
        return self.__dict__[name]

    @property
    def is_read(self) -> bool:
        """Whether its values are in memory."""
        return "owned" in self.__dict__

    def check_when_read(self, check: Callable[[Entry], None]) -> Entry:
        """Return the entry, checked now if it is in memory, else as soon as its file is read."""
        if self.stored is None or self.is_read:
            check(self)
            return self
        other = object.__new__(Entry)
        read = partial(_read_and_check, self.stored.read, check)
        other.__dict__.update(self.__dict__, stored=replace(self.stored, read=read))
        return other

    def renumber(self, *, label: int, builds_on: tuple[int, ...] | None) -> Entry:
        """Return the entry with another label and other positions; its file is not read for it."""
        other = object.__new__(Entry)
        other.__dict__.update(self.__dict__, label=label, builds_on=builds_on)
        return other

    @property
    def layout(self) -> Layout:
        """Layout of the parameters that its coordinates count through."""
        return self.owned_before.layout if self.stored is None else self.stored.layout

    @property
    def size(self) -> int:
        """Number of coordinates of γ_n."""
        if self.stored is not None:
            return self.stored.line["size"]
        return len(self.owned) + len(self.owned_before)

    @property
    def owned_size(self) -> int:
        """Number of coordinates that it owns."""
        return len(self.owned) if self.stored is None else self.stored.line["owned"]

    @property
    def density(self) -> float:
        """Size of γ_n over all coordinates, in [0, 1]; 0 where there are none."""
        return self.size / self.layout.total if self.size else 0.0

    @property
    def share_owned_before(self) -> float:
        """Share of γ_n that earlier tasks own, in [0, 1]; 0 for an empty region."""
        return (self.size - self.owned_size) / self.size if self.size else 0.0

    @property
    def region(self) -> Region:
        """The whole region γ_n, computed at every call."""
        return self.owned.region | self.owned_before


def _read_and_check(read: Callable[[], Entry], check: Callable[[Entry], None]) -> Entry:
    entry = read()
    check(entry)
    return entry


@dataclass(frozen=True, eq=False)
class GraftBank:
    """The ordered entries of one base model.

    Attributes:
        layout: Layout of the graftable parameters.
        base: Base model that the bank belongs to.
        mode: ``"prefix"`` or ``"isolated"``: whether entries 1..n answer task n, or entry n alone,
            where an entry does not say what it builds on.
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
            f"{f' ({shown})' if names else ''}, {self.mode} mode, {self.count_owned():,} of "
            f"{self.layout.total:,} coordinates owned, base {self.base.model!r})"
        )

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> GraftBank:
        """Return a bank with one entry more.

        Raises:
            ValueError: If the entry has another layout, owns a coordinate of an entry that it
                builds on, or builds on what is no earlier entry.
        """
        if entry.layout != self.layout:
            raise ValueError(f"entry {entry.task!r} belongs to a model with other parameters")
        entry = self.place(entry)
        under = entry.builds_on
        below = self._builds_on_by_mode(len(self)) if under is None else under
        if below and len(taken := entry.owned.region & self.owned(of=below)):
            raise ValueError(
                f"a coordinate has one owner, but {len(taken)} of {entry.task!r} are taken already"
            )
        return replace(self, entries=(*self.entries, entry))

    def extend(self, entries: Sequence[Entry]) -> GraftBank:
        """Return a bank with entries more, as `append` one after the other would, but at once."""
        grown = replace(self, entries=(*self.entries, *entries))
        same = all(entry.layout == self.layout for entry in entries)
        plain = all(entry.builds_on is None for entry in entries)
        if same and plain and (self.mode == "isolated" or not grown.shares_coordinates()):
            return grown
        bank = self
        for entry in entries:  # to find out which one is at fault
            bank = bank.append(entry)
        return bank

    def owned(self, *, upto: int | None = None, of: Sequence[int] | None = None) -> Region:
        """Return the coordinates of the first `upto` entries, or of those at the positions `of`."""
        entries = self.entries[:upto] if of is None else [self.entries[number] for number in of]
        return union((entry.owned.region for entry in entries), layout=self.layout)

    def count_owned(self) -> int:
        """Return how many coordinates have an owner."""
        if self.mode == "prefix" and self.builds_by_mode:
            return sum(entry.owned_size for entry in self.entries)
        return len(self.owned())

    def shares_coordinates(self, of: Sequence[int] | None = None) -> bool:
        """Tell whether a coordinate has several owners among some entries; None means all."""
        entries = self.entries if of is None else [self.entries[position] for position in of]
        return sum(entry.owned_size for entry in entries) > len(self.owned(of=of))

    @property
    def builds_by_mode(self) -> bool:
        """Whether every entry builds on what the mode says, all before it or none."""
        return all(entry.builds_on is None for entry in self.entries)

    @property
    def may_share(self) -> bool:
        """Whether a coordinate may have several owners; it may where entries were not read."""
        if self.mode == "isolated":
            return True
        is_known = all(entry.is_read for entry in self.entries)
        return not self.builds_by_mode and not (is_known and not self.shares_coordinates())

    def check_owners(self, positions: Collection[int] | None = None) -> None:
        """Refuse entries (None: all) that own coordinates of those that they build on."""
        if positions is None or (self.mode == "prefix" and self.builds_by_mode):
            last = len(self) if positions is None else max(positions, default=-1) + 1
            replace(self, entries=()).extend(self.entries[:last])
            return
        for position in positions:
            replace(self, entries=self.entries[:position]).append(self.entries[position])

    def builds_on(self, position: int) -> tuple[int, ...]:
        """Return the entries whose values lie under those of entry `position`, ascending."""
        named = self.entries[position].builds_on
        return self._builds_on_by_mode(position) if named is None else named

    def free(self, region: Region, *, builds_on: Sequence[int] | None = None) -> Region:
        """Return what a new task may train: `region` minus what those that it builds on own.

        None means the entries that the mode says.
        """
        under = self._builds_on_by_mode(len(self)) if builds_on is None else builds_on
        return region - self.owned(of=under) if under else region

    def answer(self, position: int) -> Graft:
        """Return the graft that answers entry `position`: its values over those it builds on.

        Where two of these entries share a coordinate, the later one's value stands.
        """
        if not 0 <= position < len(self):
            raise ValueError(f"position must be in [0, {len(self)}), got {position}")
        if self.mode == "isolated":
            return self.entries[position].owned
        grafts = [self.entries[below].owned for below in (*self.builds_on(position), position)]
        return overlay(grafts, layout=self.layout, dtype=getattr(torch, self.base.dtype))

    def without(self, positions: Collection[int]) -> GraftBank:
        """Return the bank without some entries; the others build on what is left of theirs."""
        left = [position for position in range(len(self)) if position not in positions]
        number = {position: now for now, position in enumerate(left)}
        bank = replace(self, entries=())
        for position in left:
            entry = self.entries[position]
            if entry.builds_on is not None:
                under = tuple(number[below] for below in entry.builds_on if below in number)
                entry = bank.place(entry.renumber(label=entry.label, builds_on=under))
            bank = replace(bank, entries=(*bank.entries, entry))
        return bank

    def find(self, *, label: int) -> int | None:
        """Return the position of the latest entry that answers a task label; None if unknown."""
        positions = [i for i, entry in enumerate(self.entries) if entry.label == label]
        return positions[-1] if positions else None

    def _builds_on_by_mode(self, position: int) -> tuple[int, ...]:
        return tuple(range(position)) if self.mode == "prefix" else ()

    def place(self, entry: Entry) -> Entry:
        """Return an entry as the next one, which says what it builds on only where it must."""
        under, position = entry.builds_on, len(self)
        if under is None:
            return entry
        if under == self._builds_on_by_mode(position):
            return entry.renumber(label=entry.label, builds_on=None)
        check_builds_on(under, position)
        if self.mode == "isolated":
            raise ValueError(f"in isolated mode entries stand alone, {entry.task!r} does not")
        return entry


def check_builds_on(positions: Sequence[object], position: int) -> None:
    """Refuse positions that entry `position` cannot build on: they ascend and lie below it."""
    whole = [below for below in positions if type(below) is int and 0 <= below < position]
    if len(whole) < len(positions) or sorted(set(whole)) != whole:
        shown = repr(list(positions[:_SHOWN]))[:80]
        raise ValueError(
            f"entry {position} builds on ascending positions below its own, got {shown}"
        )


def find_entry(bank: GraftBank, task: str | int) -> int:
    """Return the position of an entry, by position or as the latest of a task's name.

    Where no task is called so, a name of digits is a position; `InputError` says there is none.
    """
    if not isinstance(task, str | int) or isinstance(task, bool):
        raise InputError(f"a task is asked by its name or its entry's position, got {task!r:.80}")
    if isinstance(task, str):
        if positions := find_entries(bank, task):
            return positions[-1]
        if not task.isdecimal() or len(task) > _MOST_DIGITS:
            known = {entry.task for entry in bank.entries}
            raise InputError(f"no task {task!r} in the bank; {nearest(task, known)}")
        task = int(task)
    if not 0 <= task < len(bank):
        where = f": positions are 0 to {len(bank) - 1}" if len(bank) else ", which is empty"
        raise InputError(f"entry {task} is not in the bank{where}")
    return task


def find_entries(bank: GraftBank, task: str) -> list[int]:
    """Return the positions of all entries of a task's name, in whatever form of Unicode."""
    name = normalize("NFC", task)
    return [p for p, entry in enumerate(bank.entries) if normalize("NFC", entry.task) == name]
