"""Gates m between base and tuned weights, θ = base + m ⊙ δ, that are learned by gradients g ⊙ δ.

In their papers gates and weights train together; here the movement δ is the dense run's.
DiffPruning (Guo et al., 2021, Secs. 3.1 and 3.3, https://arxiv.org/abs/2012.07463): gates z =
clamp(s·(r − l) + l, 0, 1) with s = σ(log u − log(1 − u) + α), u ~ U(0, 1), −l = r = 1.5, and the
penalty λ Σ P(z ≠ 0), λ = 1.25·10⁻⁷. The code of Fu et al., 2023 (https://arxiv.org/abs/2211.15583)
has r = 3, starts α at σ(N(0, 1)), and puts λ = 1 on the mean of σ(α).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization.localizer_inputs import LocalizerInputs, mean_gradient
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.checkpoints import (
    join_tensors,
    load_optimizer_,
    optimizer_state,
    select_tensors,
)
from cl_graft.runtime.seeding import generator


def open_gates(gains: Parameters, started: Region, *, k: int) -> Region:
    """Open the gates of highest gain, and close those of lowest: at most `k` are open then.

    By Eq. 4 of the grafting paper a gate that starts open closes once its loss reaches the
    threshold (decision 1), here the lowest one that leaves at most `k` open.
    """
    layout = Layout.of(gains)
    flat = torch.cat([gains[name].reshape(-1).cpu() for name in layout.names])
    opened = torch.zeros(layout.total, dtype=torch.bool)
    opened[started.index] = True
    steps = torch.where(opened, -flat, flat)
    # After n moves at least n - len(started) gates are open, so more moves leave too many open.
    most = min(layout.total, k + len(started))
    order = top_k({"": steps}, most).index
    order = order[steps[order].sort(descending=True, stable=True).indices]
    order = order[steps[order] > 0]
    sizes = len(started) + torch.where(opened[order], -1, 1).cumsum(0)
    within = (sizes <= k).nonzero()
    moved = order[: int(within[-1]) + 1] if len(within) else order[:0]
    opened[moved] = ~opened[moved]
    return Region.of(layout, opened.nonzero().view(-1))


def gradient_at_gates(
    inputs: LocalizerInputs, base: Parameters, gate: Callable[[str], Tensor], step: int
) -> dict[str, Tensor]:
    """Return the gradient of a step at base + gate(name) ⊙ δ; the model goes back to the base."""
    # As in `add_gradient_`, one parameter's difference lives at a time.
    moved = {
        name: value + (gate(name) * _difference(inputs, base, name)).to(value.dtype)
        for name, value in base.items()
    }
    copy_(inputs.parameters, moved)
    del moved
    try:
        return mean_gradient(inputs, step)
    finally:
        copy_(inputs.parameters, base)


def _difference(inputs: LocalizerInputs, base: Parameters, name: str) -> Tensor:
    return inputs.tuned[name].float() - base[name].float()


_LR = 0.1
"""Learning rate of Adam on α: a few dozen steps are to take a gate from open to closed."""


@register_localizer(
    name="diff_pruning",
    source="Guo et al., 2021, https://arxiv.org/abs/2012.07463, Secs. 3.1 and 3.3",
)
def diff_pruning(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by P(z ≠ 0)·|δ| of learned hard-concrete gates z."""
    alpha, base = inputs.zeros(), inputs.base
    _learn_(inputs, alpha, steps=steps, stretch=1.5, price=1.25e-7)
    return {
        name: torch.sigmoid(value) * _difference(inputs, base, name).abs()
        for name, value in alpha.items()
    }


@register_localizer(
    name="diff_pruning_sam",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, published code (DiffPruning)",
    per_tensor=True,
)
def diff_pruning_sam(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by α of learned hard-concrete gates.

    The code takes |α|, which is the same there, as its gates hardly move from where they start.
    """
    alpha = {
        name: torch.sigmoid(
            torch.randn(value.shape, generator=generator(inputs.seed, "gates", name))
        ).to(value.device)
        for name, value in inputs.zeros().items()
    }
    _learn_(inputs, alpha, steps=steps, stretch=3.0, price=1 / inputs.layout.total)
    return alpha


def _learn_(
    inputs: LocalizerInputs, alpha: dict[str, Tensor], *, steps: int, stretch: float, price: float
) -> None:
    """Take steps of Adam on α, in place, and save it after each."""
    base = snapshot(inputs.parameters)
    optimizer = torch.optim.Adam(list(alpha.values()), lr=_LR)
    first, saved = 0, inputs.checkpoint.load()
    if saved is not None:
        copy_(alpha, select_tensors(saved[0], "alpha"))
        load_optimizer_(optimizer, select_tensors(saved[0], "adam"), saved[1]["adam"])
        first = saved[1]["step"]
    for step in range(first, steps):
        soft = {name: _soft(inputs, name, value, step) for name, value in alpha.items()}
        gates = {n: (s * 2 * stretch - stretch).clamp(0, 1) for n, s in soft.items()}
        gradient = gradient_at_gates(inputs, base, gates.__getitem__, step)
        for name, value in alpha.items():
            gate, s = gates[name], soft[name]
            free = (gate > 0) & (gate < 1)
            chance = torch.sigmoid(value)
            gradient[name].mul_(_difference(inputs, base, name))
            value.grad = gradient[name] * free * 2 * stretch * s * (1 - s)
            value.grad += price * chance * (1 - chance)
        optimizer.step()
        moments, numbers = optimizer_state(optimizer)
        state = join_tensors(alpha=alpha, adam=moments), {"adam": numbers, "step": step + 1}
        inputs.checkpoint.offer(lambda state=state: state)


def _soft(inputs: LocalizerInputs, name: str, alpha: Tensor, step: int) -> Tensor:
    """Draw s of a step's gates."""
    u = torch.rand(alpha.shape, generator=generator(inputs.seed, "noise", step, name))
    u = u.clamp(1e-6, 1 - 1e-6).to(alpha.device)
    return torch.sigmoid(u.logit() + alpha)
