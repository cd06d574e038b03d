"""A module computes by another forward for a while, and copies of it know nothing of that."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from cl_graft.grafts.region import Layout, Region
from cl_graft.runtime.forward_override import current_forward, original_class, override_forward
from cl_graft.training.region_parameters import RegionParameters

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), Conv1D(7, 8), nn.LayerNorm(7), nn.Linear(7, 3))


def _region(model: nn.Module, every: int = 3) -> Region:
    layout = Layout.of(dict(model.named_parameters()))
    return Region.of(layout, range(1, layout.total, every))


def _set_by_hand(model: nn.Module) -> nn.Module:
    """Copy as a module with a `__deepcopy__` of its own often does."""
    made = model.__class__.__new__(model.__class__)
    vars(made).update(copy.deepcopy(vars(model)))
    return made


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


def _classes(model: nn.Module) -> list[type]:
    return [type(module) for module in model.modules()]


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_made_while_a_region_is_open_is_a_plain_model_with_weights_of_its_own(layers, way):
    plain, keys = _classes(layers), [sorted(vars(module)) for module in layers.modules()]
    with RegionParameters(layers, _region(layers)) as live:
        assert b"cl_graft" not in pickle.dumps(layers)
        made = COPIES[way](layers)
        assert _classes(made) == plain
        assert [sorted(vars(module)) for module in made.modules()] == keys
        assert torch.equal(made(X), layers(X))
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.zero_()
        assert not made(X).any()
        assert layers(X).any()
        made.requires_grad_(True)
        made(X).sum().backward()
        assert live.vector.grad is None
        assert all(parameter.grad is not None for parameter in made.parameters())


def test_an_open_region_itself_is_neither_copied_nor_pickled(layers):
    with RegionParameters(layers, _region(layers)) as live:
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="copy the model"):
                way(live)


def _dense(model: nn.Module, region: Region) -> Tensor:
    model(X).square().sum().backward()
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return flat[region.index]


class _Doubling(ModelHook):
    """A hook of accelerate, which puts a forward on the instance."""

    def __init__(self) -> None:
        self.calls: list[nn.Module] = []

    def post_forward(self, module: nn.Module, output: Tensor) -> Tensor:
        self.calls.append(module)
        return output * 2


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_forward_on_the_instance_is_called_and_its_weight_trains(layers, when):
    region, hook = _region(layers), _Doubling()
    plain = copy.deepcopy(layers)
    add_hook_to_module(plain[4], _Doubling())
    reference = _dense(plain, region)
    if when == "before":
        add_hook_to_module(layers[4], hook)
    with RegionParameters(layers, region) as live:
        if when == "meanwhile":
            add_hook_to_module(layers[4], hook)
        own = layers[4].forward
        layers(X).square().sum().backward()
        assert hook.calls == [layers[4]]
    torch.testing.assert_close(live.vector.grad, reference)
    assert layers[4].forward is own
    assert torch.equal(layers(X), plain(X))
    assert type(layers[4]) is nn.Linear


def test_a_second_region_is_refused_and_the_first_trains_on(layers):
    region = _region(layers)
    reference = _dense(layers, region)
    before = _classes(layers)
    with RegionParameters(layers, region) as live:
        with pytest.raises(RuntimeError, match="a region of this model is open already"):
            RegionParameters(layers, region)
        layers(X).square().sum().backward()
        torch.testing.assert_close(live.vector.grad, reference)
    assert _classes(layers) == before
    assert all(parameter.requires_grad for parameter in layers.parameters())


GRADIENTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "autograd.grad": lambda loss, vector: torch.autograd.grad(loss, [vector])[0],
    "backward to the vector alone": lambda loss, vector: (
        loss.backward(inputs=[vector]),
        vector.grad,
    )[1],
}


@pytest.mark.parametrize("way", GRADIENTS)
def test_a_gradient_that_would_leave_biases_out_is_refused(layers, way):
    with RegionParameters(layers, _region(layers)) as live:
        loss = layers(X).square().sum()
        with pytest.raises(RuntimeError, match="it would leave them out"):
            GRADIENTS[way](loss, live.vector)


class _Scaled(nn.Module):
    """A module that copies itself by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        return _set_by_hand(self)


def test_blocks_inside_each_other_call_the_innermost_function():
    module = _Scaled()
    own = current_forward(module)
    with override_forward(module, lambda module, x: own(x) + 1):
        outer = current_forward(module)
        with override_forward(module, lambda module, x: outer(x) * 10):
            assert module(torch.ones(1)).item() == 30
            assert original_class(module) is _Scaled
        assert module(torch.ones(1)).item() == 3
        made = copy.deepcopy(module)
        assert type(made) is _Scaled
        assert made(torch.ones(1)).item() == 2
    assert type(module) is _Scaled
    assert module(torch.ones(1)).item() == 2
