"""Loss scales: exact where nothing overflows, smaller where something does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cl_graft.errors import DivergedError, InputError
from cl_graft.training.precision import LossScale, autocast, safe_scale


def weight(*gradient: float) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(len(gradient)))
    made.grad = torch.tensor(gradient)
    return made


def test_a_scale_grows_after_enough_good_steps_in_a_row() -> None:
    scale = LossScale(8.0, growth_every=3)
    values = []
    for bad in (False, False, True, False, False, False, False):
        scale.unscale_([weight(float("inf") if bad else 1.0)])
        values.append(scale.value)
    assert values == [8.0, 8.0, 4.0, 4.0, 4.0, 8.0, 8.0]
    scale.reset_()
    assert scale.value == 8.0
    assert scale.skipped == 0


def test_gradients_that_stay_infinite_are_an_error() -> None:
    scale = LossScale()
    with pytest.raises(DivergedError, match="use precision bf16 or fp32"):
        for _ in range(100):
            scale.unscale_([weight(float("inf"))])


@pytest.mark.parametrize("largest", [1e3, 1e20])
def test_a_safe_scale_leaves_the_gradients_room_and_takes_them_away(largest: float) -> None:
    parameter = nn.Parameter(torch.ones(3))

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx, *gradients: Tensor) -> Tensor:
            return (gradients[0] * largest / 1e18).half().float()

    scale = safe_scale([lambda: Half.apply(parameter).sum()], [parameter])
    assert parameter.grad is None
    (Half.apply(parameter).sum() * scale * 4).backward()
    assert parameter.grad is not None
    assert parameter.grad.isfinite().all()


def test_no_scale_is_safe_where_the_loss_itself_is_infinite() -> None:
    parameter = nn.Parameter(torch.ones(1))
    with pytest.raises(DivergedError, match="infinite in fp16"):
        safe_scale([lambda: (parameter / 0).sum()], [parameter])


def test_an_unknown_precision_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="bf16"):
        autocast("bf61", torch.device("cpu"))
