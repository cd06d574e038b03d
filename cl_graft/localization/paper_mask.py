r"""The learned mask, paper mode: what the code published with the grafting paper does.

Gates γ = γ_base ⊙ (1 − σ(S − 10)) + (1 − γ_base) ⊙ σ(S − 10) (Panigrahi et al., 2023, Eq. 4,
https://arxiv.org/abs/2302.06600) start at S ~ U[0, 1) and take plain gradient steps of size 10^7
in eval mode; γ_base holds the coordinates that moved strictly more than the k-th most moved one,
k = 10⁻⁵ of all. After every step the rounded graft (σ > 1/2) is scored on train and dev, and the
scores S of the best step are kept. Nothing there bounds the region's size: `round_gates` returns it
as it came out, while ranking by the gate's logit gives the same region cut or filled to exactly k.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_, gather, grafted, snapshot
from cl_graft.grafts.region import Region
from cl_graft.localization.gates import gradient_at_gates
from cl_graft.localization.localizer_inputs import LocalizerInputs, remaining_steps
from cl_graft.localization.movement import movement
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.checkpoints import join_tensors
from cl_graft.runtime.seeding import generator


@register_localizer(
    name="paper_mask",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Eqs. 3 and 4, published code",
)
def paper_mask(
    inputs: LocalizerInputs,
    *,
    k: int,
    steps: int = 100,
    lr: float = 1e7,
    bias: float = 10.0,
    base_density: float = 1e-5,
) -> dict[str, Tensor]:
    """Score coordinates by the logit of their final gate, (1 − 2 γ_base)(S − bias)."""
    base = snapshot(inputs.parameters)
    scores = {
        name: torch.rand(value.shape, generator=generator(inputs.seed, "mask", name)).to(
            value.device
        )
        for name, value in base.items()
    }
    start = _base_mask(inputs, base_density)
    best, values = snapshot(scores), {"best": 0.0}
    state = join_tensors(scores=scores, kept=best)

    def soft_gate(name: str) -> Tensor:
        gate = torch.sigmoid(scores[name] - bias)
        return torch.where(start[name], 1 - gate, gate)

    for step in remaining_steps(inputs, state, steps=steps, values=values):
        for name, gradient in gradient_at_gates(inputs, base, soft_gate, step).items():
            delta = inputs.tuned[name].float() - base[name].float()
            gate = torch.sigmoid(scores[name] - bias)
            sign = 1 - 2 * start[name].float()
            scores[name] -= lr * sign * gradient * delta * gate * (1 - gate)
        rounded = round_gates(_logits(scores, start, bias))
        with grafted(inputs.model, gather(inputs.tuned, rounded)):
            score = inputs.train_score() + inputs.dev_score()
        if score > values["best"]:
            values["best"] = score
            copy_(best, scores)
    return _logits(best, start, bias)


def round_gates(logits: dict[str, Tensor]) -> Region:
    """Return the region as the published code rounds it: gates above one half."""
    return Region.from_masks({name: logit > 0 for name, logit in logits.items()})


def _base_mask(inputs: LocalizerInputs, density: float) -> dict[str, Tensor]:
    moved = movement(inputs, k=0, steps=0)
    flat = torch.cat([tensor.reshape(-1) for tensor in moved.values()])
    count = int(density * flat.numel())
    if not count:
        return {name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in moved.items()}
    cut = flat.topk(count).values[-1]
    return {name: tensor > cut for name, tensor in moved.items()}


def _logits(scores: dict[str, Tensor], start: dict[str, Tensor], bias: float) -> dict[str, Tensor]:
    return {
        name: torch.where(start[name], bias - tensor, tensor - bias)
        for name, tensor in scores.items()
    }
