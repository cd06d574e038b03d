"""Routing by answers: the rules are what they are by definition, for any number of classes."""

import math

import torch

from cl_graft.inference.routing_by_answers import least_energy, least_entropy


def test_entropy_is_compared_as_a_share_of_the_most_that_it_could_be():
    even = torch.zeros(1, 2)
    # 1.2 nats of 1.39 are less of four classes than 0.69 of 0.69 of two.
    four = torch.tensor([[0.45, 0.25, 0.2, 0.1]]).log()
    entropy = -(four.exp() * four).sum()
    assert math.log(2) < entropy < math.log(4)
    assert least_entropy({0: even, 1: four}).tolist() == [1]


def test_the_surest_answer_is_picked_row_by_row():
    sure, unsure = [4.0, -4.0], [0.1, 0.0]
    logits = {7: torch.tensor([sure, unsure]), 2: torch.tensor([unsure, sure])}
    assert least_entropy(logits).tolist() == [7, 2]


def test_energy_is_the_negative_log_of_the_sum_of_exponentials():
    generator = torch.Generator().manual_seed(0)
    logits = {task: torch.randn(20, task, generator=generator) for task in (2, 3, 5)}
    sums = torch.stack([own.exp().sum(1) for own in logits.values()], dim=1)
    expected = torch.tensor([2, 3, 5])[sums.argmax(1)]
    assert torch.equal(least_energy(logits), expected)


def test_of_equal_answers_the_first_task_counts():
    same = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for rule in (least_entropy, least_energy):
        assert rule({4: same, 1: same.clone()}).unique().tolist() == [4]
