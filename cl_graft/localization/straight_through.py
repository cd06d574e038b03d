"""Straight-through scores: the top of learned scores is the mask, and gradients pass through it.

Winning subnetworks keep the largest |s| of every layer and hand the mask's gradient to the scores
as if the selection were the identity (Kang et al., 2022, Sec. 3.2,
https://arxiv.org/abs/2303.14962). There scores and weights are trained together and unselected
weights are 0; here the weights are those of base and dense run, and an unselected one is the
base's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cl_graft.grafts.graft import snapshot
from cl_graft.localization.gates import gate_gradient, learn_gates_
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.ranking import rank_by_tensor
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator

__all__ = ["straight_through"]


@register_localizer(
    name="straight_through",
    source="Kang et al., 2022, https://arxiv.org/abs/2303.14962, Sec. 3.2",
    per_tensor=True,
)
def straight_through(
    inputs: LocalizerInputs, *, k: int, steps: int, lr: float = 1e-2
) -> dict[str, Tensor]:
    """Score coordinates by |s|, learned straight through the mask that takes each tensor's top.

    Args:
        inputs: The base, tuned weights and gradients.
        k: Number of gates that are open in every step.
        steps: Updates of the scores.
        lr: Learning rate of Adam, > 0; 1e-3 in the published code, which takes many more steps.
    """
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
