"""The values that the entries of a bank write into a model, stacked entry after entry.

For each parameter, `TensorWrites` holds the coordinates of all entries with their values in the
bank and at the base. So what lies between two entries is one contiguous part, and moving a model
from one to the other is one `index_copy_` a parameter.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.graft import Graft, find_parameters
from cl_graft.grafts.region import Layout, Region
from cl_graft.runtime.tensor_names import modules_by_path

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by their bytes."""

_REMEMBERED = 64
"""Jumps whose views are kept: making them takes as long as the writing."""


Span = tuple[int, int]
"""Entries of a bank, from and to (exclusive)."""

Spans = tuple[Span, ...]
"""Runs of entries, ascending; between two of them lies at least one entry."""


def to_spans(positions: Sequence[int]) -> Spans:
    """Return ascending positions as spans."""
    spans: list[Span] = []
    for position in positions:
        if spans and spans[-1][1] == position:
            spans[-1] = spans[-1][0], position + 1
        else:
            spans.append((position, position + 1))
    return tuple(spans)


def answer_spans(bank: GraftBank, position: int | None) -> Spans:
    """Return the entries whose values answer one: its own and those that it builds on."""
    if position is None:
        return ()
    if bank.entries[position].builds_on is None:  # in one step, however long the prefix
        return ((0 if bank.mode == "prefix" else position, position + 1),)
    return to_spans((*bank.builds_on(position), position))


def subtract(spans: Spans, others: Spans) -> Spans:
    """Return the entries of `spans` that are not in `others`."""
    left: list[Span] = []
    for low, high in spans:
        for start, end in others:
            if end <= low or start >= high:
                continue
            if start > low:
                left.append((low, start))
            low = end
        if low < high:
            left.append((low, high))
    return tuple(left)


def apart(spans: Spans) -> Spans:
    """Return the entries of spans one by one, for writes whose order counts."""
    return tuple((position, position + 1) for low, high in spans for position in range(low, high))


class EntryWrites:
    """Values that the entries write into a model, by parameter.

    Parameters may move afterwards (`.to(…)`, `load_state_dict(assign=True)`): the next write
    follows them.
    """

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        self.layout = layout
        self.model = model
        self._by_tensor: dict[str, TensorWrites] = {}
        self._jumps: dict[tuple[int, int, bool], list[tuple[Tensor, Tensor, Tensor]]] = {}
        self._places = self._locate()

    def add(self, owned: Mapping[int, Graft], *, base: Graft | None = None) -> None:
        """Lay out what further entries write, over `base` or else over the model's values."""
        if not owned:
            return
        tensors = self.locate_tensors().tensors
        self._jumps.clear()
        dtype = next(iter(owned.values())).values.dtype
        starts, names = np.array(self.layout.starts), self.layout.names
        # As views of numpy: a thousand tasks have a hundred thousand parts, and torch takes ten
        # times as long to cut one out.
        chunks: list[list[tuple[int, list[np.ndarray]]]] = [[] for _ in names]
        for number, graft in owned.items():
            laid = [graft, *([] if base is None else [base.on(graft.region)])]
            whole = [graft.region.index.numpy()]
            # As whole numbers of the same bits, as numpy has no bfloat16.
            whole += [p.values.view(_WHOLE[p.values.itemsize]).numpy() for p in laid]
            cuts = np.searchsorted(whole[0], starts).tolist()
            for parts, low, high in zip(chunks, cuts[:-1], cuts[1:], strict=True):
                if low < high:
                    parts.append((number, [part[low:high] for part in whole]))
        for name, first, parts in zip(names, starts.tolist(), chunks, strict=False):
            if not parts:
                continue
            tensor = tensors[name]
            if name not in self._by_tensor:
                self._by_tensor[name] = TensorWrites.empty(tensor)
            numbers, pieces = zip(*parts, strict=True)
            sizes = [len(piece[0]) for piece in pieces]
            index, values, *below = (
                torch.from_numpy(np.concatenate(same)) for same in zip(*pieces, strict=True)
            )
            index = index.sub_(first).to(tensor.device)
            under = below[0].view(base.values.dtype) if base else tensor[index]
            self._by_tensor[name].add(numbers, sizes, index, values.view(dtype), under)

    def write_(self, low: int, high: int, *, base: bool) -> None:
        """Write the values of entries `low` <= i < `high`, or those of the base below them."""
        places = self.locate_tensors()
        key = (low, high, base)
        if key not in self._jumps:
            if len(self._jumps) == _REMEMBERED:
                self._jumps.clear()
            self._jumps[key] = [
                (places.tensors[name], *writes.views(part, base=base))
                for name, writes in self._by_tensor.items()
                if (part := writes.part(low, high)) is not None
            ]
        for tensor, index, values in self._jumps[key]:
            tensor.index_copy_(0, index, values)
        torch.clear_autocast_cache()  # of casts of the old weights

    def base_values(self) -> Graft:
        """Return the base's values wherever an entry writes."""
        starts = dict(zip(self.layout.names, self.layout.starts, strict=False))
        index, values = [torch.empty(0, dtype=torch.int64)], []
        for name, writes in self._by_tensor.items():
            end = writes.cuts[-1]
            index.append(writes.index[:end].cpu() + starts[name])
            values.append(writes.base[:end].cpu())
        where, order = torch.cat(index).sort(stable=True)
        first = torch.ones_like(where, dtype=torch.bool)
        first[1:] = where[1:] != where[:-1]  # entries in isolated mode may share coordinates
        what = torch.cat(values) if values else torch.empty(0)
        return Graft(Region(self.layout, where[first]), what[order[first]])

    def without_model(self) -> EntryWrites:
        """Return a copy that keeps no model in memory, and can only return `base_values`."""
        other = copy.copy(self)  # leaves out the views of the model
        del other.model
        return other

    def by_module(self) -> dict[str, list[tuple[str, Tensor, TensorWrites]]]:
        """Return the parameters that entries write into, by module: name, flat tensor, writes."""
        tensors = self.locate_tensors().tensors
        by_path: dict[str, list[tuple[str, Tensor, TensorWrites]]] = defaultdict(list)
        for name, writes in self._by_tensor.items():
            path, _, key = name.rpartition(".")
            by_path[path].append((key, tensors[name], writes))
        return by_path

    def locate_tensors(self) -> _Places:
        """Return the tensors to write into, found again if a parameter has moved."""
        if self._places is None or not self._places.are_current():
            self._places = self._locate()
        return self._places

    def _locate(self) -> _Places:
        self._jumps.clear()
        parameters = find_parameters(self.model, self.layout)
        tensors = {name: p.detach().view(-1) for name, p in parameters.items()}
        for name, writes in self._by_tensor.items():
            writes.move_(tensors[name])
        slots, modules = [], modules_by_path(self.model)
        for name, parameter in parameters.items():
            path, _, key = name.rpartition(".")
            slots.append((modules[path]._parameters, key, parameter.data_ptr()))
        return _Places(tensors, list(parameters.values()), slots)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the views: in a copy they would not be views of the copied model."""
        return self.__dict__ | {"_places": None, "_jumps": {}}


@dataclass(frozen=True, eq=False)
class _Places:
    """The places of a model's parameters in memory: flat views, parameters, and their slots.

    A slot is the dictionary and key that hold a parameter in its module, and its memory address.
    """

    tensors: dict[str, Tensor]
    parameters: list[nn.Parameter]
    slots: list[tuple[dict[str, nn.Parameter | None], str, int]]

    def are_current(self) -> bool:
        """Tell whether no parameter has moved; the views keep its memory in use."""
        for owner, key, address in self.slots:
            parameter = owner.get(key)
            if parameter is None or parameter.data_ptr() != address:
                return False
        return True


@dataclass(eq=False)
class TensorWrites:
    """Values that all entries write into one tensor, entry after entry.

    Attributes:
        index: Coordinates in the tensor, int64; the end may be spare.
        values: Values of the entries there, in the tensor's dtype.
        base: Values of the base there.
        cuts: Start of each entry in `index`, and the end of the last one.
    """

    index: Tensor
    values: Tensor
    base: Tensor
    cuts: list[int]

    @classmethod
    def empty(cls, tensor: Tensor) -> TensorWrites:
        """Return the writes of no entry into a tensor."""
        index = torch.empty(0, dtype=torch.int64, device=tensor.device)
        return cls(index, tensor.new_empty(0), tensor.new_empty(0), [0])

    def part(self, low: int, high: int) -> slice | None:
        """Return where entries `low` <= i < `high` stand; None if they write nothing here."""
        last = len(self.cuts) - 1
        start, end = self.cuts[min(low, last)], self.cuts[min(high, last)]
        return slice(start, end) if start < end else None

    def write_(self, tensor: Tensor, low: int, high: int, *, base: bool) -> None:
        """Write the values of entries `low` <= i < `high`, or of the base, into the tensor."""
        part = self.part(low, high)
        if part is not None:
            tensor.index_copy_(0, *self.views(part, base=base))

    def views(self, part: slice, *, base: bool) -> tuple[Tensor, Tensor]:
        """Return the places and values of a part."""
        return self.index[part], (self.base if base else self.values)[part]

    def add(
        self,
        numbers: Sequence[int],
        sizes: Sequence[int],
        index: Tensor,
        values: Tensor,
        base: Tensor,
    ) -> None:
        """Add what entries write, given end to end; entries between them write nothing so far."""
        if numbers[0] < len(self.cuts) - 1:
            split = (part.split([*sizes]) for part in (index, values, base))
            for number, *new in zip(numbers, *split, strict=True):
                self._insert(number, *new)
            return
        start = self.cuts[-1]
        end = start + len(index)
        if not start:
            self.index, self.values, self.base = index, values.to(self.values), base.to(self.base)
        else:
            if end > len(self.index):
                spare = max(end, 5 * len(self.index) // 4) - start
                self.index, self.values, self.base = (
                    torch.cat([held[:start], held.new_empty(spare)])
                    for held in (self.index, self.values, self.base)
                )
            self.index[start:end] = index
            self.values[start:end] = values
            self.base[start:end] = base
        for number, size in zip(numbers, sizes, strict=True):
            self.cuts += [self.cuts[-1]] * (number + 1 - len(self.cuts))
            self.cuts.append(self.cuts[-1] + size)

    def _insert(self, number: int, index: Tensor, values: Tensor, base: Tensor) -> None:
        """Add what an entry writes before some or all of the others."""
        end = self.cuts[-1]
        self.cuts += [end] * (number + 2 - len(self.cuts))
        start = self.cuts[number]
        self.index, self.values, self.base = (
            torch.cat([held[:start], new, held[start:end]])
            for held, new in ((self.index, index), (self.values, values), (self.base, base))
        )
        self.cuts[number + 1 :] = [cut + len(index) for cut in self.cuts[number + 1 :]]

    def move_(self, tensor: Tensor) -> None:
        """Follow the tensor to another device or dtype."""
        self.index = self.index.to(tensor.device)
        self.values = self.values.to(tensor)
        self.base = self.base.to(tensor)
