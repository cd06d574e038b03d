"""The switch that moves a model between the tasks of a bank, in place and bit for bit.

A jump writes the coordinates in which two answers differ and nothing else. Where entries share
coordinates, all that are to be carried are written in their order, as the later one's value stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary, ref

from torch import nn

from cl_graft.errors import BankError, DamagedFile, WrongBase
from cl_graft.grafts.bank import Entry, GraftBank, check_builds_on
from cl_graft.grafts.base_weights_check import TensorVersions, check_base, find_carried
from cl_graft.grafts.graft import Graft, extract, write_
from cl_graft.grafts.hashing import model_sha256
from cl_graft.inference.entry_writes import (
    EntryWrites,
    Spans,
    answer_spans,
    apart,
    subtract,
    to_spans,
)
from cl_graft.runtime.threads import hold_model, lock_model


class Switch:
    """Moves a model between the answers of a bank.

    The model must be the bank's base when the switch is made, which is checked. One that carries
    the bank's values is put back to its base where a switch in this process still holds what stood
    under them. Several switches and threads take turns: a method or block holds the model's lock.
    What a thread computes with the model belongs inside `carrying`.

    Parameters may move afterwards (`.to(device)`). A jump notices by torch's counts of in-place
    writes that something else wrote into the model, and then compares its weights with the base
    again; `verify` compares them in any case. A bank without hashes of its base is not checked.

    Attributes:
        bank: Bank whose answers the model can carry.
        position: Entry whose answer the model carries; None for the bare base, and for entries
            that together answer none (`carry_entries`).
        carried: Entries whose values the model carries.
        shares: Whether a coordinate may have several owners.
        writes: What the entries that were read write into the model, by parameter.

    Raises:
        WrongBase: If the model is not the bank's base.

    Examples:
        >>> import torch
        >>> from cl_graft.grafts.bank import BaseIdentity, Entry
        >>> from cl_graft.grafts.region import Layout, Region
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

    def __init__(self, model: nn.Module, bank: GraftBank) -> None:
        self.bank = bank
        self.shares = bank.may_share
        self.position: int | None = None
        self.carried: Spans = ()
        self._is_locked = False
        self._disjoint: dict[int, bool] = {}
        self._laid_out: set[int] = set()
        self._prepared: set[int] = set()
        read = [position for position, entry in enumerate(bank.entries) if entry.is_read]
        bank.check_owners(read)
        with lock_model(model):
            _check_base_(model, bank)
            self.writes = EntryWrites(model, bank.layout)
            self._lay_out(read)
            self._remember_model()

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.writes.model

    @hold_model
    def to(self, position: int | None) -> None:
        """Make the model carry the answer of entry `position`, None for the base.

        Raises:
            ValueError: If there is no such entry.
            RuntimeError: While a mixed batch is being answered.
            WrongBase: If something else changed the model so that no base is under its answers.
            BankError: If the file of an entry that answers was not read so far, and is damaged.
        """
        self.check(position)
        self._check_model()
        self._prepare([position])
        self._move(answer_spans(self.bank, position), position)

    @hold_model
    def carry_entries(self, entries: Sequence[int]) -> None:
        """Make the model carry the values of some entries, as a new one may build on them."""
        check_builds_on(entries, len(self.bank))
        self._check_model()
        self._read(entries)
        spans = to_spans(entries)
        last = entries[-1] if entries else None
        self._move(spans, last if answer_spans(self.bank, last) == spans else None)

    @hold_model
    def verify(self) -> None:
        """Put the model back to its base, and make sure by a hash that it is the base."""
        self.to(None)
        self._verify()
        self._remember_model()

    @contextmanager
    def carrying(self, position: int | None) -> Iterator[nn.Module]:
        """Carry the answer of an entry for a `with` block, then go back; other threads wait."""
        with lock_model(self.model):
            self._check_model()
            before = self.carried, self.position
            self.to(position)
            try:
                yield self.model
            finally:
                self._check_model()
                self._move(*before)

    @contextmanager
    def locked(self, position: int | None) -> Iterator[nn.Module]:
        """Carry the answer of an entry for a `with` block in which the switch cannot be moved."""
        with lock_model(self.model):
            self._check_free()
            with self.carrying(position) as model:
                self._is_locked = True
                try:
                    yield model
                finally:
                    self._is_locked = False
                    self.accept_writes()

    @hold_model
    def accept_writes(self) -> None:
        """Count what was written into graftable parameters since the last jump as this switch's."""
        held = _KNOWN_MODELS.get(self.model)
        if held is not None and held.versions is not None:
            held.versions.note(self.writes.locate_tensors().parameters)

    @hold_model
    def extend(self, bank: GraftBank, *, base: Graft) -> None:
        """Take over a bank with one entry more, which the model carries over values of the base."""
        if len(bank) != len(self.bank) + 1:
            raise ValueError(f"expected a bank of {len(self.bank) + 1} entries, got {len(bank)}")
        self.bank, self.shares = bank, bank.may_share
        self.position = len(bank) - 1
        self.writes.add({self.position: bank.entries[-1].owned}, base=base)
        self._laid_out.add(self.position)
        self.carried = answer_spans(bank, self.position)
        self._remember_model()

    @hold_model
    def add(self, bank: GraftBank) -> None:
        """Take over a bank that has grown elsewhere; only its new entries are laid out."""
        self.check_grown(bank)
        known = len(self.bank)
        bank = replace(bank, entries=(*self.bank.entries, *bank.entries[known:]))
        read = [position for position in range(known, len(bank)) if bank.entries[position].is_read]
        bank.check_owners(read)
        self.bank, self.shares = bank, bank.may_share
        with self.carrying(None):
            self._lay_out(read)

    @hold_model
    def prepare(self, positions: Iterable[int | None]) -> None:
        """Read what some entries are answered with, so that no jump to them has to."""
        self._check_model()
        self._prepare(positions)

    def _prepare(self, positions: Iterable[int | None]) -> None:
        new = {position for position in positions if position is not None} - self._prepared
        self._read({below for at in new for below in (*self.bank.builds_on(at), at)})
        self._prepared |= new

    def _read(self, positions: Iterable[int]) -> None:
        """Read entries that were not read, check their owners and lay them out."""
        new = {*positions} - self._laid_out
        if not new:
            return
        if self.bank.mode == "prefix" and self.bank.builds_by_mode:
            # As many again, so that a walk over all entries checks their owners a few times only.
            ahead = min(len(self.bank), max(max(new) + 1, 2 * len(self._laid_out)))
            new = {*range(ahead)} - self._laid_out
        try:
            self.bank.check_owners(new)
        except BankError:
            raise
        except ValueError as error:
            raise DamagedFile(f"the bank is damaged: {error}") from error
        before = self.carried, self.position
        self._move((), None)
        self._lay_out(sorted(new))
        self._move(*before)

    def _lay_out(self, positions: Sequence[int]) -> None:
        """Lay out what entries write; the model carries the base."""
        self.writes.add({position: self.bank.entries[position].owned for position in positions})
        self._laid_out |= {*positions}

    def check_grown(self, bank: GraftBank) -> None:
        """Refuse a bank that is not the current one, with or without entries more."""
        ours, known = self.bank, len(self.bank)
        if ours.base.fingerprint != bank.base.fingerprint or ours.layout != bank.layout:
            what = f"is on another base, {bank.base.model!r}"
        elif ours.mode != bank.mode:
            what = f"is in {bank.mode} mode"
        elif [*map(_outline, ours.entries)] != [*map(_outline, bank.entries[:known])]:
            names = ", ".join(entry.task for entry in bank.entries)
            what = f"holds others ({names or 'none'}): a task was deleted or trained again"
        else:
            return
        raise BankError(
            f"expected the bank of {known} entries that is open, with or without more; this one "
            f"{what}; open it anew"
        )

    def check(self, position: int | None) -> None:
        """Refuse a position that cannot be answered."""
        if position is not None and not 0 <= position < len(self.bank):
            raise ValueError(f"position must be in [0, {len(self.bank)}) or None, got {position}")

    def adds_up(self, position: int) -> bool:
        """Tell whether no coordinate is in two of the entries that answer one."""
        if not self.shares:
            return True
        under = self.bank.builds_on(position)
        if under and position not in self._disjoint:
            self._disjoint[position] = not self.bank.shares_coordinates((*under, position))
        return not under or self._disjoint[position]

    def _move(self, spans: Spans, position: int | None) -> None:
        """Carry the values of other entries, those that answer `position` if it is not None."""
        if spans != self.carried:
            self._check_free()
            gone, come = subtract(self.carried, spans), subtract(spans, self.carried)
            for low, high in gone:
                self.writes.write_(low, high, base=True)
            for low, high in apart(spans) if self.shares else come:
                self.writes.write_(low, high, base=False)
            self.carried = spans
            held = _KNOWN_MODELS[self.model]
            if held.versions is not None:
                held.versions.note()
        self.position = position

    def _check_model(self) -> None:
        """Make sure that the model is as this switch left it, or at its base."""
        if self._is_locked:
            return
        held = _KNOWN_MODELS.get(self.model)
        other = held.switch() if held is not None else None
        if other is not None and other is not self:
            other.to(None)
            self.position, self.carried = None, ()
            held = _KNOWN_MODELS[self.model]
        known = (
            held is not None
            and other is not None
            and held.bank.base.weights_sha256 == self.bank.base.weights_sha256
            and not (held.versions and held.versions.changed())
        )
        if not known:
            self._verify()
        if not known or other is not self:
            self._remember_model()

    def _verify(self) -> None:
        """Put the base's values under all entries, and compare all weights with the base."""
        if not self.bank.base.weights_sha256:
            return
        if not _write_base_(self.model, self.writes, self.bank):
            raise WrongBase(
                f"the model is not the base of the bank ({self.bank.base.model!r}) any more: "
                "something else than the bank changed its weights, buffers or dtype since the bank "
                "was opened, such as load_state_dict, another strategy's training, .to(dtype) or a "
                "layer that writes its own buffers in train mode; load the base again and open the "
                "bank on it"
            )
        self.position, self.carried = None, ()

    def _remember_model(self) -> None:
        """Remember that this switch moved the model last, and the versions of its tensors."""
        base = self.bank.base
        versions = TensorVersions(self.model, exclude=base.heads) if base.weights_sha256 else None
        _KNOWN_MODELS[self.model] = _KnownModel(
            ref(self), versions, self.bank, self.writes.without_model()
        )

    def _check_free(self) -> None:
        if self._is_locked:
            raise RuntimeError("the model is answering a mixed batch; move the switch after it")


@dataclass(frozen=True, eq=False)
class _KnownModel:
    """The last known state of a model that a switch moves, also for when the switch is gone."""

    switch: ref[Switch]
    versions: TensorVersions | None
    bank: GraftBank
    writes: EntryWrites


_KNOWN_MODELS: WeakKeyDictionary[nn.Module, _KnownModel] = WeakKeyDictionary()


def put_back_(model: nn.Module) -> None:
    """Put a model back to its base, if it carries answers that a switch gave it in this process.

    A model with other weights and no entry's values is taken for a base of its own; one that
    carries an entry's values and was changed since raises `WrongBase`.
    """
    held = _KNOWN_MODELS.get(model)
    if held is None or not held.bank.entries:
        return
    switch = held.switch()
    try:
        if switch is not None:
            switch.to(None)
            return
        if _write_base_(model, held.writes, held.bank):
            return
    except (WrongBase, ValueError):  # other weights, or other parameters
        pass
    carried = None
    with suppress(ValueError):
        carried = find_carried(model, held.bank)
    if carried is not None:
        raise WrongBase(
            f"the model carries values of a bank of {len(held.bank)} entries, which another plugin "
            "learned, and something else changed its weights since, so its base is not known any "
            "more; load the model again"
        )


def _check_base_(model: nn.Module, bank: GraftBank) -> None:
    """Check that a model is a bank's base, as `check_base`.

    A model that carries values of the bank is put back first, if a switch of this model, or of one
    that it is a copy of, holds what was under them.
    """
    try:
        check_base(model, bank)
    except WrongBase:
        for known in _KNOWN_MODELS.keyrefs():  # in one go, as other threads open models, too
            held = (moved := known()) is not None and _KNOWN_MODELS.get(moved)
            other = held.switch() if held else None
            if (
                other is not None
                and other.bank.layout == bank.layout
                and other.bank.base.fingerprint == bank.base.fingerprint
                and _write_base_(model, other.writes, bank)
            ):
                return
        raise


def _write_base_(model: nn.Module, writes: EntryWrites, bank: GraftBank) -> bool:
    """Write the base's values where entries write, if the model is the bank's base then.

    A bank without a hash of its base is not checked. If it is another, the model is as before.
    """
    under = writes.base_values()
    before = extract(model, under.region)
    write_(model, under)
    if bank.base.weights_sha256 in ("", model_sha256(model, exclude=bank.base.heads)):
        return True
    write_(model, before)
    return False


def _outline(entry: Entry) -> tuple[object, ...]:
    return entry.task, entry.owned_size, entry.builds_on, entry.weights_sha256
