"""What an entry builds on is stored where a bank's mode does not say it, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from stored_banks import LAYOUT, bank_of, content, entry_of, same_bank, sample

from cl_graft.errors import BankError, DamagedFile
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.region import Region
from cl_graft.storage import load_bank, save_bank
from cl_graft.storage.bank_folder import _record
from cl_graft.storage.hub import model_card


def grown(*subsets: Sequence[int] | None) -> GraftBank:
    """Make a bank whose entries build on the given ones; regions are large enough to meet."""
    bank = bank_of(tasks=0)
    for number, subset in enumerate(subsets):
        under = None if subset is None else tuple(subset)
        claimed = sample(LAYOUT, 200, number)
        free = bank.free(claimed, builds_on=under)
        entry = entry_of(replace(bank, mode="isolated"), free, task=f"task{number}")
        bank = bank.append(replace(entry, owned_before=claimed - free, builds_on=under))
    return bank


def test_a_bank_whose_entries_build_on_some_comes_back(tmp_path):
    bank = grown(None, (), (0,))
    assert bank.may_share
    assert bank.entries[1].owned.region & bank.entries[0].owned.region
    save_bank(bank, tmp_path)
    assert same_bank(load_bank(tmp_path), bank)
    lines = json.loads((tmp_path / "bank.json").read_text())["entries"]
    assert [line.get("builds_on") for line in lines] == [None, [], [0]]


def test_what_the_mode_says_anyway_is_not_stored(tmp_path):
    save_bank(grown(None, None, None), tmp_path / "unsaid")
    save_bank(grown((), (0,), (0, 1)), tmp_path / "said")
    assert content(tmp_path / "said") == content(tmp_path / "unsaid")


@pytest.mark.parametrize(
    "under", [(2,), (9,), (-1,), (1, 0), (0, 0), (0, 1), ("0",), (True,), (0.0,), (None,), ((0,),)]
)
def test_positions_that_no_entry_can_build_on_are_refused(tmp_path, under):
    """Itself, a later one, twice, out of order, all of them, and what is no position."""
    bank = grown(None, None, (1,))
    forged = replace(bank, entries=(*bank.entries[:2], replace(bank.entries[2], builds_on=under)))
    save_bank(forged, tmp_path)
    with pytest.raises(DamagedFile, match=r"builds on"):
        load_bank(tmp_path)
    if under != (0, 1):
        with pytest.raises(ValueError, match="entry 2 builds on ascending positions below its own"):
            replace(bank, entries=bank.entries[:2]).append(forged.entries[2])


@pytest.mark.parametrize("forgery", ["mode", "owner", "listed"])
def test_an_entry_that_contradicts_its_bank_is_refused(tmp_path, forgery):
    bank = grown(None, (), (1,))
    shared = bank.entries[1].owned.region & bank.entries[0].owned.region
    assert shared
    if forgery == "mode":
        save_bank(replace(bank, mode="isolated"), tmp_path)
    elif forgery == "owner":  # it builds on one that owns its coordinates
        owned, none = bank.entries[1].owned, Region.empty(LAYOUT)
        last = replace(bank.entries[2], builds_on=(1,), owned=owned, owned_before=none)
        save_bank(replace(bank, entries=(*bank.entries[:2], last)), tmp_path)
    else:
        name = "cl_graft.storage.bank_folder._record"
        with patch(name, lambda entry: {**_record(entry), "builds_on": [7]}):
            save_bank(bank, tmp_path)
    with pytest.raises(BankError, match=r"builds on|stand alone|one owner|builds_on"):
        load_bank(tmp_path)


def test_the_model_card_says_what_a_task_builds_on():
    card = model_card(grown(None, (), (0,)), name="org/bank")
    assert "those of the tasks that it builds on" in card
    assert "- task1 builds on the base\n- task2 builds on task0\n" in card
    assert "builds on" not in model_card(grown(None, None), name="org/bank")
