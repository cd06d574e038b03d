"""Loss scales: exact where nothing overflows, smaller where something does."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import quick
from torch import Tensor, nn

from cl_graft.errors import DivergedError, InputError
from cl_graft.training.precision import PRECISIONS, LossScale, autocast, loss_scale, safe_scale


def weight(*gradient: float) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(len(gradient)))
    made.grad = torch.tensor(gradient)
    return made


@quick
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=5), st.integers(0, 20))
def test_scaling_up_and_down_again_changes_no_bit(gradient: list[float], power: int) -> None:
    scale = LossScale(2.0**power)
    normal = [value if abs(value) > 1e-30 else 0.0 for value in gradient]
    parameter = weight(*(value * scale.value for value in normal))
    assert scale.unscale_([parameter])
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.tensor(normal))


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_an_overflow_takes_all_gradients_away_and_halves_the_scale(bad: float) -> None:
    scale = LossScale(64.0)
    good, broken, without = weight(1.0), weight(2.0, bad), nn.Parameter(torch.zeros(1))
    assert not scale.unscale_([good, broken, without])
    assert good.grad is None
    assert broken.grad is None
    assert scale.value == 32.0
    assert scale.skipped == 1


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


def test_only_fp16_has_a_loss_scale() -> None:
    assert {name for name in PRECISIONS if loss_scale(name)} == {"fp16"}


def test_a_context_computes_in_its_precision() -> None:
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    for name, dtype in PRECISIONS.items():
        with autocast(name, torch.device("cpu")):
            assert layer(x).dtype == dtype
    assert layer.weight.dtype == torch.float32


def test_an_unknown_precision_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="bf16"):
        autocast("bf61", torch.device("cpu"))
