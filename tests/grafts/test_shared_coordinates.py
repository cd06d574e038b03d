"""Estimates of what others own of a region, against counting it out by set algebra."""

import itertools
import random
from statistics import mean

import pytest

from cl_graft.grafts.region import Layout, Region, union
from cl_graft.grafts.shared_coordinates import (
    average_owned_before,
    count_shared,
    find_drop_threshold,
    find_first_task,
    predict_owned_before,
)

LAYOUT = Layout(("weight",), ((2000,),))


def regions(count: int, size: int = 60, pool: int = 200, seed: int = 0) -> list[Region]:
    draws = random.Random(seed)
    return [Region.of(LAYOUT, draws.sample(range(pool), size)) for _ in range(count)]


def counted(found: list[Region], order: tuple[int, ...]) -> dict[int, float]:
    """Owned shares by set algebra."""
    shares = {}
    for place, task in enumerate(order):
        before = union((found[other] for other in order[:place]), layout=LAYOUT)
        shares[task] = len(found[task] - before) / len(found[task])
    return shares


def test_the_average_is_that_of_all_orders():
    found = regions(5)
    orders = list(itertools.permutations(range(5)))
    by_place = zip(
        *([counted(found, order)[task] for task in order] for order in orders), strict=True
    )
    told = average_owned_before(count_shared(found), 5)
    assert told == pytest.approx([1 - mean(there) for there in by_place])


def test_what_others_own_of_a_later_region_is_predicted_from_the_first_tasks():
    for pool, crowded in ((300, False), (600, False), (600, True)):
        draws = random.Random(1)
        weights = [1 / (n + 1) if crowded else 1.0 for n in range(pool)]
        found: list[Region] = []
        while len(found) < 60:
            keys = sorted(range(pool), key=lambda n: draws.random() ** (1 / weights[n]))
            found.append(Region.of(LAYOUT, keys[-40:]))
        whole = average_owned_before(count_shared(found), 60)
        told = [predict_owned_before(count_shared(found[:20]), 20, task=n) for n in (21, 30, 40)]
        assert told == pytest.approx([whole[20], whole[29], whole[39]], abs=0.06)


def test_the_first_task_is_the_one_at_which_the_expected_share_is_reached():
    counts = count_shared(regions(6, pool=400))
    owned_before = average_owned_before(counts, 6)
    owned_before += [predict_owned_before(counts, 6, task=n) for n in range(7, 40)]
    assert owned_before == sorted(owned_before)
    for share in (0.0, 0.05, 0.3, 0.51, 0.9):
        first = find_first_task(share, counts, 6)
        assert first is not None
        assert owned_before[first - 1] >= share > ([-1.0, *owned_before][first - 1])
    assert find_first_task(0.1, {1: 500}, 5) is None
    assert predict_owned_before({3: 60}, 3, task=4) == 1.0
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match="share must be"):
            find_first_task(wrong, counts, 6)
    with pytest.raises(ValueError, match="after 6 of two or more, got 6"):
        predict_owned_before(counts, 6, task=6)


def test_empty_regions_share_nothing():
    assert count_shared([Region.empty(LAYOUT)]) == {}
    assert average_owned_before({}, 1) == []


@pytest.mark.parametrize(
    ("shares", "dropped", "expected"),
    [
        ((0.0, 0.1, 0.3, 0.5), (0, 0, 1, 1), 0.2),
        ((0.5, 0.0, 0.3, 0.1), (1, 0, 1, 0), 0.2),
        ((0.0, 0.1, 0.2, 0.3, 0.5, 0.6), (0, 1, 0, 0, 1, 1), 0.4),
        ((0.0, 0.1, 0.3, 0.5), (0, 1, 0, 1), 0.05),
        ((0.0, 0.1, 0.2), (0, 0, 0), None),
        ((0.0, 0.1, 0.2), (1, 1, 1), None),
        ((0.1, 0.1), (0, 1), None),
        ((0.0, 0.1, 0.2), (1, 0, 0), None),
        ((), (), None),
    ],
)
def test_the_threshold_parts_tasks_that_dropped_from_those_that_did_not(shares, dropped, expected):
    found = find_drop_threshold(shares, [bool(drop) for drop in dropped])
    assert found == (None if expected is None else pytest.approx(expected))
