"""One battery of tests over the table of localizers."""

import gc
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from localization.planted import PLANTED, planted_inputs
from torch import nn

from cl_graft.errors import DivergedError, InputError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.region import Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization import LOCALIZERS, LocalizerInputs, find_localizer, localize, rank
from cl_graft.localization.learned_mask import learned_mask
from cl_graft.localization.paper_mask import paper_mask, round_gates
from cl_graft.runtime.seeding import generator

# Rules have tests of their own: there are fewer coordinates to choose from.
ALL = sorted(name for name, row in LOCALIZERS.items() if row.allowed is None)
GRADIENTS = [name for name in ALL if LOCALIZERS[name].needs_gradients]
EACH = pytest.mark.parametrize("name", ALL)


@EACH
def test_a_localizer_puts_the_model_back_bit_for_bit(name):
    inputs, _ = planted_inputs()
    before = snapshot(inputs.parameters)
    localize(inputs, name, k=10, steps=4)
    for parameter_name, parameter in inputs.parameters.items():
        assert torch.equal(parameter, before[parameter_name])
        assert parameter.grad is None
        assert parameter.requires_grad
        assert not parameter._post_accumulate_grad_hooks


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_localizer_that_is_interrupted_puts_the_model_back_bit_for_bit(name):
    inputs, _ = planted_inputs()
    before = snapshot(inputs.parameters)

    def stop(step):
        if step == 3:
            raise KeyboardInterrupt
        return (inputs.row_losses if name == "fish" else inputs.losses)(step)

    stopping = replace(inputs, losses=stop, row_losses=stop)
    for candidates in (None, 300):
        with pytest.raises(KeyboardInterrupt):
            localize(stopping, name, k=50, steps=4, candidates=candidates)
        for parameter_name, parameter in inputs.parameters.items():
            assert torch.equal(parameter, before[parameter_name])
            assert not parameter._post_accumulate_grad_hooks


@EACH
def test_a_localizer_is_a_function_of_its_inputs(name):
    orders = [localize(planted_inputs()[0], name, k=10, steps=4).order for _ in range(2)]
    torch.manual_seed(123)
    orders.append(localize(planted_inputs()[0], name, k=10, steps=4).order)
    assert torch.equal(orders[0], orders[1])
    assert torch.equal(orders[0], orders[2])


@pytest.mark.parametrize(
    ("name", "candidates"), [("learned_mask", 300), *((name, None) for name in GRADIENTS)]
)
def test_a_loss_scale_changes_no_coordinate_of_a_ranking(name, candidates):
    plain, scaled = (
        localize(
            replace(planted_inputs()[0], loss_scale=scale),
            name,
            k=20,
            steps=4,
            candidates=candidates,
        )
        for scale in (1.0, 1024.0)
    )
    assert torch.equal(plain.order, scaled.order)


def test_a_loss_scale_under_which_gradients_overflow_is_an_error():
    inputs = replace(planted_inputs()[0], loss_scale=1e39)
    with pytest.raises(DivergedError, match="use precision bf16 or fp32"):
        localize(inputs, "learned_mask", k=20)


@EACH
def test_budgets_cut_from_one_ranking_are_nested(name):
    inputs, _ = planted_inputs()
    ranking = localize(inputs, name, k=20, steps=4)
    sizes = [1, 5, 20, 100, inputs.layout.total]
    regions = [ranking.top(size) for size in sizes]
    assert [len(region) for region in regions] == sizes
    assert all(small <= large for small, large in pairwise(regions))
    taken = ranking.top(15)
    free = ranking.top(10, without=taken)
    assert len(free) == 10
    assert len(free & taken) == 0


@EACH
def test_half_precision_models_are_localized(name):
    inputs, _ = planted_inputs(dtype=torch.bfloat16)
    assert len(localize(inputs, name, k=10, steps=3).top(10)) == 10


# Not paper_mask: its step of 10^7 is absolute and opens every gate of a model as small as this.
@pytest.mark.parametrize("name", ["learned_mask", "movement"])
def test_planted_coordinates_are_found(name):
    inputs, planted = planted_inputs()
    found = localize(inputs, name, k=PLANTED, steps=12).top(PLANTED)
    # Some planted coordinates hardly move the predictions, so not all of them need be found.
    assert len(found & planted) >= PLANTED * 2 // 3


def test_a_random_region_misses_planted_coordinates():
    inputs, planted = planted_inputs()
    found = localize(inputs, "random", k=PLANTED, steps=1).top(PLANTED)
    assert len(found & planted) <= PLANTED // 3


def test_the_graft_of_a_learned_region_answers_better_than_the_base():
    inputs, _ = planted_inputs()
    before = inputs.dev_score()
    region = localize(inputs, "learned_mask", k=PLANTED, steps=12).top(PLANTED)
    with grafted(inputs.model, gather(inputs.tuned, region)):
        assert inputs.dev_score() > before + 0.2


def test_with_one_step_the_learned_mask_is_the_first_order_gain_at_the_base():
    inputs, _ = planted_inputs()
    gain = learned_mask(inputs, k=5, steps=1)
    losses = inputs.losses(0)
    total = sum(loss() for loss in losses) / len(losses)
    gradients = torch.autograd.grad(total, list(inputs.parameters.values()))
    for (name, value), gradient in zip(gain.items(), gradients, strict=True):
        expected = -gradient * (inputs.tuned[name] - inputs.base[name])
        torch.testing.assert_close(value, expected)


def test_paper_mode_agrees_with_a_plain_derivation_of_the_published_update():
    inputs, _ = planted_inputs()
    steps, lr, bias, share = 20, 1e3, 10.0, 0.02
    ours = paper_mask(inputs, k=1, steps=steps, lr=lr, bias=bias, base_density=share)
    names = list(inputs.base)
    base, tuned = snapshot(inputs.parameters), inputs.tuned
    moved = torch.cat([(tuned[n] - base[n]).abs().reshape(-1) for n in names])
    cut = moved.sort(descending=True).values[int(share * moved.numel()) - 1]
    start = {n: ((tuned[n] - base[n]).abs() > cut).float() for n in names}
    S = {n: torch.rand(base[n].shape, generator=generator(0, "mask", n)) for n in names}
    best, best_S = 0.0, dict(S)
    model = inputs.model

    def put(gates):
        with torch.no_grad():
            for n, p in inputs.parameters.items():
                p.copy_(base[n] + gates[n] * (tuned[n] - base[n]))

    for step in range(steps):
        soft = {n: torch.sigmoid(S[n] - bias) for n in names}
        put({n: start[n] * (1 - soft[n]) + (1 - start[n]) * soft[n] for n in names})
        for loss in inputs.losses(step):
            (loss() / 2).backward()
        for n, p in inputs.parameters.items():
            S[n] = S[n] - lr * (1 - 2 * start[n]) * p.grad * (tuned[n] - base[n]) * soft[n] * (
                1 - soft[n]
            )
            p.grad = None
        hard = {n: torch.round(torch.sigmoid(S[n] - bias)) for n in names}
        put({n: start[n] * (1 - hard[n]) + (1 - start[n]) * hard[n] for n in names})
        with torch.no_grad():
            score = 2 * inputs.dev_score()
        if score > best:
            best, best_S = score, {n: s.clone() for n, s in S.items()}
    put(dict.fromkeys(names, 0.0))
    expected = {n: (1 - 2 * start[n]) * (best_S[n] - bias) for n in names}
    for n in names:
        torch.testing.assert_close(ours[n], expected[n], rtol=1e-4, atol=1e-4)
    assert round_gates(ours) == Region.from_masks({n: e > 0 for n, e in expected.items()})
    assert isinstance(model, nn.Module)


def test_an_unknown_localizer_is_answered_with_the_nearest_one():
    with pytest.raises(InputError, match="did you mean 'movement'"):
        find_localizer("movment")


@given(k=st.integers(-3, 0) | st.integers(10_000, 10_010))
@settings(max_examples=10)
def test_a_budget_out_of_range_is_refused(k):
    inputs, _ = planted_inputs()
    with pytest.raises(ValueError, match=r"k must be in \[1, "):
        localize(inputs, "movement", k=k)


def dense_gains(inputs, *, k, steps):
    """The learned mask's gains as a plain loop over dense gradients."""
    base, tuned = snapshot(inputs.parameters), inputs.tuned
    gain = {name: torch.zeros_like(value) for name, value in base.items()}
    for step in range(steps):
        size = round(k * step / (steps - 1))
        opened = top_k(gain, size) if size else Region.empty(inputs.layout)
        with grafted(inputs.model, gather(tuned, opened)):
            parts = inputs.losses(step)
            loss = torch.stack([part() for part in parts]).mean()
            gradients = torch.autograd.grad(loss, list(inputs.parameters.values()))
        weight = 1.0 if step < steps // 2 else (steps - step) / (steps - steps // 2)
        for name, gradient in zip(gain, gradients, strict=True):
            gain[name] -= weight * gradient * (tuned[name] - base[name])
    return gain


@pytest.mark.parametrize("steps", [12, 5])
@pytest.mark.parametrize("candidates", [None, "all"])
def test_the_learned_mask_agrees_with_a_plain_derivation(candidates, steps):
    inputs, _ = planted_inputs()
    gain = dense_gains(inputs, k=40, steps=steps)
    total = inputs.layout.total
    chosen = total if candidates == "all" else None
    found = localize(inputs, "learned_mask", k=40, steps=steps, candidates=chosen)
    assert found.top(40) == top_k(gain, 40)
    assert torch.equal(found.order, rank(gain, depth=total).order)


def test_gains_that_weigh_less_and_less_are_the_mean_of_their_sums_over_the_second_half():
    inputs, _ = planted_inputs()
    asked = []

    def losses(step):
        asked.append(step)
        return [lambda: sum((p * (step + 1.0)).sum() for p in inputs.parameters.values())]

    found = learned_mask(replace(inputs, losses=losses), k=1, steps=6)
    assert asked == list(range(6))
    # The gradient of step t is t + 1 everywhere: sums 1, 3, 6, 10, 15, 21, of which the last three.
    for name, gain in found.items():
        sums = gain / (inputs.base[name] - inputs.tuned[name])
        assert torch.allclose(sums, torch.tensor((10 + 15 + 21) / 3), rtol=1e-4)


def test_candidates_are_those_that_moved_most_and_bound_the_ranking():
    inputs, _ = planted_inputs()
    moved = localize(inputs, "movement", k=100).top(100)
    found = localize(inputs, "learned_mask", k=20, candidates=100)
    assert len(found.order) == 100
    assert Region.of(inputs.layout, found.order) == moved
    dense = localize(inputs, "learned_mask", k=20).top(20)
    assert found.top(20).jaccard(dense) > 0.6


@pytest.mark.parametrize("name", sorted(set(ALL) - {"learned_mask"}))
def test_a_localizer_that_cannot_score_candidates_alone_looks_at_all(name):
    inputs, _ = planted_inputs()
    assert len(localize(inputs, name, k=20, steps=4, candidates=30).order) > 30


@pytest.mark.parametrize(
    ("name", "missing"), [("movement", {"tuned": {}}), ("path_integral", {"path": {}})]
)
def test_a_problem_without_what_a_localizer_looks_at_is_refused(name, missing):
    inputs, _ = planted_inputs()
    with pytest.raises(ValueError, match=f"{name} needs"):
        localize(replace(inputs, **missing), name, k=1)


@pytest.fixture
def nothing_else():
    """Leave what was made before a test out of every collection: there are millions of objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def floats_alive(size):
    """How many tensors of a size hold memory of their own right now."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    return len({t.data_ptr() for t in tensors if t.numel() == size and t.dtype == torch.float32})


@pytest.mark.usefixtures("nothing_else")
@pytest.mark.parametrize("candidates", [None, 500])
def test_the_learned_mask_holds_one_score_a_coordinate_beside_model_and_tuned_weights(candidates):
    torch.manual_seed(0)
    model = nn.Linear(211, 307)
    parameters = dict(model.named_parameters())
    tuned = {name: p.detach() + 0.01 * torch.randn(p.shape) for name, p in parameters.items()}
    x, targets = torch.randn(64, 211), torch.randint(307, (64,))
    alive = []

    def losses(step):
        def loss():
            alive.append(floats_alive(model.weight.numel()))
            return nn.functional.cross_entropy(model(x), targets)

        return [loss, loss]

    def dev_score():
        alive.append(floats_alive(model.weight.numel()))
        return 1.0

    inputs = LocalizerInputs(model, parameters, tuned, losses, dev_score, dev_score, seed=0)
    before = floats_alive(model.weight.numel())
    localize(inputs, "learned_mask", k=50, steps=6, depth=100, candidates=candidates)
    assert before == 2
    assert max(alive) == (3 if candidates is None else 2)
