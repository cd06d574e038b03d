"""SNIP and movement by tensor against what can be computed by hand."""

import pytest
import torch
from localization.planted import planted_inputs
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.selection import top_k
from cl_graft.localization import LocalizerInputs, localize


def inputs_of(model):
    parameters = dict(model.named_parameters())
    return LocalizerInputs(model, parameters, {}, lambda step: [], lambda: 0, lambda: 0, 0)


def test_a_model_without_matrices_is_refused():
    with pytest.raises(InputError, match="no weight matrices"):
        localize(inputs_of(nn.LayerNorm(4)), "snip", k=1)


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
