"""Gates m between base and tuned weights, θ = base + m ⊙ δ, that are learned by gradients g ⊙ δ.

In their papers gates and weights train together; here the movement δ is the dense run's.
DiffPruning (Guo et al., 2021, Secs. 3.1 and 3.3, https://arxiv.org/abs/2012.07463): gates z =
clamp(s·(r − l) + l, 0, 1) with s = σ(log u − log(1 − u) + α), u ~ U(0, 1), −l = r = 1.5, and the
penalty λ Σ P(z ≠ 0), λ = 1.25·10⁻⁷. The code of Fu et al., 2023 (https://arxiv.org/abs/2211.15583)
has r = 3, starts α at σ(N(0, 1)), and puts λ = 1 on the mean of σ(α).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization.localizer_inputs import (
    LocalizerInputs,
    mean_gradient,
)
from cl_graft.localization.ranking import rank_by_tensor
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


def gate_gradient(
    inputs: LocalizerInputs, base: Parameters, gates: Parameters, step: int
) -> dict[str, Tensor]:
    """Return g ⊙ δ of a step's batch at base + gates ⊙ δ; the model is put back to the base."""
    # As in `add_gradient_`, one parameter's difference lives at a time.
    moved = {
        name: value + (gates[name] * _difference(inputs, base, name)).to(value.dtype)
        for name, value in base.items()
    }
    copy_(inputs.parameters, moved)
    del moved
    try:
        gradient = mean_gradient(inputs, step)
    finally:
        copy_(inputs.parameters, base)
    for name, tensor in gradient.items():
        tensor.mul_(_difference(inputs, base, name))
    return gradient


def learn_gates_(
    inputs: LocalizerInputs,
    learned: dict[str, Tensor],
    gradient: Callable[[int], Mapping[str, Tensor]],
    *,
    name: str,
    lr: float,
    steps: int,
) -> None:
    """Take steps of Adam on the parameters of gates, in place, and save them after each."""
    optimizer = torch.optim.Adam(list(learned.values()), lr=lr)
    first, saved = 0, inputs.checkpoint.load()
    if saved is not None:
        copy_(learned, select_tensors(saved[0], name))
        load_optimizer_(optimizer, select_tensors(saved[0], "adam"), saved[1]["adam"])
        first = saved[1]["step"]
    for step in range(first, steps):
        found = gradient(step)
        for key, tensor in learned.items():
            tensor.grad = found[key]
        optimizer.step()
        moments, numbers = optimizer_state(optimizer)
        groups: dict[str, Mapping[str, Tensor]] = {name: learned, "adam": moments}
        state = join_tensors(**groups), {"adam": numbers, "step": step + 1}
        inputs.checkpoint.offer(lambda state=state: state)


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
    alpha = {name: torch.zeros_like(value) for name, value in inputs.zeros().items()}
    _learn_(inputs, alpha, steps=steps, stretch=1.5, price=1.25e-7)
    return {
        name: torch.sigmoid(value) * (inputs.tuned[name].float() - inputs.base[name].float()).abs()
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
    """Take `steps` steps of Adam on α, in place."""
    base = snapshot(inputs.parameters)

    def gradient(step: int) -> dict[str, Tensor]:
        soft = {name: _soft(inputs, name, value, step) for name, value in alpha.items()}
        gates = {n: (s * 2 * stretch - stretch).clamp(0, 1) for n, s in soft.items()}
        found = gate_gradient(inputs, base, gates, step)
        for name, value in alpha.items():
            gate, s = gates[name], soft[name]
            free = (gate > 0) & (gate < 1)
            chance = torch.sigmoid(value)
            found[name] = found[name] * free * 2 * stretch * s * (1 - s)
            found[name] += price * chance * (1 - chance)
        return found

    learn_gates_(inputs, alpha, gradient, name="alpha", lr=_LR, steps=steps)


def _soft(inputs: LocalizerInputs, name: str, alpha: Tensor, step: int) -> Tensor:
    """Draw s of a step's gates."""
    u = torch.rand(alpha.shape, generator=generator(inputs.seed, "noise", step, name))
    u = u.clamp(1e-6, 1 - 1e-6).to(alpha.device)
    return torch.sigmoid(u.logit() + alpha)


@register_localizer(
    name="straight_through",
    source="Kang et al., 2022, https://arxiv.org/abs/2303.14962, Sec. 3.2",
    per_tensor=True,
)
def straight_through(
    inputs: LocalizerInputs, *, k: int, steps: int, lr: float = 1e-2
) -> dict[str, Tensor]:
    """Score coordinates by |s|, learned straight through the mask that takes each tensor's top."""
    base = snapshot(inputs.parameters)
    scores = {name: _draw_scores(inputs.seed, name, value) for name, value in base.items()}

    def gradient(step: int) -> dict[str, Tensor]:
        sizes = {name: tensor.abs() for name, tensor in scores.items()}
        masks = rank_by_tensor(sizes, depth=k).top(k).masks()
        gates = {name: mask.to(scores[name].device) for name, mask in masks.items()}
        found = gate_gradient(inputs, base, gates, step)
        return {name: found[name] * tensor.sign() for name, tensor in scores.items()}

    learn_gates_(inputs, scores, gradient, name="scores", lr=lr, steps=steps)
    return {name: tensor.abs() for name, tensor in scores.items()}


def _draw_scores(seed: int, name: str, value: Tensor) -> Tensor:
    """Draw first scores: uniform, ±1/√n for n inputs, as Kaiming's rule with a = √5 does."""
    width = value[0].numel() if value.dim() > 1 else value.numel()
    draw = torch.rand(value.shape, generator=generator(seed, "scores", name))
    return ((2 * draw - 1) / math.sqrt(width)).to(value.device)
