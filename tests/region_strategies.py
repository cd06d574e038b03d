"""Hypothesis strategies and a small model that the tests of the core share."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cl_graft.grafts.region import Layout, Region

quick = settings(max_examples=60)
"""Few examples."""

FRAGILE = {
    torch.float32: [-(2**31), 0x7F800001, 0x7FC12345],
    torch.bfloat16: [-(2**15), 0x7F81, 0x7FC3],
    torch.float16: [-(2**15), 0x7C01, 0x7E05],
}
"""Bit patterns that arithmetic would lose: -0.0, a signalling NaN, a quiet NaN with a payload."""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw layouts of one to four parameters, scalars and empty ones included."""
    shapes = draw(
        st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=4)
    )
    layout = Layout(tuple(f"p{i}" for i in range(len(shapes))), tuple(shapes))
    return layout if layout.total else Layout(("p",), ((2, 3),))


@st.composite
def regions(draw: st.DrawFn, layout: Layout) -> Region:
    """Draw any region of a layout, the empty and the full one included."""
    return Region.of(layout, draw(st.sets(st.integers(0, layout.total - 1))))


class TwoLayers(nn.Module):
    """Two Linears around a LayerNorm; inputs of shape (rows, 4), outputs (rows, 3)."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(4, 6)
            self.norm = nn.LayerNorm(6)
            self.second = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.norm(self.first(x))))


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bit patterns as integers."""
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(sizes[tensor.element_size()]).clone()


def model_bits(model: nn.Module) -> dict[str, Tensor]:
    """Return the bit patterns of every parameter and buffer of a model."""
    return {name: bits(tensor) for name, tensor in model.state_dict().items()}


def use_bits_(model: nn.Module, dtype: torch.dtype) -> None:
    """Put the dtype's patterns of `FRAGILE` at the start of every parameter, in place."""
    patterns = FRAGILE[dtype]
    for parameter in model.parameters():
        integers = torch.int32 if parameter.element_size() == 4 else torch.int16
        view = parameter.detach().view(-1).view(integers)
        view[: len(patterns)] = torch.tensor(patterns, dtype=integers)
