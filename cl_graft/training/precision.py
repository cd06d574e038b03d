"""Computing in half precision with fp32 weights (Micikevicius et al., 2018).

In fp16 (https://arxiv.org/abs/1710.03740) gradients of activations fall below the smallest number,
so the loss is scaled up before the backward pass and gradients are scaled down after it. Scales are
powers of two, so scaling rounds nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from cl_graft.errors import DivergedError, find

PRECISIONS: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

_START = 2.0**12
_SMALLEST = 2.0**-14
_LARGEST = 2.0**24
_MARGIN = 8.0


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a backbone computes; for ``"fp32"`` it does nothing.

    Raises:
        InputError: If there is no precision of this name.

    Examples:
        >>> with autocast("bf16", torch.device("cpu")):
        ...     product = torch.ones(2, 2) @ torch.ones(2, 2)
        >>> product.dtype
        torch.bfloat16
    """
    dtype = find(PRECISIONS, precision, missing="no precision")
    if precision == "fp32":
        return nullcontext()
    # Without autocast's cache of cast weights: code that switches weights inside a forward pass
    # would get stale ones, and a weight is used once a pass anyway.
    return torch.autocast(device.type, dtype=dtype, cache_enabled=False)


def loss_scale(precision: str) -> LossScale | None:
    """Return the scale that training in a precision needs: one for ``"fp16"``, else None."""
    return LossScale() if precision == "fp16" else None


def warn_of_float16(model: nn.Module) -> None:
    """Warn of a model with weights in float16, which its user made: few steps move them."""
    if any(parameter.dtype == torch.float16 for parameter in model.parameters()):
        warnings.warn(
            "the model's weights are float16, in which dense training loses small updates and "
            "gradients overflow; take float32 or bfloat16 weights, and autocast to compute in "
            "half precision",
            stacklevel=3,
        )


class LossScale:
    """A loss scale that starts low, halves with a skipped step that overflows, and doubles later.

    Args:
        start: The first scale, a power of two.
        growth_every: Steps without an overflow after which the scale doubles.

    Attributes:
        value: Factor of the loss, > 0.
        skipped: Steps that overflowed.
    """

    def __init__(self, start: float = _START, *, growth_every: int = 200) -> None:
        self._start = start
        self._growth_every = growth_every
        self.reset_()

    def reset_(self) -> None:
        """Start again, so that what is trained next does not depend on what was before."""
        self.value = self._start
        self.skipped = 0
        self._good = 0

    def state(self) -> dict[str, float]:
        """Return the state of the scale, for `load_state_`."""
        return {"value": self.value, "skipped": self.skipped, "good": self._good}

    def load_state_(self, state: Mapping[str, float]) -> None:
        """Restore the state of another scale."""
        self.value = state["value"]
        self.skipped, self._good = int(state["skipped"]), int(state["good"])

    def unscale_(self, parameters: Iterable[Tensor]) -> bool:
        """Divide gradients by the scale; where one is infinite or NaN, take all of them away."""
        held = [p for p in parameters if p.grad is not None]
        gradients = [p.grad for p in held if p.grad is not None]
        if _finite(gradients):
            for gradient in gradients:
                gradient.mul_(1 / self.value)
            self._good += 1
            if self._good == self._growth_every and self.value < _LARGEST:
                self.value, self._good = self.value * 2, 0
            return True
        for parameter in held:
            parameter.grad = None
        self.value, self._good = self.value / 2, 0
        self.skipped += 1
        if self.value < _SMALLEST:
            raise _overflow()
        return False


def safe_scale(losses: Iterable[Callable[[], Tensor]], parameters: Iterable[Tensor]) -> float:
    """Find a loss scale with a margin to overflow, for code that cannot skip a step.

    It is an eighth of the largest scale, up to `LossScale`'s first, at which all gradients of the
    losses are finite.

    Raises:
        DivergedError: If gradients are infinite at every scale.

    Examples:
        >>> weight = torch.nn.Parameter(torch.tensor(2.0))
        >>> safe_scale([lambda: weight**2], [weight])
        512.0
    """
    held, scale = list(parameters), _START
    for loss in losses:
        is_finite = False
        while not is_finite:
            if scale < _SMALLEST:
                raise _overflow()
            with torch.enable_grad():
                (loss() * scale).backward()
            is_finite = _finite([p.grad for p in held if p.grad is not None])
            for parameter in held:
                parameter.grad = None
            scale = scale if is_finite else scale / 2
    return scale / _MARGIN


def _finite(gradients: list[Tensor]) -> bool:
    """Tell whether all are finite, waiting for the device once."""
    checks = [gradient.isfinite().all() for gradient in gradients]
    return not checks or bool(torch.stack(checks).all())


def _overflow() -> DivergedError:
    return DivergedError(
        "gradients are infinite in fp16 at every loss scale: the model's activations leave its "
        "range; use precision bf16 or fp32"
    )
