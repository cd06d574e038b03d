"""Banks: one owner a coordinate, and what answered a task once answers it for ever."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import TwoLayers, quick, regions
from two_layer_banks import LAYOUT, draw_bank, empty_bank, grow, stream

from cl_graft.grafts.bank import Entry, Mode
from cl_graft.grafts.graft import Graft, grafted, write_
from cl_graft.grafts.hashing import model_sha256
from cl_graft.grafts.region import Layout, Region, union


@quick
@given(st.data())
def test_every_coordinate_has_one_owner_the_first_task_that_claimed_it(data):
    bank = empty_bank()
    for _ in range(data.draw(st.integers(0, 4))):
        bank = grow(bank, data.draw(regions(LAYOUT)))
    assert sum(len(entry.owned) for entry in bank.entries) == len(bank.owned())
    assert bank.owned() == union((entry.region for entry in bank.entries), layout=LAYOUT)
    for position, entry in enumerate(bank.entries):
        assert entry.owned.region == entry.region - bank.owned(upto=position)


@quick
@given(st.data())
def test_the_answer_to_a_task_is_the_same_bits_however_many_tasks_follow(data):
    mode: Mode = data.draw(st.sampled_from(["prefix", "isolated"]))
    bank, right_after = empty_bank(mode), []
    for position in range(data.draw(st.integers(1, 4))):
        bank = grow(bank, data.draw(regions(LAYOUT)))
        with grafted(TwoLayers(), bank.answer(position)) as model:
            right_after.append(model_sha256(model, exclude=()))
    model = TwoLayers()
    for position, expected in enumerate(right_after):
        with grafted(model, bank.answer(position)):
            assert model_sha256(model, exclude=()) == expected


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
def test_entries_appended_at_once_make_the_bank_of_appending_one_after_the_other(mode):
    whole = stream(mode)
    at_once = empty_bank(mode).extend(whole.entries[:1]).extend(whole.entries[1:])
    assert at_once.entries == whole.entries
    assert at_once.owned() == whole.owned() == whole.owned(upto=len(whole))


def test_entries_appended_at_once_are_refused_by_name():
    first, second, *_ = stream("isolated").entries
    with pytest.raises(ValueError, match=r"of 'task2' are taken already"):
        empty_bank().extend([first, second])
    other = Region.of(Layout(("other",), ((3,),)), [1])
    with pytest.raises(ValueError, match="'x' belongs to a model with other parameters"):
        empty_bank().extend([first, Entry("x", 1, Graft(other, torch.zeros(1)), other - other)])


def test_isolated_entries_may_share_coordinates_and_prefix_entries_may_not():
    claimed = Region.of(LAYOUT, [1, 2, 3])
    entry = Entry("again", 2, Graft(claimed, torch.zeros(3)), Region.empty(LAYOUT))
    isolated = grow(empty_bank("isolated"), claimed)
    assert len(isolated.append(entry)) == 2
    assert isolated.free(claimed) == claimed
    bank = grow(empty_bank(), claimed)
    with pytest.raises(ValueError, match="3 of 'again' are taken already"):
        bank.append(entry)
    assert bank.free(Region.of(LAYOUT, [3, 4])) == Region.of(LAYOUT, [4])
    assert bank.owned(upto=0) == Region.empty(LAYOUT)


@quick
@given(st.data())
def test_an_entry_is_answered_by_those_that_it_builds_on_in_their_order(data):
    bank = draw_bank(data, isolated=False)
    for position, entry in enumerate(bank.entries):
        below = bank.owned(of=bank.builds_on(position))
        assert entry.owned.region == entry.region - below
        expected = TwoLayers()
        for place in (*bank.builds_on(position), position):
            write_(expected, bank.entries[place].owned)
        with grafted(TwoLayers(), bank.answer(position)) as model:
            assert model_sha256(model, exclude=()) == model_sha256(expected, exclude=())


def test_a_bank_without_some_entries_answers_those_that_do_not_build_on_them_as_before():
    bank = empty_bank()
    for number, under in enumerate([None, (), (0,), (1,), (1, 3)]):
        bank = grow(bank, Region.of(LAYOUT, range(number, 20)), builds_on=under)
    left = bank.without([0, 2])
    assert [left.builds_on(place) for place in range(3)] == [(), (0,), (0, 1)]
    assert all(entry.builds_on is None for entry in left.entries)  # as the mode says now
    for now, then in enumerate((1, 3, 4)):
        assert left.answer(now).same_bits(bank.answer(then))


def test_a_task_that_finds_nothing_free_is_answered_by_the_prefix():
    claimed = Region.of(LAYOUT, [1, 2])
    bank = grow(grow(empty_bank(), claimed), claimed)
    assert len(bank.entries[1].owned) == 0
    assert bank.answer(1).same_bits(bank.answer(0))


def test_the_latest_entry_answers_a_label_and_the_earlier_stay():
    bank = grow(empty_bank(), Region.of(LAYOUT, [1]), label=7)
    bank = grow(bank, Region.of(LAYOUT, [2]), label=7)
    assert bank.find(label=7) == 1
    assert bank.find(label=8) is None
    assert bank.entries[0].label == 7


def test_what_an_entry_owns_and_what_it_lost_lie_apart_and_make_up_what_it_claims():
    owned = Graft(Region.of(LAYOUT, [1, 2]), torch.zeros(2))
    entry = Entry("x", 1, owned, Region.of(LAYOUT, [0, 3]))
    assert entry.region == Region.of(LAYOUT, range(4))
    assert (entry.size, entry.density) == (4, entry.region.density)
    assert entry.share_owned_before == 0.5
    with pytest.raises(ValueError, match="'x' owns 1 coordinates that earlier tasks own"):
        Entry("x", 1, owned, Region.of(LAYOUT, [0, 1]))


@pytest.mark.parametrize("position", [-1, 4])
def test_positions_outside_the_bank_are_refused(position):
    bank = stream("prefix")
    with pytest.raises(ValueError, match=rf"\[0, 4\), got {position}"):
        bank.answer(position)
