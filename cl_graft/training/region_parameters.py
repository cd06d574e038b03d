"""The trainable values of a region: one vector, which an optimiser gets in place of the weights.

It is written into the frozen weights after every step, so momentum, weight decay and clipping act
on the region alone, and no other bit can change; it is fp32 also for half-precision models, where
small updates would round away. Weights of linear layers get gradients at the region's coordinates
only; other parameters that it touches get a dense one, which a hook gathers and frees.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.grafts.graft import Graft, extract, find_parameters
from cl_graft.grafts.model_state import preserve_requires_grad, without_nested_tensors
from cl_graft.grafts.region import Region
from cl_graft.runtime.forward_override import has_forward_override, override_forward
from cl_graft.training.coordinate_gradient import Coordinates, is_conv1d, is_linear, region_linear


class RegionParameters:
    """The trainable values of a region of a model, as one vector.

    While the object is open (from construction to `close`, or a `with` block), backward passes
    fill ``vector.grad``; gradients of several passes add up until the optimiser clears them. The
    layers whose weights the region touches run another forward meanwhile, with the same results.
    Copies of the model that are made meanwhile (`copy.deepcopy`, `pickle`) are plain models with
    weights of their own. One region of a model is open at a time.

    A weight that several layers share gets the sum over all of them. A linear layer's weight has
    to be used through the layer: one that other code multiplies by itself, past the layer's
    forward, would miss that part of its gradient.

    Attributes:
        region: The coordinates.
        vector: Parameter to give to an optimiser, shape (size of the region,), which starts at the
            values the model has now; fp32 or wider, on the model's device.
        gathered: Parameters of the model that require gradients, which hooks gather from. Where
            there are any, `torch.autograd.grad` for the vector would leave them out: it is refused.

    Raises:
        RuntimeError: If another region is open on these layers, or in `torch.inference_mode`.

    Examples:
        >>> from cl_graft.grafts.region import Layout
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
        if torch.is_inference_mode_enabled():
            raise RuntimeError(
                "a region was opened under torch.inference_mode(), where nothing gets a gradient; "
                "open it outside of the inference mode"
            )
        self.region = region
        self._model = model
        self._parameters = find_parameters(model, region.layout)
        start = extract(model, region).values
        device = next((p.device for p in self._parameters.values()), start.device)
        wide = torch.promote_types(start.dtype, torch.float32)
        self.vector = nn.Parameter(start.to(device, wide))
        self._dtype = start.dtype
        self._places = [
            (self._parameters[name], inside.to(device), part)
            for name, inside, part in region.by_parameter()
        ]
        self.gathered: list[nn.Parameter] = []
        with ExitStack() as undo:
            undo.enter_context(without_nested_tensors(model))
            undo.enter_context(preserve_requires_grad(self._parameters.values()))
            self._connect_(undo)
            self._undo = undo.pop_all()

    def _connect_(self, undo: ExitStack) -> None:
        """Let backward passes fill the gradient of `vector`, until `undo` is closed."""
        for parameter in self._parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None
        owners = _linear_owners(self._model)
        for parameter, inside, part in self._places:
            if id(parameter) not in owners:
                parameter.requires_grad_(True)
                self.gathered.append(parameter)
                hook = parameter.register_post_accumulate_grad_hook(self._gatherer(inside, part))
                undo.callback(hook.remove)
        matrices = [
            (owners[id(parameter)], parameter, inside, part)
            for parameter, inside, part in self._places
            if id(parameter) in owners
        ]
        parts = tuple(part for *_, part in matrices)
        backward_probe = self.vector.new_zeros((), requires_grad=True) if self.gathered else None
        with torch.enable_grad():  # also for a region that is opened without
            handles = _SplitVector.apply(self.vector, backward_probe, parts)
        for (layers, weight, inside, _), handle in zip(matrices, handles, strict=True):
            rows, columns = weight.shape
            where = Coordinates.of(inside, (rows, columns), transposed=is_conv1d(layers[0]))
            for layer in layers:
                if has_forward_override(layer):
                    raise RuntimeError(
                        "a region of this model is open already, or a mixed batch is being "
                        "answered: its gradient would be lost; close that first"
                    )
                undo.enter_context(override_forward(layer, _region_forward(handle, where)))

    def _gatherer(self, inside: Tensor, part: slice) -> Callable[[Tensor], None]:
        def gather(parameter: Tensor) -> None:
            if parameter.grad is None:
                return
            gathered = parameter.grad.reshape(-1)[inside]
            parameter.grad = None
            if self.vector.grad is None:
                self.vector.grad = torch.zeros_like(self.vector)
            self.vector.grad[part] += gathered.to(self.vector.dtype)

        return gather

    def write_(self) -> None:
        """Write the vector into the model; call it after every optimiser step."""
        # By way of the dtype of the grafts, so that the model carries what they will hold.
        values = self.vector.detach().to(self._dtype)
        for parameter, inside, part in self._places:
            now = values[part].to(parameter.dtype)
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
        self._undo.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied: the layers of a copied model would not know the copied vector."""
        raise TypeError(
            "an open region can be neither copied nor pickled, as it is connected to the layers of "
            "its model; copy the model, which makes a plain one, and open the region there"
        )

    def __enter__(self) -> RegionParameters:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _SplitVector(torch.autograd.Function):
    """The parts of a vector for layers, whose gradients autograd joins again in any pass."""

    @staticmethod
    def forward(
        ctx: Any, vector: Tensor, backward_probe: Tensor | None, parts: tuple[slice, ...]
    ) -> tuple[Tensor, ...]:
        ctx.parts, ctx.size, ctx.backward_probe = parts, len(vector), backward_probe
        return tuple(vector[part].clone() for part in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # Whether a pass reaches all leaves is told by a leaf that no caller asks for.
        executes = torch._C._will_engine_execute_node
        if ctx.backward_probe is not None and not executes(ctx.next_functions[1][0]):
            raise RuntimeError(
                "the region holds biases, LayerNorms or other parameters whose gradient hooks "
                "gather, and torch.autograd.grad runs no hooks of them: it would leave them out; "
                "call loss.backward() without inputs and read vector.grad"
            )
        whole = gradients[0].new_zeros(ctx.size)
        for part, gradient in zip(ctx.parts, gradients, strict=True):
            whole[part] = gradient
        return whole, None, None


def _linear_owners(model: nn.Module) -> dict[int, list[nn.Module]]:
    """Find, by the id of a weight, the linear layers that hold it, if no other module does.

    Those of an `nn.TransformerEncoderLayer` are left out, as it computes without calling them in
    eval mode, and layers with a forward of their own on the instance, as of accelerate's hooks.
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
            if name == "weight" and is_linear(module) and "forward" not in vars(module):
                owners.setdefault(id(parameter), []).append(module)
            else:
                others.add(id(parameter))
    alike = {key: {type(layer) for layer in layers} for key, layers in owners.items()}
    return {k: v for k, v in owners.items() if k not in others and len(alike[k]) == 1}


def _region_forward(handle: Tensor, where: Coordinates) -> Callable[..., Tensor]:
    """Return the forward, for `override_forward`, of a linear layer that learns at `where`."""

    def compute(layer: Any, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return region_linear(x, layer.weight, layer.bias, handle, where)

    def compute_linear(layer: Any, input: Tensor) -> Tensor:
        return compute(layer, input)

    return compute if where.transposed else compute_linear
