"""While a region trains, no bit outside it changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from region_strategies import TwoLayers, bits
from torch import Tensor, nn

from cl_graft.grafts.graft import extract
from cl_graft.grafts.region import Layout, Region
from cl_graft.training.region_parameters import RegionParameters

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 1, 2, 1, 0])

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd with momentum and weight decay": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, weight_decay=0.1
    ),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw with weight decay": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5),
}


def _region(model: nn.Module, *, every: int = 3) -> Region:
    layout = Layout.of(dict(model.named_parameters()))
    return Region.of(layout, range(1, layout.total, every))


def _loss(model: nn.Module, rows: slice = slice(None)) -> Tensor:
    dtype = next(model.parameters()).dtype
    return nn.functional.cross_entropy(model(X[rows].to(dtype)), Y[rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_bit_outside_the_region_changes(optimizer: str, dtype: torch.dtype) -> None:
    model = TwoLayers().to(dtype)
    region = _region(model)
    outside = Region.full(region.layout) - region
    before = extract(model, outside)
    start = extract(model, region)
    with RegionParameters(model, region) as trained:
        steps = OPTIMIZERS[optimizer]([trained.vector])
        for _ in range(6):
            steps.zero_grad()
            _loss(model, slice(0, 3)).backward()
            _loss(model, slice(3, 5)).backward()
            nn.utils.clip_grad_norm_([trained.vector], 0.5)
            steps.step()
            trained.write_()
            assert before.same_bits(extract(model, outside))
    assert not torch.equal(extract(model, region).values, start.values)


@pytest.mark.parametrize(("every", "far"), [(2, 0.0), (3, 1e-15)])
def test_the_gradient_is_the_dense_gradient_gathered(every: int, far: float) -> None:
    """Bit for bit where the region is dense; sampling adds up in another order."""
    model = TwoLayers().double()
    region = _region(model, every=every)
    _loss(model).backward()
    dense = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    with RegionParameters(model, region) as trained:
        _loss(model).backward()
        assert trained.vector.grad is not None
        torch.testing.assert_close(trained.vector.grad, dense[region.index], rtol=far, atol=far)
        assert all(parameter.grad is None for parameter in model.parameters())


def test_gradients_of_several_passes_add_up() -> None:
    model = TwoLayers().double()
    with RegionParameters(model, _region(model)) as trained:
        _loss(model).backward()
        assert trained.vector.grad is not None
        once = trained.vector.grad.clone()
        _loss(model).backward()
        assert torch.equal(trained.vector.grad, 2 * once)


def test_a_gradient_left_from_before_does_not_leak_in() -> None:
    model = TwoLayers().double()
    region = _region(model)
    with RegionParameters(model, region) as trained:
        _loss(model).backward()
        clean = trained.vector.grad
    _loss(model).backward()
    with RegionParameters(model, region) as trained:
        _loss(model).backward()
        assert torch.equal(trained.vector.grad, clean)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_train_on_fp32_masters(dtype: torch.dtype) -> None:
    model = TwoLayers().to(dtype)
    region = _region(model)
    start = extract(model, region)
    with RegionParameters(model, region) as trained:
        assert trained.vector.dtype == torch.float32
        assert trained.graft().same_bits(start)
        before = trained.vector.detach().clone()
        optimizer = torch.optim.SGD([trained.vector], lr=1e-6)
        for _ in range(3):
            trained.vector.grad = torch.ones_like(trained.vector)
            optimizer.step()
            trained.write_()
        assert bool((trained.vector.detach()[before.abs() < 1] < before[before.abs() < 1]).all())
        assert trained.graft().same_bits(extract(model, region))
        assert trained.graft().values.dtype == dtype


def test_the_vector_starts_at_the_values_of_the_model_and_is_no_view_of_them() -> None:
    model = TwoLayers()
    region = _region(model)
    with RegionParameters(model, region) as trained:
        assert torch.equal(bits(trained.vector), bits(extract(model, region).values))
        start = extract(model, region)
        with torch.no_grad():
            trained.vector.add_(1)
        assert extract(model, region).same_bits(start)
        taken = trained.graft()
        with torch.no_grad():
            trained.vector.add_(1)
        assert torch.equal(taken.values, start.values + 1)


def test_requires_grad_is_narrowed_while_open_and_restored_after_an_exception() -> None:
    model = TwoLayers()
    model.first.weight.requires_grad_(False)
    before = {name: p.requires_grad for name, p in model.named_parameters()}
    layout = Layout.of(dict(model.named_parameters()))
    region = Region.of(layout, [0, model.first.weight.numel()])
    with suppress(KeyError), RegionParameters(model, region):
        asked = [name for name, p in model.named_parameters() if p.requires_grad]
        assert asked == ["first.bias"]
        raise KeyError("stop")
    assert {name: p.requires_grad for name, p in model.named_parameters()} == before


def test_parameters_outside_the_layout_train_beside_the_region() -> None:
    model = TwoLayers()
    layout = Layout.of({n: p for n, p in model.named_parameters() if n.startswith("first")})
    region = Region.of(layout, [0, 5])
    with RegionParameters(model, region) as trained:
        _loss(model).backward()
        assert trained.vector.grad is not None
        assert model.second.weight.grad is not None
        assert model.first.weight.grad is None


def test_the_empty_region_trains_nothing() -> None:
    model = TwoLayers()
    layout = Layout.of({n: p for n, p in model.named_parameters() if n.startswith("first")})
    before = extract(model, Region.full(layout))
    with RegionParameters(model, Region.empty(layout)) as trained:
        optimizer = torch.optim.AdamW([trained.vector], lr=0.1)
        _loss(model).backward()
        optimizer.step()
        trained.write_()
    assert before.same_bits(extract(model, before.region))
