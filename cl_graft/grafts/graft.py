"""Grafts: the values a task keeps inside its region.

Grafting replaces the base model's weights on a region by the task's own and leaves every other
weight alone (Panigrahi et al., 2023, Eq. 1, https://arxiv.org/abs/2302.06600). Values are stored,
not differences: adding a difference and taking it away again does not give back the same float,
and "forget-free" has to mean the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.runtime.tensor_names import parameters_by_name, plain_name
from cl_graft.runtime.threads import lock_model


@dataclass(frozen=True, eq=False)
class Graft:
    """A region and the values of one task on it.

    Attributes:
        region: Coordinates that have a value.
        values: One value a coordinate in the order of `region.index`, shape (size of the region,),
            on the CPU, in the model's own dtype (where parameters differ, in the widest one, which
            holds them all exactly).

    Examples:
        >>> layout = Layout(("weight",), ((2, 2),))
        >>> graft = Graft(Region.of(layout, [0, 3]), torch.tensor([1.0, -1.0]))
        >>> len(graft), graft.on(Region.of(layout, [3])).values
        (2, tensor([-1.]))
    """

    region: Region
    values: Tensor

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.region),):
            raise ValueError(
                f"a graft needs one value a coordinate: {len(self.region)} coordinates, "
                f"values of shape {tuple(self.values.shape)}"
            )

    def __repr__(self) -> str:
        return (
            f"Graft({len(self):,} values in {self.values.dtype}, density {self.region.density:.3g})"
        )

    def __len__(self) -> int:
        return len(self.region)

    def on(self, part: Region) -> Graft:
        """Return the graft on a subset of its region."""
        return Graft(part, self.values[self.region.find(part)])

    def same_bits(self, other: Graft) -> bool:
        """Tell whether both hold the same coordinates with the same bits (so NaN equals NaN)."""
        bits = [graft.values.contiguous().view(torch.uint8) for graft in (self, other)]
        same_type = self.values.dtype == other.values.dtype
        return self.region == other.region and same_type and torch.equal(*bits)


def find_parameters(model: nn.Module, layout: Layout) -> dict[str, nn.Parameter]:
    """Find a layout's parameters in a model; other names, shapes or strides raise `ValueError`."""
    have = parameters_by_name(model)
    parameters: dict[str, nn.Parameter] = {}
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if plain_name(name) not in have:
            raise ValueError(f"the model has no parameter {name!r}; is it another architecture?")
        parameter = have[plain_name(name)]
        if tuple(parameter.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(parameter.shape)}")
        if not parameter.is_contiguous():
            raise ValueError(f"{name} is not contiguous in memory; call .contiguous() on it first")
        parameters[name] = parameter
    return parameters


def extract(model: nn.Module, region: Region) -> Graft:
    """Read the values a model has on a region; `write_` puts them back bit for bit."""
    return gather(find_parameters(model, region.layout), region)


def gather(parameters: Parameters, region: Region) -> Graft:
    """Read the values that tensors have on a region of their layout."""
    dtypes = [parameter.dtype for parameter in parameters.values()]
    dtype = reduce(torch.promote_types, dtypes) if dtypes else torch.float32
    values = region.index.new_empty(len(region), dtype=dtype)
    for name, inside, part in region.by_parameter():
        flat = parameters[name].detach().view(-1)
        values[part] = flat[inside.to(flat.device)].to("cpu", dtype)
    return Graft(region, values)


def write_(model: nn.Module, graft: Graft) -> None:
    """Write a graft's values into a model, in place; every other weight keeps its bits.

    Examples:
        >>> model = nn.Linear(2, 1)
        >>> region = Region.of(Layout.of(dict(model.named_parameters())), [1])
        >>> write_(model, Graft(region, torch.tensor([0.5])))
        >>> model.weight[0, 1].item()
        0.5
    """
    parameters = find_parameters(model, graft.region.layout)
    for name, inside, part in graft.region.by_parameter():
        flat = parameters[name].detach().view(-1)
        flat[inside.to(flat.device)] = graft.values[part].to(flat.device, flat.dtype)


@contextmanager
def grafted(model: nn.Module, graft: Graft) -> Iterator[nn.Module]:
    """Carry `graft` for the length of a `with` block, then put the model back, bit for bit.

    Other threads that write into the model wait for the block's end.

    Examples:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> before = model.weight.clone()
        >>> region = Region.of(Layout.of(dict(model.named_parameters())), [0])
        >>> with grafted(model, Graft(region, torch.tensor([7.0]))):
        ...     model.weight[0, 0].item()
        7.0
        >>> torch.equal(model.weight, before)
        True
    """
    with lock_model(model):
        before = extract(model, graft.region)
        write_(model, graft)
        try:
            yield model
        finally:
            write_(model, before)


def overlay(grafts: list[Graft], *, layout: Layout, dtype: torch.dtype) -> Graft:
    """Join grafts into one; where several hold a coordinate, the last one's value stands."""
    index = torch.cat([torch.empty(0, dtype=torch.int64), *(g.region.index for g in grafts)])
    values = torch.cat([torch.empty(0, dtype=dtype), *(g.values for g in grafts)])
    index, order = index.sort(stable=True)
    last = torch.ones_like(index, dtype=torch.bool)
    last[:-1] = index[1:] != index[:-1]
    return Graft(Region(layout, index[last]), values[order[last]])


def snapshot(parameters: Parameters) -> dict[str, Tensor]:
    """Copy tensors as they are now, by name."""
    return {name: tensor.detach().clone() for name, tensor in parameters.items()}


def load_(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors back into the parameters of the same names, in place."""
    copy_(parameters_by_name(model), tensors)


def copy_(into: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy each of `values` into the tensor of the same name, in place, outside autograd."""
    with torch.no_grad():
        for name, value in values.items():
            into[name].copy_(value)
