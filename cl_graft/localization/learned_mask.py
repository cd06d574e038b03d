r"""The learned mask, sound mode: gates that open in the order of their accumulated gain.

The paper learns scores S whose gates γ = σ(S) mix base and tuned weights, θ = θ_pre + γ ⊙ δ with
δ = θ_ft − θ_pre, by gradient steps on the task's loss from closed gates (Panigrahi et al., 2023,
Eqs. 3 and 4, https://arxiv.org/abs/2302.06600; γ_base = 0). While a gate is all but closed,
σ'(S) ≈ e^S and the gradient flow dS/dt = η a(t) e^S with the first-order gain a = −g ⊙ δ has the
solution

    e^{−S(t)} = e^{−S(0)} − η A(t),        A(t) = ∫ a dt,

so a gate opens exactly when its accumulated gain A reaches e^{−S(0)}/η: from equal starting
points, gates open in the order of A. The published code lets the step size (10^7) decide how many
open; here the threshold moves so that a planned number is open after each step, from none to the
whole budget k. What remains of S is A: deterministic, free of the scale of loss, model and task,
with an exact budget, and ranking by it gives nested regions for all densities.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.graft import gather, grafted
from cl_graft.localization.problem import Problem, add_gradient_
from cl_graft.region import top_k

__all__ = ["learned_mask"]


def learned_mask(problem: Problem, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the gain they gather while the graft grows from nothing to `k`.

    At step t of `steps` the model carries the tuned values on the round(k·t/(steps−1))
    coordinates of highest gain so far; −g·δ of that step's batch, taken there, is added to the
    gains. In the second half the graft of size k is scored on dev after every second step, and
    the gains of the best one (ties: the later) are returned.
    """
    gain = {
        name: torch.zeros_like(base, dtype=torch.float32) for name, base in problem.base.items()
    }

    def add(name: str, gradient: Tensor) -> None:
        delta = problem.tuned[name].float() - problem.base[name].float()
        gain[name] -= delta.mul_(gradient.float())

    best, kept = float("-inf"), gain
    for step in range(steps):
        open_gates = round(k * step / max(steps - 1, 1))
        if open_gates:
            with grafted(problem.model, gather(problem.tuned, top_k(gain, open_gates))):
                add_gradient_(problem, step, into=add)
        else:
            add_gradient_(problem, step, into=add)
        last = step == steps - 1
        if last or (step >= steps // 2 and (steps - 1 - step) % 2 == 0):
            with grafted(problem.model, gather(problem.tuned, top_k(gain, k))):
                score = problem.dev_score()
            if score >= best:
                best = score
                kept = gain if last else {name: tensor.clone() for name, tensor in gain.items()}
    return kept
