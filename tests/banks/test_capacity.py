"""How much room a bank has is read off its files, and nothing is said that they do not show."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_banks import base_identity, entry_of

from cl_graft import InputError, load_bank, save_bank
from cl_graft.banks.capacity import capacity
from cl_graft.grafts.bank import GraftBank, Mode
from cl_graft.grafts.capacity import claim_counts, task_that_loses
from cl_graft.grafts.region import Layout, Region

LAYOUT = Layout(("weight",), ((4000,),))
SIZE, POOL = 100, 800


def planted(
    folder: Path,
    *,
    tasks: int = 8,
    drops_above: float = 0.4,
    mode: Mode = "prefix",
    settings: dict[str, Any] | None = None,
    scored: bool = True,
    apart: bool = False,
) -> Path:
    """Save a bank whose regions are drawn from a pool, and whose tasks drop above a lost share."""
    draws = random.Random(0)
    base = replace(base_identity(), metadata={"settings": settings or {}})
    bank = GraftBank(LAYOUT, base, mode)
    for number in range(tasks):
        own = range(number * SIZE, (number + 1) * SIZE)
        claimed = Region.of(LAYOUT, own if apart else draws.sample(range(POOL), SIZE))
        lost = 1 - len(bank.free(claimed)) / SIZE
        metadata = {"dense_dev": 0.9, "trained_dev": 0.7 if lost > drops_above else 0.89}
        entry = entry_of(bank, claimed, task=f"task{number}", metadata=metadata if scored else {})
        bank = bank.append(entry)
    save_bank(bank, folder)
    return folder


def test_shares_are_those_of_the_regions(tmp_path):
    found = capacity(planted(tmp_path))
    bank = load_bank(tmp_path)
    for task, entry in zip(found.tasks, bank.entries, strict=True):
        before = bank.covered(upto=task.position)
        assert (task.claimed, task.owned) == (SIZE, len(entry.region - before))
        assert task.lost == pytest.approx(1 - task.owned / SIZE)
        assert task.overlap == pytest.approx(task.lost)
    assert found.owned == sum(task.owned for task in found.tasks)
    assert found.orders is not None
    assert (found.orders.exact, found.orders.seed) == (False, 0)


def test_the_task_that_drops_is_predicted_from_overlaps_and_from_the_tasks_that_dropped(tmp_path):
    found = capacity(planted(tmp_path))
    told = found.prediction
    assert told.next_lost == pytest.approx(1 - (1 - SIZE / POOL) ** 8, abs=0.05)
    lost = [task.lost for task in found.tasks]
    assert told.threshold is not None
    assert max(x for x in lost if x <= 0.4) < told.threshold < min(x for x in lost if x > 0.4)
    counts = claim_counts([entry.region for entry in load_bank(tmp_path).entries])
    assert told.drops_at == task_that_loses(told.threshold, counts, 8)
    assert next(task.position + 1 for task in found.tasks if task.dropped) == told.drops_at
    assert "own dense run" in told.basis
    for task in found.tasks:
        assert task.expected_lost == pytest.approx(task.lost, abs=0.15)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"mode": "isolated"}, "isolated mode share coordinates"),
        ({"tasks": 1}, "takes two tasks"),
        ({"apart": True}, "no two regions overlap"),
        ({"scored": False}, "no task has both a score"),
        ({"drops_above": 0.9}, r"no task dropped, and none lost more than 6\d"),
        ({"drops_above": -1.0}, "did not drop more often"),
    ],
)
def test_what_the_bank_does_not_show_cannot_be_told(tmp_path, given, reason):
    told = capacity(planted(tmp_path, **given)).prediction
    assert told.drops_at is None
    assert re.search(reason, told.reason)


def test_a_bank_that_chooses_among_free_coordinates_is_full_when_they_are_taken(tmp_path):
    found = capacity(planted(tmp_path, settings={"grafting": {"avoid_owned": True}}, apart=True))
    assert found.refilled is True
    assert found.prediction.full_at == LAYOUT.total // SIZE + 1


def test_scores_are_compared_with_independent_fine_tuning_where_it_was_run(comparison):
    found = capacity(comparison.out / "grafting" / "seed0")
    assert found.prediction.basis == "test rows, beside independent fine-tuning"
    cells = {cell.strategy: cell for cell in comparison.runs}
    for place, task in enumerate(found.tasks):
        assert task.score == cells["grafting"].R[place][place]
        assert task.reference == cells["independent"].R[place][place]
        assert task.lost == pytest.approx(cells["grafting"].coordinates[task.task]["lost"])


def test_settings_out_of_range_are_refused(tmp_path):
    planted(tmp_path)
    for wrong in ({"tolerance": 1.0}, {"tolerance": -0.1}, {"samples": 0}):
        with pytest.raises(InputError, match="must be"):
            capacity(tmp_path, **wrong)
