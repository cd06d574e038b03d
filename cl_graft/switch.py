"""Switching: from the answer of one task to that of another, in place and bit for bit.

What a jump writes is laid out beforehand: for every parameter that the bank touches, the
coordinates of all entries, entry after entry, with their values in the bank and at the base. A
jump then writes one contiguous part a parameter, so its cost follows the number of coordinates
that differ; with flat storage it is one write altogether.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from cl_graft.bank import GraftBank
from cl_graft.flat import flatten_
from cl_graft.graft import Graft, named
from cl_graft.region import Region

__all__ = ["Switch"]


class Switch:
    """Moves a model between the answers of a bank, writing only the coordinates that differ.

    The model must be at its base when the switch is made. Its parameters may move afterwards
    (`.to(…)`, `load_state_dict(assign=True)`): the next jump follows them.

    Args:
        model: The model.
        bank: What it can carry.
        flat: Whether to put the graftable parameters into one buffer (`flatten_`): jumps take a
            tenth of the time, and the parameters stay views of the buffer.

    Attributes:
        bank: What the model can carry.
        position: The entry whose answer the model carries, None for the bare base.
    """

    def __init__(self, model: nn.Module, bank: GraftBank, *, flat: bool = False) -> None:
        owned = [entry.owned for entry in bank.entries]
        if bank.mode == "prefix" and len(bank.owned()) != sum(map(len, owned)):
            raise ValueError("the bank is in prefix mode, but a coordinate has two owners")
        self.bank = bank
        self.position: int | None = None
        self._model = model
        self._flat = flat
        self._plans: dict[str, _Plan] = {}
        self._bound: _Bound | None = None
        tensors = self._bind().tensors
        chunks: dict[str, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)
        for number, graft in enumerate(owned):
            for name, inside, place in self._parts(graft.region):
                chunks[name].append((number, inside, graft.values[place]))
        for name, parts in chunks.items():
            index = torch.cat([inside for _, inside, _ in parts]).to(tensors[name].device)
            values = torch.cat([values for _, _, values in parts]).to(tensors[name])
            sizes = torch.zeros(len(owned) + 1, dtype=torch.int64)
            for number, inside, _ in parts:
                sizes[number + 1] = len(inside)
            cuts = sizes.cumsum(0).tolist()
            self._plans[name] = _Plan(index, values, tensors[name][index], cuts)

    @property
    def model(self) -> nn.Module:
        """The model; setting it goes on with a copy that carries what the old one carried."""
        return self._model

    @model.setter
    def model(self, model: nn.Module) -> None:
        self._model = model
        self._bound = None

    def to(self, position: int | None) -> None:
        """Make the model carry the answer of entry `position`, None for the base."""
        if position == self.position:
            return
        if position is not None and not 0 <= position < len(self.bank):
            raise ValueError(f"position must be in [0, {len(self.bank)}) or None, got {position}")
        if self.bank.mode == "prefix":
            now, then = _count(self.position), _count(position)
            self._write_(min(now, then), max(now, then), base=then < now)
        else:
            if self.position is not None:
                self._write_(self.position, self.position + 1, base=True)
            if position is not None:
                self._write_(position, position + 1, base=False)
        self.position = position

    @contextmanager
    def carrying(self, position: int | None) -> Iterator[nn.Module]:
        """Carry the answer of an entry for a `with` block, then go back."""
        before = self.position
        self.to(position)
        try:
            yield self._model
        finally:
            self.to(before)

    def extend(self, bank: GraftBank, *, base: Graft) -> None:
        """Take over a bank that has grown by one entry, whose values the model carries already.

        Args:
            bank: The current bank with one entry more.
            base: The base values on the new entry's coordinates.
        """
        before = len(self.bank)
        if len(bank) != before + 1:
            raise ValueError(f"expected a bank of {before + 1} entries, got {len(bank)}")
        owned = bank.entries[-1].owned
        base = base.on(owned.region)
        tensors = self._follow().tensors
        for name, inside, place in self._parts(owned.region):
            if name not in self._plans:
                self._plans[name] = _Plan.empty(tensors[name])
            self._plans[name].append(before, inside, owned.values[place], base.values[place])
        self.bank = bank
        self.position = before

    def _write_(self, low: int, high: int, *, base: bool) -> None:
        """Write the values of entries `low` <= i < `high`, or the base below them."""
        bound = self._follow()
        for name, plan in self._plans.items():
            part = plan.part(low, high)
            if part is not None:
                values = plan.base if base else plan.values
                bound.tensors[name].index_copy_(0, plan.index[part], values[part])
        if self._flat:
            increment_version(bound.parameters)

    def _parts(self, region: Region) -> Iterable[tuple[str, Tensor, slice]]:
        """Walk what `_bind` names: the parameters, or the one buffer under the name ``""``."""
        return [("", region.index, slice(None))] if self._flat else region.by_parameter()

    def _follow(self) -> _Bound:
        """Return where to write, found anew if a parameter is not where it was."""
        if self._bound is None or not self._bound.holds():
            return self._bind()
        return self._bound

    def _bind(self) -> _Bound:
        layout = self.bank.layout
        tensors = {"": flatten_(self._model, layout)} if self._flat else {}
        parameters = named(self._model, layout)
        if not self._flat:
            tensors = {name: p.detach().view(-1) for name, p in parameters.items()}
        for name, plan in self._plans.items():
            plan.move_(tensors[name])
        slots = []
        for name, parameter in parameters.items():
            path, _, key = name.rpartition(".")
            slots.append((self._model.get_submodule(path)._parameters, key, parameter.data_ptr()))
        self._bound = _Bound(tensors, list(parameters.values()), slots)
        return self._bound

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the views: in a copy they would not be views of the copied model."""
        return self.__dict__ | {"_bound": None}


@dataclass(frozen=True, eq=False)
class _Bound:
    """Where a model's parameters are now.

    Attributes:
        tensors: What to write into, flat views of parameters by name or the buffer.
        parameters: The parameters of the layout.
        slots: For each, the module's dictionary and key that hold it, and its memory address.
    """

    tensors: dict[str, Tensor]
    parameters: list[nn.Parameter]
    slots: list[tuple[dict[str, nn.Parameter | None], str, int]]

    def holds(self) -> bool:
        """Tell whether every parameter is where it was; the views keep their memory in use."""
        for owner, key, place in self.slots:
            parameter = owner.get(key)
            if parameter is None or parameter.data_ptr() != place:
                return False
        return True


@dataclass(eq=False)
class _Plan:
    """What all entries write into one tensor, entry after entry.

    Attributes:
        index: Places in the tensor, int64; it may be longer than what is used so far.
        values: The values of the entries there, in the tensor's dtype.
        base: The values of the base there.
        cuts: Where each entry begins, and the end of the last one.
    """

    index: Tensor
    values: Tensor
    base: Tensor
    cuts: list[int]

    @classmethod
    def empty(cls, tensor: Tensor) -> _Plan:
        index = torch.empty(0, dtype=torch.int64, device=tensor.device)
        return cls(index, tensor.new_empty(0), tensor.new_empty(0), [0])

    def part(self, low: int, high: int) -> slice | None:
        """Return where entries `low` <= i < `high` stand; None if they write nothing here."""
        last = len(self.cuts) - 1
        start, end = self.cuts[min(low, last)], self.cuts[min(high, last)]
        return slice(start, end) if start < end else None

    def append(self, number: int, index: Tensor, values: Tensor, base: Tensor) -> None:
        """Add what entry `number` writes; entries in between write nothing."""
        self.cuts += [self.cuts[-1]] * (number + 1 - len(self.cuts))
        start = self.cuts[-1]
        end = start + len(index)
        if end > len(self.index):
            more = max(end, 2 * len(self.index)) - len(self.index)
            self.index, self.values, self.base = (
                torch.cat([held, held.new_empty(more)])
                for held in (self.index, self.values, self.base)
            )
        self.index[start:end] = index
        self.values[start:end] = values
        self.base[start:end] = base
        self.cuts.append(end)

    def move_(self, tensor: Tensor) -> None:
        """Follow the tensor to another device or dtype."""
        self.index = self.index.to(tensor.device)
        self.values = self.values.to(tensor)
        self.base = self.base.to(tensor)


def _count(position: int | None) -> int:
    return 0 if position is None else position + 1
