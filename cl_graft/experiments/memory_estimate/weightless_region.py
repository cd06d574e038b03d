"""A region of a hollow model: how much it touches, not where.

The coordinates count as spread evenly over all graftable parameters and at random inside each, so
of n input features a weight with k coordinates touches n (1 − (1 − 1/n)^k) on average. Regions that
localizers find crowd together more and keep less of the activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from cl_graft.experiments.memory_estimate.weightless_model import HollowModel
from cl_graft.grafts.model_state import only_training
from cl_graft.runtime.forward_override import other_forward
from cl_graft.training.coordinate_gradient import Coordinates, pick_kernel
from cl_graft.training.linear_layers import is_conv1d
from cl_graft.training.region_parameters import deal, linear_owners, region_forward

__all__ = ["hollow_region"]


@contextmanager
def hollow_region(hollow: HollowModel, size: int) -> Iterator[nn.Parameter]:
    """Let a region of `size` coordinates be trainable for a `with` block, and nothing else.

    What is held and saved is what `cl_graft.training.region_parameters.RegionParameters` holds and
    saves.

    Args:
        hollow: The model.
        size: Coordinates.

    Yields:
        The vector of the region's values.
    """
    parameters = hollow.parameters
    owners = linear_owners(hollow.model)
    held: list[object] = []
    with only_training(hollow.model), ExitStack() as after:
        with hollow.mode:
            vector = nn.Parameter(torch.empty(size))
            held.append(torch.empty(size, dtype=torch.int64))  # the region's own index
            shares = [(parameters[name], count) for name, count in _shares(parameters, size)]
            held += [torch.empty(count, dtype=torch.int64) for _, count in shares]
            linear = [(owners[id(p)], p, count) for p, count in shares if id(p) in owners]
            handles = deal(vector, tuple(slice(count) for *_, count in linear))
            for (layers, weight, count), handle in zip(linear, handles, strict=True):
                where = _coordinates(count, weight, transposed=is_conv1d(layers[0]))
                for layer in layers:
                    after.enter_context(other_forward(layer, region_forward(handle, where)))
            for parameter, count in shares:
                if id(parameter) not in owners:
                    parameter.requires_grad_(True)
                    gather = _gatherer(vector, count)
                    hook = parameter.register_post_accumulate_grad_hook(gather)
                    after.callback(hook.remove)
        yield vector


def _shares(parameters: dict[str, nn.Parameter], size: int) -> Iterator[tuple[str, int]]:
    """Deal `size` coordinates out to the parameters, in proportion to their own."""
    total = sum(parameter.numel() for parameter in parameters.values())
    seen = dealt = 0
    for name, parameter in parameters.items():
        seen += parameter.numel()
        share = size * seen // total - dealt
        dealt += share
        if share:
            yield name, share


def _coordinates(share: int, weight: Tensor, *, transposed: bool) -> Coordinates:
    """Return the coordinates of a weight as `Coordinates.of` lays them out, without numbers."""
    rows, columns = weight.shape
    width = rows if transposed else columns
    kernel = pick_kernel(share, (rows, columns), device=weight.device)
    in_order = kernel == "gather" and 2 * share < width
    touched = share if in_order else round(width * (1 - (1 - 1 / width) ** share))
    whole = kernel == "dense" or 2 * touched >= width or (kernel == "sample" and transposed)
    places = torch.empty(share, dtype=torch.int64)
    return Coordinates(
        rows=None if in_order and transposed else places,
        columns=None if in_order and not transposed else places.clone(),
        shape=(rows, columns),
        transposed=transposed,
        inputs=None if whole else torch.empty(touched, dtype=torch.int64),
        kernel=kernel,
        starts=torch.empty(rows + 1 if kernel == "sample" else 0, dtype=torch.int32),
    )


def _gatherer(vector: nn.Parameter, share: int) -> Callable[[Tensor], None]:
    def gather(parameter: Tensor) -> None:
        parameter.grad = None
        if vector.grad is None:
            vector.grad = torch.zeros_like(vector)
        vector.grad[:share] += 0.0

    return gather
