"""The capacity of a bank is measured from its files, and nothing is said that they do not show."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_banks import base_identity, entry_of

from cl_graft import InputError, load_bank, save_bank
from cl_graft.banks.capacity import measure_capacity
from cl_graft.grafts.bank import GraftBank, Mode
from cl_graft.grafts.region import Layout, Region
from cl_graft.grafts.shared_coordinates import count_shared, find_first_task

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
    """Save a bank whose regions are drawn from a pool, and whose tasks drop above a share."""
    draws = random.Random(0)
    base = replace(base_identity(), metadata={"settings": settings or {}})
    bank = GraftBank(LAYOUT, base, mode)
    for number in range(tasks):
        own = range(number * SIZE, (number + 1) * SIZE)
        region = Region.of(LAYOUT, own if apart else draws.sample(range(POOL), SIZE))
        share = 1 - len(bank.free(region)) / SIZE
        metadata = {"dense_dev": 0.9, "trained_dev": 0.7 if share > drops_above else 0.89}
        entry = entry_of(bank, region, task=f"task{number}", metadata=metadata if scored else {})
        bank = bank.append(entry)
    save_bank(bank, folder)
    return folder


def test_shares_are_those_of_the_regions(tmp_path):
    found = measure_capacity(planted(tmp_path))
    bank = load_bank(tmp_path)
    for task, entry in zip(found.tasks, bank.entries, strict=True):
        before = bank.covered(upto=task.position)
        assert (task.region_size, task.owned) == (SIZE, len(entry.region - before))
        assert task.owned_before == pytest.approx(1 - task.owned / SIZE)
        assert task.overlap == pytest.approx(task.owned_before)
    assert found.owned == sum(task.owned for task in found.tasks)


def test_the_task_that_drops_is_predicted_from_overlaps_and_from_the_tasks_that_dropped(tmp_path):
    found = measure_capacity(planted(tmp_path))
    told = found.prediction
    assert told.next_owned_before == pytest.approx(1 - (1 - SIZE / POOL) ** 8, abs=0.05)
    owned_before = [task.owned_before for task in found.tasks]
    assert told.threshold is not None
    assert (
        max(x for x in owned_before if x <= 0.4)
        < told.threshold
        < min(x for x in owned_before if x > 0.4)
    )
    counts = count_shared([entry.region for entry in load_bank(tmp_path).entries])
    assert told.drops_at == find_first_task(told.threshold, counts, 8)
    assert next(task.position + 1 for task in found.tasks if task.dropped) == told.drops_at
    assert "own dense run" in told.basis
    for task in found.tasks:
        assert task.average_owned_before == pytest.approx(task.owned_before, abs=0.15)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"mode": "isolated"}, "isolated mode share coordinates"),
        ({"tasks": 1}, "takes two tasks"),
        ({"apart": True}, "no two regions overlap"),
        ({"scored": False}, "no task has both a score"),
        ({"drops_above": 0.9}, r"no task dropped, and others own at most 6\d"),
        ({"drops_above": -1.0}, "did not drop more often"),
    ],
)
def test_what_the_bank_does_not_show_cannot_be_told(tmp_path, given, reason):
    told = measure_capacity(planted(tmp_path, **given)).prediction
    assert told.drops_at is None
    assert re.search(reason, told.reason)


def test_a_bank_that_chooses_among_free_coordinates_is_full_when_they_are_taken(tmp_path):
    found = measure_capacity(
        planted(tmp_path, settings={"grafting": {"avoid_owned": True}}, apart=True)
    )
    assert found.prediction.full_at == LAYOUT.total // SIZE + 1


def test_scores_are_compared_with_independent_fine_tuning_where_it_was_run(comparison):
    found = measure_capacity(comparison.out / "grafting" / "seed0")
    assert found.prediction.basis == "test rows, beside independent fine-tuning"
    cells = {cell.strategy: cell for cell in comparison.runs}
    for place, task in enumerate(found.tasks):
        assert task.score == cells["grafting"].R[place][place]
        assert task.reference == cells["independent"].R[place][place]
        assert task.owned_before == pytest.approx(cells["grafting"].coordinates[task.task]["lost"])


def test_a_tolerance_out_of_range_is_refused(tmp_path):
    planted(tmp_path)
    for wrong in (1.0, -0.1):
        with pytest.raises(InputError, match="must be"):
            measure_capacity(tmp_path, tolerance=wrong)
