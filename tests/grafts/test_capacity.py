"""What tasks would own in other orders, and what later ones lose, against counting it out."""

import itertools
import random
from statistics import mean, pstdev

import pytest

from cl_graft.grafts.capacity import (
    claim_counts,
    drop_threshold,
    expected_lost,
    owned_in_orders,
    predicted_lost,
    task_that_loses,
)
from cl_graft.grafts.region import Layout, Region, union

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


def test_all_orders_of_few_tasks_are_those_of_set_algebra():
    found = regions(4)
    told = owned_in_orders(found)
    orders = list(itertools.permutations(range(4)))
    shares = [counted(found, order) for order in orders]
    assert (told.orders, told.exact, told.seed) == (24, True, None)
    for task in range(4):
        own = [share[task] for share in shares]
        assert told.least[task] == pytest.approx(min(own))
        assert told.mean[task] == pytest.approx(mean(own))
        assert told.spread[task] == pytest.approx(pstdev(own))
    assert told.worst_off == pytest.approx(min(counted(found, (0, 1, 2, 3)).values()))
    assert told.worst_off_best == pytest.approx(max(min(s.values()) for s in shares))
    assert told.worst_off_worst == pytest.approx(min(min(s.values()) for s in shares))
    assert min(counted(found, told.best).values()) == pytest.approx(told.worst_off_best)


def test_orders_of_many_tasks_are_drawn_by_a_seed_and_their_means_are_exact():
    found = regions(20, pool=600)
    told = owned_in_orders(found, samples=400, seed=3)
    assert (told.orders, told.exact, told.seed) == (400, False, 3)
    assert told == owned_in_orders(found, samples=400, seed=3)
    assert told != owned_in_orders(found, samples=400, seed=4)
    assert sum(told.mean) * 60 == pytest.approx(len(union(found, layout=LAYOUT)))
    last = counted(found, (*range(7), *range(8, 20), 7))[7]
    assert told.least[7] == pytest.approx(last)


def test_what_has_no_regions_has_no_orders():
    for wrong in ([], [*regions(2), Region.empty(LAYOUT)]):
        with pytest.raises(ValueError, match="not empty"):
            owned_in_orders(wrong)


def test_what_is_lost_on_average_is_that_of_all_orders():
    found = regions(5)
    orders = list(itertools.permutations(range(5)))
    by_place = zip(
        *([counted(found, order)[task] for task in order] for order in orders), strict=True
    )
    told = expected_lost(claim_counts(found), 5)
    assert told == pytest.approx([1 - mean(there) for there in by_place])


def test_what_a_later_task_loses_is_predicted_from_the_first_ones():
    for pool, crowded in ((300, False), (600, False), (600, True)):
        draws = random.Random(1)
        weights = [1 / (n + 1) if crowded else 1.0 for n in range(pool)]
        found: list[Region] = []
        while len(found) < 60:
            keys = sorted(range(pool), key=lambda n: draws.random() ** (1 / weights[n]))
            found.append(Region.of(LAYOUT, keys[-40:]))
        whole = expected_lost(claim_counts(found), 60)
        told = [predicted_lost(claim_counts(found[:20]), 20, task=n) for n in (21, 30, 40)]
        assert told == pytest.approx([whole[20], whole[29], whole[39]], abs=0.06)


def test_the_task_that_loses_a_share_is_the_first_whose_expected_loss_reaches_it():
    counts = claim_counts(regions(6, pool=400))
    lost = expected_lost(counts, 6)
    lost += [predicted_lost(counts, 6, task=n) for n in range(7, 40)]
    assert lost == sorted(lost)
    for share in (0.0, 0.05, 0.3, 0.51, 0.9):
        first = task_that_loses(share, counts, 6)
        assert first is not None
        assert lost[first - 1] >= share > ([-1.0, *lost][first - 1])
    assert task_that_loses(0.1, {1: 500}, 5) is None
    assert predicted_lost({3: 60}, 3, task=4) == 1.0
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match="share must be"):
            task_that_loses(wrong, counts, 6)
    with pytest.raises(ValueError, match="after 6 of two or more, got 6"):
        predicted_lost(counts, 6, task=6)


def test_nothing_is_claimed_by_regions_that_are_empty():
    assert claim_counts([Region.empty(LAYOUT)]) == {}
    assert expected_lost({}, 1) == []


@pytest.mark.parametrize(
    ("lost", "dropped", "expected"),
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
def test_the_threshold_parts_tasks_that_dropped_from_those_that_did_not(lost, dropped, expected):
    found = drop_threshold(lost, [bool(drop) for drop in dropped])
    assert found == (None if expected is None else pytest.approx(expected))
