"""A linear layer learns at chosen coordinates, and no dense weight gradient is formed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.pytorch_utils import Conv1D

from cl_graft.grafts.model_state import train_only
from cl_graft.grafts.region import Layout, Region
from cl_graft.training.coordinate_gradient import Coordinates, Kernel, pick_kernel, region_linear
from cl_graft.training.region_parameters import RegionParameters

KERNELS: tuple[Kernel, ...] = ("gather", "sample", "dense")


def _some(shape: tuple[int, int], k: int, seed: int = 0) -> Tensor:
    order = torch.randperm(shape[0] * shape[1], generator=torch.Generator().manual_seed(seed))
    return order[:k].sort().values


def _pass(
    kernel: Kernel | None,
    dtype: torch.dtype,
    *,
    transposed: bool,
    k: int = 0,
    inside: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (ours, reference) for the output and the gradients of x, bias and coordinates."""
    draw = torch.Generator().manual_seed(3)
    shape = (10, 14)
    width_in, width_out = shape if transposed else shape[::-1]
    x = torch.randn(2, 5, width_in, generator=draw, dtype=torch.float64).to(dtype)
    weight = torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)
    bias = torch.randn(width_out, generator=draw, dtype=torch.float64).to(dtype)
    inside = _some(shape, k) if inside is None else inside
    where = Coordinates.of(inside, shape, transposed=transposed, kernel=kernel)
    target = torch.randn(2, 5, width_out, generator=draw, dtype=torch.float64).to(dtype)

    ours = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    values = torch.zeros(
        len(inside), dtype=torch.promote_types(dtype, torch.float32), requires_grad=True
    )
    output = region_linear(ours[0], weight, ours[1], values, where)
    (output * target).sum().backward()

    theirs = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    dense = weight.clone().requires_grad_()
    reference = F.linear(theirs[0], dense.t() if transposed else dense, theirs[1])
    (reference * target).sum().backward()
    gradients = [t.grad for t in (*ours, values)], [t.grad for t in (*theirs, dense)]
    yield output, reference
    for a, b in zip(*gradients, strict=True):
        assert a is not None
        assert b is not None
        yield a, b.reshape(-1)[inside].to(a.dtype) if b is dense.grad else b


@pytest.mark.parametrize(
    ("dtype", "k", "far"),
    [
        *((torch.float64, k, 1e-12) for k in (1, 7, 60, 140)),
        *((torch.float32, 33, 1e-5), (torch.bfloat16, 33, 5e-2), (torch.float16, 33, 5e-3)),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_gives_the_dense_gradient_gathered_in_every_precision(
    kernel: Kernel, transposed: bool, dtype: torch.dtype, k: int, far: float
) -> None:
    for ours, reference in _pass(kernel, dtype, transposed=transposed, k=k):
        torch.testing.assert_close(ours, reference, rtol=far, atol=far)


@pytest.mark.parametrize("rows", [range(10), (0, 3, 4, 9)])
@pytest.mark.parametrize("columns", [range(14), range(0, 14, 3), (1, 2, 4, 7, 8, 11, 12, 13)])
@pytest.mark.parametrize("transposed", [False, True])
def test_all_coordinates_of_some_rows_and_columns_are_multiplied_as_a_block(
    rows: Sequence[int], columns: Sequence[int], transposed: bool
) -> None:
    inside = (14 * torch.tensor(rows)[:, None] + torch.tensor(columns)).flatten()
    where = Coordinates.of(inside, (10, 14), transposed=transposed)
    assert where.kernel == "block"
    for ours, reference in _pass(None, torch.float64, transposed=transposed, inside=inside):
        torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)
    assert Coordinates.of(inside[1:], (10, 14), transposed=transposed).kernel != "block"


class _Shapes(TorchDispatchMode):
    """Record the shapes of all tensors that operators make."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.layout == torch.strided and "t.default" not in str(func):
            self.made.add(tuple(out.shape))
        return out


@pytest.mark.parametrize(("k", "formed"), [(3, False), (100, False), (1000, True)])
def test_below_the_crossover_no_tensor_of_the_weights_shape_is_made(k: int, formed: bool) -> None:
    layer = nn.Linear(48, 40)
    region = Region.of(Layout.of(dict(layer.named_parameters())), _some((40, 48), k))
    x = torch.randn(7, 48, requires_grad=True)
    with RegionParameters(layer, region), _Shapes() as shapes:
        layer(x).square().sum().backward()
    assert (7, 40) in shapes.made
    assert ((40, 48) in shapes.made) is formed


def test_the_forward_pass_keeps_of_its_input_one_column_a_coordinate() -> None:
    layer = nn.Linear(50, 20)
    region = Region.of(Layout.of(dict(layer.named_parameters())), [3, 53, 7])
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with (
        RegionParameters(layer, region),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        layer(torch.randn(4, 50))
    floats = [tensor for tensor in kept if tensor.is_floating_point()]
    assert sorted(tuple(t.shape) for t in floats) == [(4, 3), (20, 50)]
    assert any(t.data_ptr() == layer.weight.data_ptr() for t in kept)


def _coordinates(model: nn.Module, every: int = 3) -> Region:
    layout = Layout.of(dict(model.named_parameters()))
    return Region.of(layout, range(1, layout.total, every))


def _dense(model: nn.Module, loss: Any, region: Region) -> Tensor:
    """Return the gathered gradient of plain dense training."""
    loss(model).backward()
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return flat[region.index]


class _Tied(nn.Module):
    """An embedding whose weight is the output layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.output = nn.Linear(4, 6, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.embedding(x)))


def _share() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (_share(), [torch.ones(2, 5, dtype=torch.float64)]),
        (_Tied(), [torch.tensor([0, 3, 5])]),
        # Attention goes past the forward of its output layer.
        (nn.MultiheadAttention(8, 2, batch_first=True), [torch.rand(2, 3, 8).double()] * 3),
    ],
    ids=["two linear layers", "an embedding and a layer", "attention"],
)
def test_a_weight_gets_the_gradient_of_all_its_uses(model: nn.Module, inputs: Any) -> None:
    def loss(model: nn.Module) -> Tensor:
        output = model(*inputs)
        return (output[0] if isinstance(output, tuple) else output).square().sum()

    region = _coordinates(model.double())
    reference = _dense(model, loss, region)
    with RegionParameters(model, region) as trained:
        loss(model).backward()
    torch.testing.assert_close(trained.vector.grad, reference)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "touched", ["linear1.weight", "linear2.weight", "self_attn.out_proj.weight"]
)
def test_a_layer_of_torch_that_computes_past_its_children_in_eval_mode_trains_all_the_same(
    touched: str, training: bool
) -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(block, nn.Linear(8, 2)).double().train(training)
    x = torch.randn(2, 3, 8, dtype=torch.float64)

    def loss(model: nn.Module) -> Tensor:
        return model(x).square().sum()

    layout = Layout.of(dict(model.named_parameters()))
    starts = dict(zip(layout.names, layout.starts, strict=False))
    inside, head = starts[f"0.{touched}"], starts["1.weight"]
    region = Region.of(layout, [inside, inside + 3, head])
    reference = _dense(model, loss, region)
    assert bool((reference != 0).all())
    with RegionParameters(model, region) as trained:
        loss(model).backward()
    torch.testing.assert_close(trained.vector.grad, reference)


class _Padded(nn.Module):
    """Torch's encoder over rows with padding, which are those that hold a 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.encoder(self.words(words), src_key_padding_mask=words == 0)[:, 0]


WORDS = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("frozen", ["", "words encoder.layers.0", "words encoder.layers.0-1"])
def test_an_encoder_of_torch_trains_on_padded_rows_whichever_layers_are_frozen(
    frozen: str, training: bool
) -> None:
    model = _Padded().double()
    inside = dict(model.named_parameters())
    if frozen:
        gone = ("words", "encoder.layers.0", "encoder.layers.1")[: 3 if "-" in frozen else 2]
        inside = {name: p for name, p in inside.items() if not name.startswith(gone)}
    layout = Layout.of(inside)
    region = Region.of(layout, range(1, layout.total, 3))
    dense = copy.deepcopy(model)  # whose first layer requires gradients, so that it keeps padding
    loss = dense.train(training)(WORDS).square().sum()
    gradients = torch.autograd.grad(loss, [dense.get_parameter(name) for name in inside])
    reference = torch.cat([gradient.reshape(-1) for gradient in gradients])[region.index]
    model.train(training)
    with torch.no_grad():
        before = model(WORDS)
    with train_only(model), RegionParameters(model, region) as trained:
        model(WORDS).square().sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(model(WORDS), before, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(trained.vector.grad, reference)
    assert model.encoder.use_nested_tensor
    assert type(model.encoder) is nn.TransformerEncoder


@pytest.fixture
def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), Conv1D(7, 8), nn.LayerNorm(7), nn.Linear(7, 3))


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_gradient_of_autocast_dense_training(
    layers: nn.Sequential, dtype: torch.dtype
) -> None:
    def loss(model: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype):
            output = model(X)
        return output.float().square().sum()

    region = _coordinates(layers)
    reference = _dense(layers, loss, region)
    with RegionParameters(layers, region) as trained:
        with torch.autocast("cpu", dtype):
            assert layers[0](X).dtype == dtype
        loss(layers).backward()
    assert trained.vector.grad is not None
    assert trained.vector.grad.dtype == torch.float32
    torch.testing.assert_close(trained.vector.grad, reference, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(
    ("device", "kernels"),
    [
        ("cpu", ["gather", "gather", "sample", "sample", "dense"]),
        ("cuda", ["gather", "gather", "dense", "dense", "dense"]),
    ],
)
def test_the_kernel_follows_the_number_of_coordinates(device: str, kernels: list[Kernel]) -> None:
    counts = (118, 700, 1000, 5900, 300_000)
    picked = [pick_kernel(k, (768, 768), device=torch.device(device)) for k in counts]
    assert picked == kernels
