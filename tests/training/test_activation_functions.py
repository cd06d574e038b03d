"""Activation functions that are computed again: the same bits, and less kept."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel
from transformers.activations import ACT2FN

from cl_graft.grafts.region import Layout, Region
from cl_graft.runtime.forward_override import override_forward
from cl_graft.training.activation_functions import compute_again, is_written_out
from cl_graft.training.activation_memory import activation_bytes
from cl_graft.training.region_parameters import RegionParameters

WRITTEN_OUT = ["gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh"]


def run(module: nn.Module, x: Tensor, slope: Tensor, autocast: bool) -> tuple[Tensor, Tensor]:
    """Return the outputs and the gradient of the inputs."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        y = module(x)
    (gradient,) = torch.autograd.grad(y, x, slope.to(y.dtype))
    return y.detach(), gradient


@pytest.mark.parametrize("name", WRITTEN_OUT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 5), (7, 3, 20_011)], ids=["small", "in pieces"])
def test_outputs_and_gradients_have_the_same_bits(
    name: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    module = ACT2FN[name]
    assert is_written_out(module)
    draw = torch.Generator().manual_seed(3)
    x = (4 * torch.randn(shape, generator=draw)).to(dtype)
    slope = torch.randn(shape, generator=draw)
    for given in (x, x.mT.contiguous().mT):
        for autocast in (False, True):
            plain = run(module, given, slope, autocast)
            with override_forward(module, compute_again(module)):
                again = run(module, given, slope, autocast)
            for one, other in zip(plain, again, strict=True):
                assert one.dtype == other.dtype
                assert torch.equal(one, other)


@pytest.mark.parametrize("name", sorted(ACT2FN))
def test_functions_that_keep_three_tensors_or_more_are_known(name: str) -> None:
    module = ACT2FN[name]
    x = torch.randn(64, 64, requires_grad=True)
    kept = activation_bytes(module, lambda: module(x).sum()) / (4 * x.numel())
    with_parameters = any(True for _ in module.parameters())
    assert is_written_out(module) == (kept >= 3 and not with_parameters)
    assert is_written_out(module) == (name in WRITTEN_OUT)


def test_a_region_of_gpt2_gets_the_same_gradient_and_keeps_less(tiny_gpt2: Path) -> None:
    model = GPT2LMHeadModel.from_pretrained(tiny_gpt2).eval()
    blocks = {name: p for name, p in model.named_parameters() if ".h." in name}
    layout = Layout.of(blocks)
    region = Region.of(layout, list(range(0, layout.total, 97)))
    ids = torch.arange(48).view(4, 12) % 90 + 5

    def loss() -> Tensor:
        return model(ids).logits.square().mean()

    found, kept = [], []
    for functions in ("of transformers", "of another module"):
        if functions == "of another module":
            for block in model.transformer.h:
                block.mlp.act = _SameFunction(block.mlp.act)
        with RegionParameters(model, region) as live:
            kept.append(activation_bytes(model, loss))
            loss().backward()
            found.append(live.vector.grad)
    assert torch.equal(found[0], found[1])
    assert kept[0] < 0.8 * kept[1]


class _SameFunction(nn.Module):
    """An activation function that is no class of transformers, so that its steps are kept."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.compute = function.forward

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x)


def test_inputs_that_need_no_gradient_leave_no_graph() -> None:
    module = ACT2FN["gelu_new"]
    with override_forward(module, compute_again(module)):
        assert not module(torch.ones(3)).requires_grad


def test_a_second_derivative_is_refused() -> None:
    module = ACT2FN["gelu_new"]
    x = torch.ones(3, requires_grad=True)
    with (
        override_forward(module, compute_again(module)),
        pytest.raises(RuntimeError, match="second derivative"),
    ):
        torch.autograd.grad(module(x).sum(), x, create_graph=True)
