"""Training a region and nothing else.

All that an optimiser sees is one vector of the region's size. It is written into the frozen
weights after every step, so momentum, weight decay and gradient clipping act on the region alone
and no other bit of the model can change. The vector is kept in (at least) fp32 also for
half-precision models, where small updates would otherwise round away.

The weight gradients are formed densely, one parameter at a time: a hook gathers the region's
part as soon as a parameter's gradient is complete and frees the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import torch
from torch import Tensor, nn

from cl_graft.graft import Graft, extract, named, write_
from cl_graft.region import Region

__all__ = ["RegionParameters"]


class RegionParameters:
    """The trainable values of a region of a model.

    While the object is open (from construction to `close`, or a `with` block), backward passes
    fill ``vector.grad``; gradients of several passes add up until the optimiser clears them.

    Attributes:
        region: The coordinates.
        vector: What to give to an optimiser: a parameter of shape (size of the region,), starting
            at the values the model has now, fp32 or wider, on the model's device.
    """

    def __init__(self, model: nn.Module, region: Region) -> None:
        self.region = region
        self._model = model
        self._parameters = named(model, region.layout)
        start = extract(model, region).values
        touched = [name for name, _, _ in region.by_parameter()]
        device = next(iter(self._parameters.values())).device
        wide = torch.promote_types(start.dtype, torch.float32)
        self.vector = nn.Parameter(start.to(device, wide))
        self._dtype = start.dtype
        self._flags = {name: p.requires_grad for name, p in self._parameters.items()}
        for name, parameter in self._parameters.items():
            parameter.requires_grad_(name in touched)
            parameter.grad = None
        self._hooks = [
            self._parameters[name].register_post_accumulate_grad_hook(
                self._gatherer(inside.to(device), place)
            )
            for name, inside, place in region.by_parameter()
        ]

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
        write_(self._model, self.graft())

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
        self._hooks = []
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
