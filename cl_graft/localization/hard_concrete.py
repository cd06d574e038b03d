r"""DiffPruning: hard-concrete gates on the movement, with a price on every open gate.

Gates z = clamp(s·(r − l) + l, 0, 1) with s = σ(log u − log(1 − u) + α), u ~ U(0, 1) are learned
with the penalty λ Σ P(z ≠ 0), and the budget is met by taking the largest movements that remain
(Guo et al., 2021, Secs. 3.1 and 3.3, https://arxiv.org/abs/2012.07463; l = −1.5, r = 1.5,
λ = 1.25·10⁻⁷). There movement and gates are trained together; here the movement is the dense
run's. The code of Fu et al., 2023 (https://arxiv.org/abs/2211.15583) stretches to [−3, 3], starts
α at σ(N(0, 1)), puts λ = 1 on the mean of σ(α), and takes the largest |α| of every tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.grafts.graft import snapshot
from cl_graft.localization.gates import gate_gradient, learn_gates_
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator

__all__ = ["diff_pruning", "diff_pruning_sam"]

_LR = 0.1
"""Learning rate of Adam on α: a few dozen steps are to take a gate from open to closed."""


@register_localizer(
    name="diff_pruning",
    source="Guo et al., 2021, https://arxiv.org/abs/2012.07463, Secs. 3.1 and 3.3",
)
def diff_pruning(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by P(z ≠ 0)·|δ| of learned hard-concrete gates z."""
    del k
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

    The code takes |α|, which is the same there: its gates hardly move from where they start, in
    (0, 1). Here they reach below 0, and the most closed ones are not meant.
    """
    del k
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
    """Take `steps` steps of Adam on α, in place.

    Args:
        inputs: The base, tuned weights and gradients.
        alpha: The gates' parameters.
        steps: Number of steps.
        stretch: r = −l.
        price: Penalty on P(z ≠ 0) = σ(α) of a gate, λ.
    """
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
