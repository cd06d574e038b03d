"""Localizers of 2024 and 2025 against what can be computed by hand: LIFT and SNIP."""

import pytest
import torch
from localization.planted import planted_inputs
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization import LocalizerInputs, localize
from cl_graft.localization.parameter_subsets import lift, weight_matrices


def inputs_of(model, tuned=None):
    parameters = dict(model.named_parameters())
    return LocalizerInputs(model, parameters, tuned or {}, lambda step: [], lambda: 0, lambda: 0, 0)


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


@pytest.mark.parametrize("name", ["lift", "snip"])
def test_a_model_without_matrices_is_refused(name):
    model = nn.LayerNorm(4)
    tuned = {n: p.detach() + 1 for n, p in model.named_parameters()}
    with pytest.raises(InputError, match="no weight matrices"):
        localize(inputs_of(model, tuned), name, k=1)


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
