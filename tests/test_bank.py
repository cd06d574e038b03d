"""Banks: one owner a coordinate, and what answered a task once answers it for ever."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import TwoLayers, model_bits, quick, regions

from cl_graft.bank import BaseIdentity, Entry, GraftBank, Mode, Switch
from cl_graft.fingerprint import model_fingerprint
from cl_graft.graft import Graft, extract, grafted, write_
from cl_graft.region import Layout, Region, union

LAYOUT = Layout.of(dict(TwoLayers().named_parameters()))
BASE = BaseIdentity(fingerprint="f" * 64, model="two-layers", dtype="float32")


def _bank(mode: Mode = "prefix") -> GraftBank:
    return GraftBank(LAYOUT, BASE, mode)


def _grow(bank: GraftBank, claimed: Region, *, label: int | None = None) -> GraftBank:
    number = len(bank) + 1
    free = bank.free(claimed)
    values = torch.arange(len(free), dtype=torch.float32) + 1000 * number
    entry = Entry(f"task{number}", number if label is None else label, claimed, Graft(free, values))
    return bank.append(entry)


def _stream(mode: Mode, tasks: int = 4) -> GraftBank:
    generator = torch.Generator().manual_seed(0)
    bank = _bank(mode)
    for _ in range(tasks):
        bank = _grow(
            bank, Region.of(LAYOUT, torch.randperm(LAYOUT.total, generator=generator)[:30])
        )
    return bank


@quick
@given(st.data())
def test_every_coordinate_has_one_owner_the_first_task_that_claimed_it(
    data: st.DataObject,
) -> None:
    bank = _bank()
    for _ in range(data.draw(st.integers(0, 4))):
        bank = _grow(bank, data.draw(regions(LAYOUT)))
    assert sum(len(entry.owned) for entry in bank.entries) == len(bank.owned())
    assert bank.owned() == bank.claimed()
    for position, entry in enumerate(bank.entries):
        assert entry.owned.region == entry.claimed - bank.claimed(upto=position)


@quick
@given(st.data())
def test_the_answer_to_a_task_is_the_same_bits_however_many_tasks_follow(
    data: st.DataObject,
) -> None:
    mode: Mode = data.draw(st.sampled_from(["prefix", "isolated"]))
    bank, right_after = _bank(mode), []
    for position in range(data.draw(st.integers(1, 4))):
        bank = _grow(bank, data.draw(regions(LAYOUT)))
        with grafted(TwoLayers(), bank.answer(position)) as model:
            right_after.append(model_fingerprint(model, exclude=()))
    model = TwoLayers()
    for position, expected in enumerate(right_after):
        with grafted(model, bank.answer(position)):
            assert model_fingerprint(model, exclude=()) == expected


def test_the_prefix_of_a_task_is_the_union_of_the_entries_up_to_it() -> None:
    bank = _stream("prefix")
    for position in range(len(bank)):
        grafts = [entry.owned for entry in bank.entries[: position + 1]]
        answer = bank.answer(position)
        assert answer.region == union([graft.region for graft in grafts], layout=LAYOUT)
        assert all(answer.on(graft.region).same_bits(graft) for graft in grafts)


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
def test_switching_between_any_two_positions_gives_the_bits_of_a_fresh_graft(mode: Mode) -> None:
    bank = _stream(mode)
    places = [None, *range(len(bank))]
    expected = {}
    for place in places:
        model = TwoLayers()
        if place is not None:
            write_(model, bank.answer(place))
        expected[place] = model_bits(model)
    switched = TwoLayers()
    switch = Switch(switched, bank)
    for start, end in product(places, places):
        switch.to(start)
        switch.to(end)
        assert switch.position == end
        now = model_bits(switched)
        assert all(torch.equal(now[name], expected[end][name]) for name in now)


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
def test_carrying_goes_back_to_where_it_was_also_after_an_exception(mode: Mode) -> None:
    bank = _stream(mode)
    model = TwoLayers()
    switch = Switch(model, bank)
    switch.to(1)
    before = model_bits(model)
    with suppress(KeyError), switch.carrying(3):
        assert bank.answer(3).same_bits(extract(model, bank.answer(3).region))
        raise KeyError("stop")
    assert switch.position == 1
    now = model_bits(model)
    assert all(torch.equal(now[name], before[name]) for name in now)


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
def test_a_switch_that_grows_with_its_bank_equals_a_new_one(mode: Mode) -> None:
    whole = _stream(mode)
    model = TwoLayers()
    bank = _bank(mode)
    switch = Switch(model, bank)
    for position, entry in enumerate(whole.entries):
        switch.to(position - 1 if position and mode == "prefix" else None)
        base = extract(model, entry.owned.region)
        write_(model, entry.owned)
        bank = bank.append(entry)
        switch.extend(bank, base=base)
    fresh_model = TwoLayers()
    fresh = Switch(fresh_model, whole)
    for place in [2, 0, None, 3, 1, None]:
        switch.to(place)
        fresh.to(place)
        now, expected = model_bits(model), model_bits(fresh_model)
        assert all(torch.equal(now[name], expected[name]) for name in now)


def test_a_switch_takes_over_one_entry_at_a_time() -> None:
    bank = _stream("prefix")
    switch = Switch(TwoLayers(), _bank())
    with pytest.raises(ValueError, match="expected a bank of 1 entries, got 4"):
        switch.extend(bank, base=extract(TwoLayers(), bank.owned()))


def test_isolated_entries_may_share_coordinates_and_prefix_entries_may_not() -> None:
    claimed = Region.of(LAYOUT, [1, 2, 3])
    entry = Entry("again", 2, claimed, Graft(claimed, torch.zeros(3)))
    isolated = _grow(_bank("isolated"), claimed)
    assert len(isolated.append(entry)) == 2
    assert isolated.free(claimed) == claimed
    with pytest.raises(ValueError, match="3 of 'again' are taken already"):
        _grow(_bank(), claimed).append(entry)


def test_a_prefix_bank_leaves_free_what_nobody_owns() -> None:
    bank = _grow(_bank(), Region.of(LAYOUT, [1, 2, 3]))
    assert bank.free(Region.of(LAYOUT, [3, 4])) == Region.of(LAYOUT, [4])
    assert bank.owned(upto=0) == Region.empty(LAYOUT)


def test_a_task_that_finds_nothing_free_is_answered_by_the_prefix() -> None:
    claimed = Region.of(LAYOUT, [1, 2])
    bank = _grow(_grow(_bank(), claimed), claimed)
    assert len(bank.entries[1].owned) == 0
    assert bank.answer(1).same_bits(bank.answer(0))


def test_the_latest_entry_answers_a_label_and_the_earlier_stay() -> None:
    bank = _grow(_grow(_bank(), Region.of(LAYOUT, [1]), label=7), Region.of(LAYOUT, [2]), label=7)
    assert bank.find(label=7) == 1
    assert bank.find(label=8) is None
    assert bank.entries[0].label == 7


def test_an_entry_of_another_model_is_refused() -> None:
    claimed = Region.of(Layout(("other",), ((3,),)), [1])
    with pytest.raises(ValueError, match="'x' belongs to a model with other parameters"):
        _bank().append(Entry("x", 1, claimed, Graft(claimed, torch.zeros(1))))


def test_an_entry_owns_nothing_that_it_does_not_claim() -> None:
    owned = Graft(Region.of(LAYOUT, [1, 2]), torch.zeros(2))
    with pytest.raises(ValueError, match="'x' owns coordinates that it does not claim"):
        Entry("x", 1, Region.of(LAYOUT, [1]), owned)


@pytest.mark.parametrize("position", [-1, 4])
def test_positions_outside_the_bank_are_refused(position: int) -> None:
    bank = _stream("prefix")
    with pytest.raises(ValueError, match=rf"\[0, 4\), got {position}"):
        bank.answer(position)
    with pytest.raises(ValueError, match=rf"\[0, 4\) or None, got {position}"):
        Switch(TwoLayers(), bank).to(position)
