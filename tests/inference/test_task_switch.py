"""Switching: every jump gives the bits of a fresh graft, wherever the parameters lie."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import TwoLayers, bits, model_bits, quick
from torch import Tensor, nn
from two_layer_banks import LAYOUT, draw_bank, empty_bank, stream

from cl_graft.errors import DamagedFile
from cl_graft.grafts.bank import Entry, GraftBank, Mode, StoredEntry
from cl_graft.grafts.graft import extract, write_
from cl_graft.grafts.hashing import model_sha256
from cl_graft.inference.task_switch import Switch

MODES = pytest.mark.parametrize("mode", ["prefix", "isolated"])


def _anew(bank: GraftBank, position: int | None, model: nn.Module | None = None) -> nn.Module:
    """A fresh model that carries an answer without any switch."""
    model = TwoLayers() if model is None else model
    if position is not None:
        write_(model, bank.answer(position))
    return model


def _switched(position: int, mode: Mode = "prefix") -> tuple[GraftBank, nn.Module, Switch]:
    """A bank, a model that carries the answer of an entry, and the switch that wrote it."""
    switch = Switch(TwoLayers(), stream(mode))
    switch.to(position)
    return switch.bank, switch.model, switch


def _same(model: nn.Module, other: nn.Module) -> bool:
    now, then = model_bits(model), model_bits(other)
    return all(torch.equal(now[name], then[name]) for name in then)


def _unread(bank: GraftBank) -> GraftBank:
    """Return a bank whose entries are read when they are used, as from files."""
    weights = model_sha256(TwoLayers(), exclude=bank.base.heads)
    base = replace(bank.base, metadata={"weights_sha256": weights})

    def put_away(position: int, entry: Entry) -> Entry:
        line = {"size": entry.size, "owned": len(entry.owned)}
        read = partial(bank.entries.__getitem__, position)
        known = ("task", "label", "weights_sha256", "builds_on")
        stored = StoredEntry(bank.layout, read, line, "")
        return Entry.in_file(stored, **{name: getattr(entry, name) for name in known})

    return replace(bank, base=base, entries=tuple(map(put_away, range(len(bank)), bank.entries)))


@quick
@given(st.data())
def test_a_chain_of_jumps_gives_the_bits_of_a_fresh_graft_after_each(data):
    bank = draw_bank(data)
    model = TwoLayers()
    switch = Switch(model, _unread(bank) if data.draw(st.booleans()) else bank)
    places = st.none() | st.integers(0, len(bank) - 1)
    for place in data.draw(st.lists(places, max_size=8)):
        switch.to(place)
        assert switch.position == place
        assert _same(model, _anew(bank, place))
    switch.to(None)
    assert _same(model, TwoLayers())


@quick
@given(st.data())
def test_a_switch_that_grows_with_its_bank_equals_a_new_one(data):
    whole = draw_bank(data)
    model = TwoLayers()
    bank = empty_bank(whole.mode)
    switch = Switch(model, bank)
    for position, entry in enumerate(whole.entries):
        switch.carry_entries(whole.builds_on(position))
        base = extract(model, entry.owned.region)
        write_(model, entry.owned)
        bank = bank.append(entry)
        switch.extend(bank, base=base)
        assert switch.position == position
        assert _same(model, _anew(bank, position))
    places = st.none() | st.integers(0, len(whole) - 1)
    for place in [*data.draw(st.lists(places, max_size=6)), None]:
        switch.to(place)
        assert _same(model, _anew(whole, place))


@quick
@given(st.data())
def test_a_model_carries_any_entries_and_goes_back_to_them(data):
    bank = draw_bank(data)
    model = TwoLayers()
    switch = Switch(model, bank)
    some = sorted(data.draw(st.sets(st.integers(0, len(bank) - 1))))
    switch.carry_entries(some)
    expected = TwoLayers()
    for place in some:
        write_(expected, bank.entries[place].owned)
    assert _same(model, expected)
    with switch.carrying(data.draw(st.none() | st.integers(0, len(bank) - 1))):
        pass
    assert _same(model, expected)
    assert switch.position in (None, some[-1] if some else None)
    switch.to(None)
    assert _same(model, TwoLayers())


@MODES
def test_carrying_goes_back_to_where_it_was_also_after_an_exception(mode):
    bank, model, switch = _switched(1, mode)
    with suppress(KeyError), switch.carrying(3):
        assert _same(model, _anew(bank, 3))
        raise KeyError("stop")
    assert switch.position == 1
    assert _same(model, _anew(bank, 1))


def test_half_precision_is_written_bit_for_bit_and_parameters_that_moved_are_followed():
    bank = stream("prefix")
    model = TwoLayers().bfloat16()
    switch = Switch(model, bank)
    switch.to(2)
    assert _same(model, _anew(bank, 2, TwoLayers().bfloat16()))
    switch.to(None)
    assert _same(model, TwoLayers().bfloat16())
    bank, model, switch = _switched(3)
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    switch.to(1)
    assert _same(model, _anew(bank, 1))
    model.bfloat16()
    switch.to(2)
    assert _same(model, _anew(bank, 2).bfloat16())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copied_switch_moves_the_copied_model_alone(copied):
    bank, _, switch = _switched(2)
    other = copied(switch)
    other.to(0)
    assert _same(other.model, _anew(bank, 0))
    assert _same(switch.model, _anew(bank, 2))


def test_autograd_sees_that_a_jump_changed_the_weights():
    _, model, switch = _switched(0)
    loss = model(torch.randn(2, 4)).sum()
    switch.to(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@MODES
def test_a_jump_writes_nothing_but_what_differs(mode):
    bank, model, switch = _switched(1, mode)
    foreign = torch.full((LAYOUT.total,), 7.0)
    touched = bank.entries[2].owned.region
    if mode == "isolated":
        touched |= bank.entries[1].owned.region
    for name, parameter in model.named_parameters():
        start = LAYOUT.starts[LAYOUT.names.index(name)]
        part = foreign[start : start + parameter.numel()].view(parameter.shape)
        parameter.data.copy_(part)
    switch.to(2)
    changed = torch.cat([_different(p, 7.0) for p in model.parameters()])
    assert set(changed.nonzero()[:, 0].tolist()) <= set(touched.index.tolist())
    assert bool(changed.any())


def _different(parameter: Tensor, value: float) -> Tensor:
    return bits(parameter).view(-1) != bits(torch.full((1,), value))


def test_other_positions_and_banks_than_the_next_one_are_refused():
    bank = stream("prefix")
    with pytest.raises(ValueError, match="expected a bank of 1 entries, got 4"):
        Switch(TwoLayers(), empty_bank()).extend(bank, base=extract(TwoLayers(), bank.owned()))
    for position in (-1, 4):
        with pytest.raises(ValueError, match=rf"\[0, 4\) or None, got {position}"):
            Switch(TwoLayers(), bank).to(position)


def test_two_owners_of_a_coordinate_are_found_when_the_second_is_read():
    shared = replace(stream("isolated"), mode="prefix")
    with pytest.raises(ValueError, match="one owner, but 13 of 'task2'"):
        Switch(TwoLayers(), shared)
    switch = Switch(TwoLayers(), _unread(shared))
    switch.to(0)
    with pytest.raises(DamagedFile, match="a coordinate has one owner"):
        switch.to(3)
    assert switch.position == 0


@pytest.mark.parametrize(("mode", "read"), [("isolated", [1]), ("prefix", [0, 1])])
def test_no_entry_is_read_that_does_not_answer(mode, read):
    switch = Switch(TwoLayers(), _unread(stream(mode, tasks=5)))
    switch.to(1)
    assert [place for place in range(5) if switch.bank.entries[place].is_read] == read
    switch.prepare([1, 0, None])
    assert not any(switch.bank.entries[place].is_read for place in (2, 3, 4))


def test_a_bank_that_grew_elsewhere_is_read_no_further():
    bank = stream("isolated", tasks=5)
    switch = Switch(TwoLayers(), _unread(bank.without([3, 4])))
    switch.to(2)
    switch.add(_unread(bank))
    assert [entry.is_read for entry in switch.bank.entries] == [False, False, True, False, False]
    for position in (4, 0, 2):
        switch.to(position)
        assert _same(switch.model, _anew(bank, position))
