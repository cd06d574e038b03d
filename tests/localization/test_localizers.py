"""One battery of tests over the table of localizers."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from localization.planted import PLANTED, planted_problem
from torch import nn

from cl_graft.errors import InputError
from cl_graft.graft import gather, grafted
from cl_graft.localization import LOCALIZERS, find_localizer, localize
from cl_graft.localization.learned_mask import learned_mask
from cl_graft.localization.paper_mask import paper_mask, rounded
from cl_graft.randomness import generator
from cl_graft.region import Region

ALL = sorted(LOCALIZERS)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("k", [1, 7, 200])
def test_a_localizer_selects_exactly_k(name, k):
    problem, _ = planted_problem()
    assert len(localize(problem, name, k=k, steps=4).top(k)) == k


@pytest.mark.parametrize("name", ALL)
def test_a_localizer_puts_the_model_back_bit_for_bit(name):
    problem, _ = planted_problem()
    localize(problem, name, k=10, steps=4)
    for parameter_name, parameter in problem.parameters.items():
        assert torch.equal(parameter, problem.base[parameter_name])
        assert parameter.grad is None


@pytest.mark.parametrize("name", ALL)
def test_a_localizer_is_a_function_of_its_problem(name):
    orders = [localize(planted_problem()[0], name, k=10, steps=4).order for _ in range(2)]
    torch.manual_seed(123)
    orders.append(localize(planted_problem()[0], name, k=10, steps=4).order)
    assert torch.equal(orders[0], orders[1])
    assert torch.equal(orders[0], orders[2])


@pytest.mark.parametrize("name", ALL)
def test_budgets_cut_from_one_ranking_are_nested(name):
    problem, _ = planted_problem()
    ranking = localize(problem, name, k=20, steps=4)
    sizes = [1, 5, 20, 100, problem.layout.total]
    regions = [ranking.top(size) for size in sizes]
    assert all(small <= large for small, large in pairwise(regions))


@pytest.mark.parametrize("name", ALL)
def test_coordinates_of_earlier_tasks_are_passed_over_and_the_budget_stays_whole(name):
    problem, _ = planted_problem()
    ranking = localize(problem, name, k=10, steps=4)
    taken = ranking.top(15)
    region = ranking.top(10, without=taken)
    assert len(region) == 10
    assert len(region & taken) == 0


@pytest.mark.parametrize("name", ALL)
def test_half_precision_models_are_localized(name):
    problem, _ = planted_problem(dtype=torch.bfloat16)
    assert len(localize(problem, name, k=10, steps=3).top(10)) == 10


# Not paper_mask: its step of 10^7 is absolute and opens every gate of a model as small as this.
@pytest.mark.parametrize("name", ["learned_mask", "movement"])
def test_planted_coordinates_are_found(name):
    problem, planted = planted_problem()
    found = localize(problem, name, k=PLANTED, steps=12).top(PLANTED)
    # Some planted coordinates hardly move the predictions, so not all of them need be found.
    assert len(found & planted) >= PLANTED * 2 // 3


def test_a_random_region_misses_planted_coordinates():
    problem, planted = planted_problem()
    found = localize(problem, "random", k=PLANTED, steps=1).top(PLANTED)
    assert len(found & planted) <= PLANTED // 3


def test_the_graft_of_a_learned_region_answers_better_than_the_base():
    problem, _ = planted_problem()
    before = problem.dev_score()
    region = localize(problem, "learned_mask", k=PLANTED, steps=12).top(PLANTED)
    with grafted(problem.model, gather(problem.tuned, region)):
        assert problem.dev_score() > before + 0.2


def test_with_one_step_the_learned_mask_is_the_first_order_gain_at_the_base():
    problem, _ = planted_problem()
    gain = learned_mask(problem, k=5, steps=1)
    losses = problem.losses(0)
    total = sum(loss() for loss in losses) / len(losses)
    gradients = torch.autograd.grad(total, list(problem.parameters.values()))
    for (name, value), gradient in zip(gain.items(), gradients, strict=True):
        expected = -gradient * (problem.tuned[name] - problem.base[name])
        torch.testing.assert_close(value, expected)


def test_paper_mode_agrees_with_a_plain_derivation_of_the_published_update():
    problem, _ = planted_problem()
    steps, lr, bias, share = 20, 1e3, 10.0, 0.02
    ours = paper_mask(problem, k=1, steps=steps, lr=lr, bias=bias, base_density=share)
    names = list(problem.base)
    base, tuned = problem.base, problem.tuned
    moved = torch.cat([(tuned[n] - base[n]).abs().reshape(-1) for n in names])
    cut = moved.sort(descending=True).values[int(share * moved.numel()) - 1]
    start = {n: ((tuned[n] - base[n]).abs() > cut).float() for n in names}
    S = {n: torch.rand(base[n].shape, generator=generator(0, "mask", n)) for n in names}
    best, best_S = 0.0, dict(S)
    model = problem.model

    def put(gates):
        with torch.no_grad():
            for n, p in problem.parameters.items():
                p.copy_(base[n] + gates[n] * (tuned[n] - base[n]))

    for step in range(steps):
        soft = {n: torch.sigmoid(S[n] - bias) for n in names}
        put({n: start[n] * (1 - soft[n]) + (1 - start[n]) * soft[n] for n in names})
        for loss in problem.losses(step):
            (loss() / 2).backward()
        for n, p in problem.parameters.items():
            S[n] = S[n] - lr * (1 - 2 * start[n]) * p.grad * (tuned[n] - base[n]) * soft[n] * (
                1 - soft[n]
            )
            p.grad = None
        hard = {n: torch.round(torch.sigmoid(S[n] - bias)) for n in names}
        put({n: start[n] * (1 - hard[n]) + (1 - start[n]) * hard[n] for n in names})
        with torch.no_grad():
            score = 2 * problem.dev_score()
        if score > best:
            best, best_S = score, {n: s.clone() for n, s in S.items()}
    put(dict.fromkeys(names, 0.0))
    expected = {n: (1 - 2 * start[n]) * (best_S[n] - bias) for n in names}
    for n in names:
        torch.testing.assert_close(ours[n], expected[n], rtol=1e-4, atol=1e-4)
    assert rounded(ours) == Region.from_masks({n: e > 0 for n, e in expected.items()})
    assert isinstance(model, nn.Module)


def test_an_unknown_localizer_is_answered_with_the_nearest_one():
    with pytest.raises(InputError, match="did you mean 'movement'"):
        find_localizer("movment")


@given(k=st.integers(-3, 0) | st.integers(10_000, 10_010))
@settings(max_examples=10, deadline=None)
def test_a_budget_out_of_range_is_refused(k):
    problem, _ = planted_problem()
    with pytest.raises(ValueError, match=r"k must be in \[1, "):
        localize(problem, "movement", k=k)
