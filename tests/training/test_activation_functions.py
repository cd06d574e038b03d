"""GPT-2's activation function while a region is trained: the same bits, and less kept."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel
from transformers.activations import ACT2FN, NewGELUActivation

from cl_graft.grafts.region import Layout, Region
from cl_graft.runtime.forward_override import override_forward
from cl_graft.training.activation_functions import compute_tanh_gelu, find_tanh_gelus
from cl_graft.training.activation_memory import activation_bytes
from cl_graft.training.region_parameters import RegionParameters


def run(module: nn.Module, x: Tensor, slope: Tensor, autocast: bool) -> tuple[Tensor, Tensor]:
    """Return the outputs and the gradient of the inputs."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = module(x)
    (gradient,) = torch.autograd.grad(y, x, slope.to(y.dtype))
    return y.detach(), gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(0, 4), (3, 5), (7, 3, 20_011)], ids=["none", "few", "pieces"])
def test_outputs_and_gradients_have_the_same_bits(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    module = ACT2FN["gelu_new"]
    assert find_tanh_gelus(module, torch.empty(0, dtype=dtype)) == [module]
    draw = torch.Generator().manual_seed(3)
    x = (4 * torch.randn(shape, generator=draw)).to(dtype)
    slope = torch.randn(shape, generator=draw)
    for given in (x, x.mT.contiguous().mT):
        for autocast in (False, True):
            plain = run(module, given, slope, autocast)
            with override_forward(module, compute_tanh_gelu):
                now = run(module, given, slope, autocast)
            for one, other in zip(plain, now, strict=True):
                assert one.dtype == other.dtype
                assert torch.equal(one, other)


def test_a_version_that_computes_otherwise_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        inner = math.sqrt(2.0 / math.pi) * x * (1.0 + 0.044715 * torch.pow(x, 2.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))

    module = ACT2FN["gelu_new"]
    assert find_tanh_gelus(module, torch.empty(0)) == [module]
    monkeypatch.setattr(NewGELUActivation, "forward", forward)
    assert find_tanh_gelus(module, torch.empty(0)) == []


def test_a_forward_on_the_instance_is_left_as_it_is() -> None:
    module = ACT2FN["gelu_new"]
    with override_forward(module, lambda module, x: x):
        assert find_tanh_gelus(module, torch.empty(0)) == []
    module.forward = lambda x: x
    assert find_tanh_gelus(module, torch.empty(0)) == []


def test_a_region_of_gpt2_gets_the_same_gradient_and_keeps_less(tiny_gpt2: Path) -> None:
    model = GPT2LMHeadModel.from_pretrained(tiny_gpt2).eval()
    layout = Layout.of({name: p for name, p in model.named_parameters() if ".h." in name})
    region = Region.of(layout, list(range(0, layout.total, 97)))
    ids = torch.arange(48).view(4, 12) % 90 + 5

    def loss() -> Tensor:
        return model(ids).logits.square().mean()

    found, kept = [], []
    for function in (NewGELUActivation, _SameFunction):
        for block in model.transformer.h:
            block.mlp.act = function()
        with RegionParameters(model, region) as live:
            kept.append(activation_bytes(model, loss))
            loss().backward()
            found.append(live.vector.grad)
    assert torch.equal(found[0], found[1])
    assert kept[0] < 0.9 * kept[1]


class _SameFunction(nn.Module):
    """The same function as a module of another class, whose every step is kept."""

    def forward(self, x: Tensor) -> Tensor:
        return ACT2FN["gelu_new"](x)


def test_inputs_that_need_no_gradient_leave_no_graph() -> None:
    module = ACT2FN["gelu_new"]
    with override_forward(module, compute_tanh_gelu):
        assert not module(torch.ones(3)).requires_grad


def test_a_second_derivative_is_refused() -> None:
    module = ACT2FN["gelu_new"]
    x = torch.ones(3, requires_grad=True)
    with (
        override_forward(module, compute_tanh_gelu),
        pytest.raises(RuntimeError, match="second derivative"),
    ):
        torch.autograd.grad(module(x).sum(), x, create_graph=True)
