"""Switching: from the answer of one task to that of another, in place and bit for bit.

A jump writes the coordinates in which two answers differ and nothing else, so its cost follows
their number and not the size of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from cl_graft.bank import GraftBank
from cl_graft.graft import Graft
from cl_graft.plans import Plans

__all__ = ["Switch"]


class Switch:
    """Moves a model between the answers of a bank.

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
        dropped: The entries that are not answered any more.

    Examples:
        >>> import torch
        >>> from cl_graft.bank import BaseIdentity, Entry
        >>> from cl_graft.region import Layout, Region
        >>> model = nn.Linear(2, 2, bias=False)
        >>> before, layout = model.weight.clone(), Layout(("weight",), ((2, 2),))
        >>> graft = Graft(Region.of(layout, [3]), torch.tensor([0.5]))
        >>> bank = GraftBank(layout, BaseIdentity("0" * 64, "a model", "float32"))
        >>> switch = Switch(model, bank.append(Entry("topic", 0, graft, Region.empty(layout))))
        >>> with switch.carrying(0):
        ...     model.weight[1, 1].item()
        0.5
        >>> torch.equal(model.weight, before)
        True
    """

    def __init__(self, model: nn.Module, bank: GraftBank, *, flat: bool = False) -> None:
        _check_owners(bank)
        self.bank = bank
        self.position: int | None = None
        self.dropped: frozenset[int] = frozenset()
        self._flat = flat
        self._held = False
        self._plans = Plans(model, bank.layout, flat=flat)
        self._plans.add([entry.owned for entry in bank.entries])
        self._apart: Plans | None = None  # a flat switch's plans by parameter, once asked for

    @property
    def model(self) -> nn.Module:
        """The model; setting it goes on with a copy that carries what the old one carried."""
        return self._plans.model

    @model.setter
    def model(self, model: nn.Module) -> None:
        for plans in self._all_plans():
            plans.model = model

    def to(self, position: int | None) -> None:
        """Make the model carry the answer of entry `position`, None for the base.

        Raises:
            ValueError: If there is no such entry, or it was dropped.
            RuntimeError: While a mixed batch is being answered.
        """
        if position == self.position:
            return
        self.check(position)
        self._check_free()
        if self.bank.mode == "prefix":
            now, then = _count(self.position), _count(position)
            self._plans.write_(min(now, then), max(now, then), base=then < now)
        else:
            if self.position is not None:
                self._plans.write_(self.position, self.position + 1, base=True)
            if position is not None:
                self._plans.write_(position, position + 1, base=False)
        self.position = position

    @contextmanager
    def carrying(self, position: int | None) -> Iterator[nn.Module]:
        """Carry the answer of an entry for a `with` block, then go back."""
        before = self.position
        self.to(position)
        try:
            yield self.model
        finally:
            self.to(before)

    @contextmanager
    def holding(self, position: int | None) -> Iterator[nn.Module]:
        """Carry the answer of an entry for a `with` block in which the switch cannot be moved."""
        self._check_free()
        with self.carrying(position) as model:
            self._held = True
            try:
                yield model
            finally:
                self._held = False

    def extend(self, bank: GraftBank, *, base: Graft) -> None:
        """Take over a bank that has grown by one entry, whose values the model carries already.

        Args:
            bank: The current bank with one entry more.
            base: The base values on the new entry's coordinates.
        """
        if len(bank) != len(self.bank) + 1:
            raise ValueError(f"expected a bank of {len(self.bank) + 1} entries, got {len(bank)}")
        for plans in self._all_plans():
            plans.add([bank.entries[-1].owned], base=base)
        self.bank = bank
        self.position = len(bank) - 1

    def add(self, bank: GraftBank) -> None:
        """Take over a bank that has grown elsewhere; only its new entries are laid out.

        Raises:
            ValueError: If it is not the current bank with entries more.
        """
        known = len(self.bank)
        same = bank.base.fingerprint == self.bank.base.fingerprint and bank.mode == self.bank.mode
        heads = zip(self.bank.entries, bank.entries, strict=False)
        if (
            not same
            or len(bank) < known
            or bank.layout != self.bank.layout
            or any((a.task, len(a.owned)) != (b.task, len(b.owned)) for a, b in heads)
        ):
            raise ValueError(
                f"expected the bank of {known} entries with further ones, got another bank of "
                f"{len(bank)} entries"
            )
        _check_owners(bank)
        with self.carrying(None):
            for plans in self._all_plans():
                plans.add([entry.owned for entry in bank.entries[known:]])
        self.bank = bank

    def drop(self, position: int) -> None:
        """Stop answering entry `position`; positions of other entries stay.

        In isolated mode its values are freed. In prefix mode they stay, because the answers of
        later entries stand on them.

        Raises:
            ValueError: If there is no such entry, or the model carries it.
        """
        self.check(position)
        if position == self.position:
            raise ValueError(f"the model carries entry {position}; switch away before dropping it")
        self.dropped |= {position}
        if self.bank.mode == "isolated":
            for plans in self._all_plans():
                plans.drop(position)

    def check(self, position: int | None) -> None:
        """Refuse a position that cannot be answered.

        Raises:
            ValueError: If there is no such entry, or it was dropped.
        """
        if position is None:
            return
        if not 0 <= position < len(self.bank):
            raise ValueError(f"position must be in [0, {len(self.bank)}) or None, got {position}")
        if position in self.dropped:
            raise ValueError(f"entry {position} was dropped")

    def plans(self) -> Plans:
        """Return what entries write, by parameter also where storage is flat."""
        if not self._flat:
            return self._plans
        if self._apart is None:
            with self.carrying(None):
                self._apart = Plans(self.model, self.bank.layout)
                self._apart.add([entry.owned for entry in self.bank.entries])
            if self.bank.mode == "isolated":
                for position in self.dropped:
                    self._apart.drop(position)
        return self._apart

    def _check_free(self) -> None:
        if self._held:
            raise RuntimeError("the model is answering a mixed batch; move the switch after it")

    def _all_plans(self) -> list[Plans]:
        return [self._plans] if self._apart is None else [self._plans, self._apart]


def _check_owners(bank: GraftBank) -> None:
    owned = sum(len(entry.owned) for entry in bank.entries)
    if bank.mode == "prefix" and len(bank.owned()) != owned:
        raise ValueError("the bank is in prefix mode, but a coordinate has two owners")


def _count(position: int | None) -> int:
    return 0 if position is None else position + 1
