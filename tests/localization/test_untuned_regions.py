"""Localizers of 2024 and 2025 against what can be computed by hand: LIFT, TaLoS, rows as units."""

from dataclasses import replace

import pytest
import torch
from localization.planted import planted_inputs
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization import LOCALIZERS, LocalizerInputs, localize
from cl_graft.localization.gradient_scores import talos
from cl_graft.localization.parameter_subsets import lift, weight_matrices
from cl_graft.runtime.seeding import generator


def inputs_of(model, tuned=None, answers=None):
    parameters = dict(model.named_parameters())
    return LocalizerInputs(
        model, parameters, tuned or {}, lambda step: [], lambda: 0, lambda: 0, 0, answers=answers
    )


def matrix(rows):
    model = nn.Linear(len(rows[0]), len(rows))
    with torch.no_grad():
        model.weight.copy_(torch.tensor(rows))
        model.bias.fill_(100.0)
    return model


def test_lift_takes_the_largest_entries_after_rank_reduction_not_before():
    # Singular values 4 (the block of twos) and 3 (the single entry), so rank 1 is the block alone.
    inputs = inputs_of(matrix([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 3.0]]))
    assert localize(inputs, "lift", k=4).top(4).index.tolist() == [0, 1, 3, 4]
    assert 8 in localize(inputs, "magnitude", k=1).top(1).index.tolist()
    block = torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(lift(inputs, k=1, steps=1)["weight"], block)
    whole = lift(inputs, k=1, steps=1, rank=3)["weight"]
    torch.testing.assert_close(whole, inputs.base["weight"])


def test_every_matrix_gives_lift_its_share_and_biases_none():
    inputs, _ = planted_inputs()
    ranking = localize(inputs, "lift", k=38)
    masks = ranking.top(38).masks()
    # 384 and 72 entries: 38 of 456 are 32 and 6.
    assert [int(mask.sum()) for mask in masks.values()] == [32, 0, 6, 0]
    matrices = Region.full(Layout.of(weight_matrices(inputs.model, inputs.parameters)))
    assert Region.of(inputs.layout, ranking.order) == matrices.within(inputs.layout)


@pytest.mark.parametrize("name", ["lift", "base_gradient_rows", "snip"])
def test_a_model_without_matrices_is_refused(name):
    model = nn.LayerNorm(4)
    tuned = {n: p.detach() + 1 for n, p in model.named_parameters()}
    with pytest.raises(InputError, match="no weight matrices"):
        localize(inputs_of(model, tuned), name, k=1)


def test_talos_takes_the_weights_of_the_weakest_inputs():
    model = nn.Linear(3, 2, bias=False)
    row = torch.tensor([1.0, 0.01, 0.1])
    inputs = inputs_of(model, answers=lambda step: [lambda: (model(row), torch.zeros(()))])
    # (∇ log p(y))² is x² times what both classes share, so the order is that of the inputs.
    found = talos(inputs, k=2, steps=1)["weight"]
    torch.testing.assert_close(found / found[0, 0], row.square().expand(2, 3))
    assert localize(inputs, "talos", k=4).top(4).index.tolist() == [1, 2, 4, 5]


def test_talos_of_one_logit_is_its_squared_gradient():
    model = nn.Linear(3, 1, bias=False)
    row = torch.tensor([1.0, 2.0, 3.0])
    inputs = inputs_of(model, answers=lambda step: [lambda: (model(row), torch.zeros(()))])
    torch.testing.assert_close(talos(inputs, k=1, steps=1)["weight"], -row.square()[None])


def plain_talos(inputs, *, k, rounds, steps):
    """TaLoS as its repository runs it: scores, a mask a round, the base times the mask."""
    names, base = list(inputs.base), snapshot(inputs.parameters)
    parameters = list(inputs.parameters.values())
    size = sum(p.numel() for p in parameters)
    kept = torch.ones(size, dtype=torch.bool)
    for round_ in range(rounds):
        factors = torch.where(kept, 1.0, 0.1).split([p.numel() for p in parameters])
        with torch.no_grad():
            for p, name, factor in zip(parameters, names, factors, strict=True):
                p.copy_(base[name] * factor.reshape(p.shape))
        scores = torch.zeros(size)
        for step in range(round_ * steps // rounds, (round_ + 1) * steps // rounds):
            for row, answer in enumerate(inputs.answers(step)):
                logs = answer()[0].log_softmax(-1)
                draw = generator(inputs.seed, "labels", step, row)
                label = torch.multinomial(logs.detach().exp(), 1, generator=draw)
                gradients = torch.autograd.grad(logs[label], parameters)
                scores += torch.cat([g.reshape(-1) for g in gradients]) ** 2
        scores[~kept] = torch.inf
        count = max(k, round(size * (k / size) ** ((round_ + 1) / rounds)))
        kept = torch.zeros(size, dtype=torch.bool)
        kept[scores.topk(count, largest=False).indices] = True
    with torch.no_grad():
        for p, name in zip(parameters, names, strict=True):
            p.copy_(base[name])
    return Region.of(inputs.layout, kept.nonzero().squeeze(1))


@pytest.mark.parametrize(("steps", "rounds"), [(8, 4), (6, 4), (3, 3)])
def test_talos_agrees_with_a_plain_derivation_of_its_rounds(steps, rounds):
    inputs, _ = planted_inputs()
    few = replace(inputs, answers=lambda step: inputs.answers(step)[:12])
    found = localize(few, "talos", k=40, steps=steps)
    assert found.top(40) == plain_talos(few, k=40, rounds=rounds, steps=steps)
    assert sorted(found.order.tolist()) == list(range(inputs.layout.total))


def test_rows_of_the_base_gradient_are_those_of_its_energy():
    inputs, _ = planted_inputs()
    gradient = LOCALIZERS["base_gradient"].score(inputs, k=1, steps=3)
    energy = torch.cat([gradient[name].square().mean(1) for name in ("0.weight", "2.weight")])
    best = int(energy.argmax())
    width, start = (16, 16 * best) if best < 24 else (24, 384 + 24 + 24 * (best - 24))
    found = localize(inputs, "base_gradient_rows", k=width, steps=3).top(width)
    assert found.index.tolist() == list(range(start, start + width))


def test_snip_takes_the_largest_products_of_weight_and_summed_gradient():
    inputs, _ = planted_inputs()
    total = dict.fromkeys(inputs.parameters, torch.zeros(()))
    for step in range(3):
        loss = sum(part() for part in inputs.losses(step)) / 2
        gradients = torch.autograd.grad(loss, list(inputs.parameters.values()))
        total = {n: total[n] + g for n, g in zip(total, gradients, strict=True)}
    wanted = {
        name: (inputs.base[name] * gradient).abs() * (gradient.dim() > 1)
        for name, gradient in total.items()
    }
    assert localize(inputs, "snip", k=30, steps=3).top(30) == top_k(wanted, 30)
    shares = localize(inputs, "snip_by_tensor", k=38, steps=3).top(38).masks()
    assert [int(mask.sum()) for mask in shares.values()] == [32, 0, 6, 0]


def test_movement_by_tensor_gives_every_tensor_its_share_of_its_most_moved():
    inputs, _ = planted_inputs()
    masks = localize(inputs, "movement_by_tensor", k=48).top(48).masks()
    # 384, 24, 72 and 3 entries: a tenth of each, rounded down, and one more of the first.
    assert [int(mask.sum()) for mask in masks.values()] == [39, 2, 7, 0]
    for name, mask in masks.items():
        moved = (inputs.tuned[name] - inputs.base[name]).abs()
        if mask.any():
            assert moved[mask].min() >= moved[~mask].max()
