"""Routing: statistics add up, and every rule is what it is by definition."""

import pytest
import torch

from cl_graft.inference.routing_rules import ClassStatistics, discriminant

SIZE = 6


def rows(seed, *, count=40, classes=2, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % classes
    middles = 2 * torch.randn(classes, SIZE, generator=generator) + shift
    return middles[targets] + torch.randn(count, SIZE, generator=generator), targets


def learned():
    known = ClassStatistics.empty(SIZE)
    for task in (3, 5):
        known = known.with_rows(*rows(task, shift=task), task=task)
    return known


def test_means_and_scatter_are_those_of_the_rows():
    known = learned()
    assert known.tasks.tolist() == [3, 3, 5, 5]
    assert known.classes.tolist() == [0, 1, 0, 1]
    assert known.counts.tolist() == [20, 20, 20, 20]
    scatter = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    for place, (task, number) in enumerate([(3, 0), (3, 1), (5, 0), (5, 1)]):
        features, targets = rows(task, shift=task)
        own = features[targets == number].double()
        torch.testing.assert_close(known.means[place].double(), own.mean(0), rtol=0, atol=1e-6)
        scatter += (len(own) - 1) * own.T.cov()
    torch.testing.assert_close(known.scatter.double(), scatter, rtol=1e-5, atol=1e-5)
    means, before = known.means.clone(), known.scatter.clone()
    known.with_rows(*rows(9), task=3)  # makes others, and does not change these
    assert torch.equal(known.means, means)
    assert torch.equal(known.scatter, before)


def test_rows_that_come_in_parts_give_what_they_give_at_once():
    features, targets = rows(0)
    at_once = ClassStatistics.empty(SIZE).with_rows(features, targets, task=0)
    parts = ClassStatistics.empty(SIZE)
    for part in torch.arange(len(targets)).split(7):
        parts = parts.with_rows(features[part], targets[part], task=0)
    assert torch.equal(parts.counts, at_once.counts)
    torch.testing.assert_close(parts.means, at_once.means, rtol=0, atol=1e-5)
    torch.testing.assert_close(parts.scatter, at_once.scatter, rtol=1e-5, atol=1e-4)


def test_the_discriminant_is_the_likeliest_task_under_normal_classes():
    known = learned()
    asked = 4 + 3 * torch.randn(50, SIZE, generator=torch.Generator().manual_seed(1))
    covariance = known.scatter.double() / (80 - 4)
    shrunk = 0.7 * covariance + 0.3 * covariance.diagonal().mean() * torch.eye(SIZE)
    likelihood = torch.stack(
        [
            torch.distributions.MultivariateNormal(mean.double(), shrunk).log_prob(asked.double())
            for mean in known.means
        ],
        dim=1,
    ).exp()
    of_tasks = torch.stack([likelihood[:, :2].mean(1), likelihood[:, 2:].mean(1)], dim=1)
    expected = torch.tensor([3, 5])[of_tasks.argmax(1)]
    assert torch.equal(discriminant(asked, known, shrinkage=0.3), expected)
    assert len(expected.unique()) == 2


def test_a_task_is_no_likelier_for_having_more_classes():
    same = torch.randn(30, SIZE, generator=torch.Generator().manual_seed(2))
    known = ClassStatistics.empty(SIZE)
    known = known.with_rows(same, torch.zeros(30), task=0)
    known = known.with_rows(same.repeat(4, 1), torch.arange(4).repeat_interleave(30), task=1)
    assert discriminant(same, known, shrinkage=0.1).unique().tolist() == [0]


def test_with_full_shrinkage_the_discriminant_is_the_nearest_mean_of_single_classes():
    known = ClassStatistics.empty(SIZE)
    for task in range(4):
        known = known.with_rows(*rows(task, classes=1, shift=task), task=task)
    asked = 3 * torch.randn(50, SIZE, generator=torch.Generator().manual_seed(1))
    expected = torch.cdist(asked, known.means).argmin(1)
    assert torch.equal(discriminant(asked, known, shrinkage=1.0), expected)


def test_rows_that_do_not_scatter_are_told_apart_all_the_same():
    known = ClassStatistics.empty(2)
    known = known.with_rows(torch.zeros(3, 2), torch.zeros(3), task=0)
    known = known.with_rows(torch.ones(3, 2), torch.zeros(3), task=1)
    asked = torch.tensor([[0.1, 0.2], [0.9, 0.7]])
    assert discriminant(asked, known, shrinkage=0.1).tolist() == [0, 1]


@pytest.mark.parametrize("wrong", [0.0, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        discriminant(torch.zeros(1, SIZE), learned(), shrinkage=wrong)
