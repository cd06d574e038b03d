"""Training a region and nothing else.

All that an optimiser sees is one vector of the region's size. It is written into the frozen
weights after every step, so momentum, weight decay and gradient clipping act on the region alone
and no other bit of the model can change. The vector is kept in (at least) fp32 also for
half-precision models, where small updates would otherwise round away.

Weights of linear layers get gradients at the region's coordinates only
(`cl_graft.coordinate_gradient`); their dense gradient is never formed. Every other parameter that
the region touches (biases, LayerNorms, convolutions) gets a dense one, one parameter at a time: a
hook gathers the region's part as soon as it is complete and frees the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.coordinate_gradient import Coordinates, region_linear
from cl_graft.graft import Graft, extract, named
from cl_graft.region import Region

__all__ = ["RegionParameters", "deal", "linear_owners", "region_forward"]


class RegionParameters:
    """The trainable values of a region of a model.

    While the object is open (from construction to `close`, or a `with` block), backward passes
    fill ``vector.grad``; gradients of several passes add up until the optimiser clears them. The
    layers whose weights the region touches run another forward meanwhile, with the same results.

    A weight that several layers share gets the sum over all of them. A linear layer's weight has
    to be used through the layer: one that other code multiplies by itself, past the layer's
    forward, would miss that part of its gradient.

    Attributes:
        region: The coordinates.
        vector: What to give to an optimiser: a parameter of shape (size of the region,), starting
            at the values the model has now, fp32 or wider, on the model's device.
        gathered: Parameters of the model that require gradients, which hooks gather from.

    Examples:
        >>> from cl_graft.region import Layout
        >>> model = nn.Linear(3, 2)
        >>> bias = model.bias.detach().clone()
        >>> region = Region.of(Layout.of(dict(model.named_parameters())), [0, 4])
        >>> with RegionParameters(model, region) as live:
        ...     optimizer = torch.optim.AdamW([live.vector], lr=0.1)
        ...     model(torch.ones(1, 3)).sum().backward()
        ...     optimizer.step()
        ...     live.write_()
        ...     graft = live.graft()
        >>> extract(model, region).same_bits(graft), torch.equal(model.bias, bias)
        (True, True)
    """

    def __init__(self, model: nn.Module, region: Region) -> None:
        self.region = region
        self._model = model
        self._parameters = named(model, region.layout)
        start = extract(model, region).values
        device = next(iter(self._parameters.values())).device
        wide = torch.promote_types(start.dtype, torch.float32)
        self.vector = nn.Parameter(start.to(device, wide))
        self._dtype = start.dtype
        self._flags = {name: p.requires_grad for name, p in self._parameters.items()}
        self._places = [
            (self._parameters[name], inside.to(device), place)
            for name, inside, place in region.by_parameter()
        ]
        for parameter in self._parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.gathered: list[nn.Parameter] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._patched: list[tuple[nn.Module, Any]] = []
        owners = linear_owners(model)
        matrices = [
            (owners[id(parameter)], parameter, inside, place)
            for parameter, inside, place in self._places
            if id(parameter) in owners
        ]
        handles = deal(self.vector, tuple(place for *_, place in matrices))
        for (layers, weight, inside, _), handle in zip(matrices, handles, strict=True):
            self._patch(layers, weight, inside, handle)
        for parameter, inside, place in self._places:
            if id(parameter) not in owners:
                parameter.requires_grad_(True)
                self.gathered.append(parameter)
                hook = parameter.register_post_accumulate_grad_hook(self._gatherer(inside, place))
                self._hooks.append(hook)

    def _patch(
        self, layers: list[nn.Module], weight: Tensor, inside: Tensor, handle: Tensor
    ) -> None:
        """Let the layers of one weight compute its gradient at `inside`, for `handle`."""
        transposed = not isinstance(layers[0], nn.Linear)
        rows, columns = weight.shape
        where = Coordinates.of(inside, (rows, columns), transposed=transposed)
        for layer in layers:
            self._patched.append((layer, layer.__dict__.get("forward")))
            layer.forward = region_forward(layer, handle, where)

    def _gatherer(self, inside: Tensor, place: slice) -> Callable[[Tensor], None]:
        def gather(parameter: Tensor) -> None:
            if parameter.grad is None:
                return
            part = parameter.grad.reshape(-1)[inside]
            parameter.grad = None
            if self.vector.grad is None:
                self.vector.grad = torch.zeros_like(self.vector)
            self.vector.grad[place] += part.to(self.vector.dtype)

        return gather

    def write_(self) -> None:
        """Write the vector into the model; call it after every optimiser step."""
        values = self.vector.detach()
        for parameter, inside, place in self._places:
            # By way of the dtype of the grafts, so that the model carries what they will hold.
            now = values[place].to(self._dtype).to(parameter.dtype)
            parameter.detach().view(-1).index_copy_(0, inside, now)

    def read_(self) -> None:
        """Take over the values that others wrote into the region (early stopping, averaging)."""
        now, then = extract(self._model, self.region).values, self.graft().values
        changed = (now != then).to(self.vector.device)
        with torch.no_grad():
            self.vector[changed] = now.to(self.vector.device, self.vector.dtype)[changed]

    def graft(self) -> Graft:
        """Return the current values in the model's own dtype."""
        return Graft(self.region, self.vector.detach().to("cpu", self._dtype, copy=True))

    def close(self) -> None:
        """Detach from the model; its parameters get back their `requires_grad`."""
        for hook in self._hooks:
            hook.remove()
        for layer, forward in reversed(self._patched):
            if forward is None:
                layer.__dict__.pop("forward", None)
            else:
                layer.forward = forward
        self._hooks, self._patched = [], []
        for name, parameter in self._parameters.items():
            parameter.requires_grad_(self._flags[name])
            parameter.grad = None

    def __enter__(self) -> RegionParameters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def deal(vector: Tensor, places: tuple[slice, ...]) -> tuple[Tensor, ...]:
    """Deal a vector out to layers, so that their gradients come back to it as one.

    Each layer gets a copy of its slice as a handle for the gradient; nothing is saved, so the
    handles serve any number of forward and backward passes.
    """
    return _Deal.apply(vector, places)


class _Deal(torch.autograd.Function):
    """What `deal` does."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, places: tuple[slice, ...]) -> tuple[Tensor, ...]:
        ctx.places, ctx.size = places, len(vector)
        return tuple(vector[place].clone() for place in places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = gradients[0].new_zeros(ctx.size)
        for place, gradient in zip(ctx.places, gradients, strict=True):
            whole[place] = gradient
        return whole, None


def linear_owners(model: nn.Module) -> dict[int, list[nn.Module]]:
    """Find, by the id of a weight, the linear layers that hold it, if no other module does.

    Those of an `nn.TransformerEncoderLayer` are left out: in eval mode it computes from their
    weights without calling them, unless one of its parameters requires a gradient.
    """
    owners: dict[int, list[nn.Module]] = {}
    others: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            inner = (child._parameters.values() for child in module.children())
            others |= {id(parameter) for parameter in chain.from_iterable(inner)}
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if name == "weight" and _is_linear(module):
                owners.setdefault(id(parameter), []).append(module)
            else:
                others.add(id(parameter))
    alike = {key: {type(layer) for layer in layers} for key, layers in owners.items()}
    return {k: v for k, v in owners.items() if k not in others and len(alike[k]) == 1}


def _is_linear(module: nn.Module) -> bool:
    """Tell whether a module is exactly torch's Linear or transformers' Conv1D.

    A subclass may compute otherwise, or, as in `nn.MultiheadAttention`, never be called.
    """
    kind = type(module)
    conv1d = kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"
    return kind is nn.Linear or conv1d


def region_forward(layer: Any, handle: Tensor, where: Coordinates) -> Callable[[Tensor], Tensor]:
    """Return the forward of a linear layer whose weight learns at `where`."""

    def forward(x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return region_linear(x, layer.weight, layer.bias, handle, where)

    return forward
