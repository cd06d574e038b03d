"""A switch reads the entries of a bank in files when it first carries them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import TwoLayers, model_bits, quick
from two_layer_banks import draw_bank, stream

from cl_graft.errors import DamagedFile
from cl_graft.grafts.bank import Entry, GraftBank, Mode, StoredEntry
from cl_graft.grafts.graft import write_
from cl_graft.grafts.hashing import model_sha256
from cl_graft.inference.task_switch import Switch


def unread(bank: GraftBank) -> GraftBank:
    """Return a bank whose entries are read when they are used, as from files."""
    weights = model_sha256(TwoLayers(), exclude=bank.base.heads)
    base = replace(bank.base, metadata={"weights_sha256": weights})

    def put_away(position: int, entry: Entry) -> Entry:
        read = partial(bank.entries.__getitem__, position)
        stored = StoredEntry(entry.size, len(entry.owned), bank.layout, read, {}, position, "")
        known = ("task", "label", "weights_sha256", "builds_on")
        return Entry.in_file(stored, **{name: getattr(entry, name) for name in known})

    return replace(bank, base=base, entries=tuple(map(put_away, range(len(bank)), bank.entries)))


def grafted_anew(bank: GraftBank, position: int | None) -> TwoLayers:
    model = TwoLayers()
    if position is not None:
        write_(model, bank.answer(position))
    return model


def same(model: TwoLayers, other: TwoLayers) -> bool:
    now, then = model_bits(model), model_bits(other)
    return all(torch.equal(now[name], then[name]) for name in then)


@quick
@given(st.data())
def test_jumps_in_any_order_have_the_bits_of_a_fresh_graft(data: st.DataObject) -> None:
    bank = draw_bank(data)
    model = TwoLayers()
    switch = Switch(model, unread(bank))
    places = st.none() | st.integers(0, len(bank) - 1)
    for position in data.draw(st.lists(places, min_size=1, max_size=8)):
        switch.to(position)
        assert same(model, grafted_anew(bank, position))
    switch.to(None)
    assert same(model, TwoLayers())


@pytest.mark.parametrize(("mode", "read"), [("isolated", [1]), ("prefix", [0, 1])])
def test_no_entry_is_read_that_does_not_answer(mode: Mode, read: list[int]) -> None:
    switch = Switch(TwoLayers(), unread(stream(mode, tasks=5)))
    switch.to(1)
    assert [place for place in range(5) if switch.bank.entries[place].is_read] == read
    switch.prepare([1, 0, None])
    assert not any(switch.bank.entries[place].is_read for place in (2, 3, 4))


def test_a_bank_that_grew_elsewhere_is_read_no_further() -> None:
    bank = stream("isolated", tasks=5)
    switch = Switch(TwoLayers(), unread(bank.without([3, 4])))
    switch.to(2)
    switch.add(unread(bank))
    assert [entry.is_read for entry in switch.bank.entries] == [False, False, True, False, False]
    for position in (4, 0, 2):
        switch.to(position)
        assert same(switch.model, grafted_anew(bank, position))


def test_two_owners_of_a_coordinate_are_found_when_the_second_is_carried() -> None:
    switch = Switch(TwoLayers(), unread(replace(stream("isolated"), mode="prefix")))
    switch.to(0)
    with pytest.raises(DamagedFile, match="a coordinate has one owner"):
        switch.to(3)
    assert switch.position == 0
