"""TaLoS: the coordinates to which the base is least sensitive.

Sensitivity is the diagonal of the Fisher information at the base with labels that the model itself
draws, F = E_x E_{y ~ p(y|x)} (∇ log p(y|x))², and the region is where it is smallest (Iurada et
al., 2025, "Efficient Model Editing with Task-Localized Sparse Fine-tuning",
https://arxiv.org/abs/2504.02620). The aim is a task vector that hardly touches other tasks, at
densities of some ten percent: where little is trained, what is least sensitive learns least.

As in the published code there are four rounds, after each of which the most sensitive coordinates
are passed over for good, d·(k/d)^(r/4) of all d being left after round r; the next round sees the
base with a tenth of their values. The code leaves embeddings out, and differentiates the logit of
the drawn label. Here its log-probability is differentiated, as in the formula, and all graftable
parameters are scored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Parameters
from cl_graft.grafts.selection import top_k
from cl_graft.localization.localizer_inputs import (
    LocalizerInputs,
    drawn_loss,
    gradient_hooks,
    remaining_steps,
)
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator

_ROUNDS = 4
_KEPT_VALUE = 0.1
"""Share of its value that a coordinate keeps in the rounds after it was passed over."""
_LEFT = "left: "


@register_localizer(
    name="talos",
    source="Iurada et al., 2025, https://arxiv.org/abs/2504.02620, published code",
    needs_dense_run=False,
    needs_rows=True,
)
def talos(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by their insensitivity at the base, −Σ (∇ log p(y))² with y ~ p drawn.

    A row takes a backward pass of its own. Up to four rounds share the batches. Coordinates that a
    round passes over rank behind all others.
    """
    if inputs.answers is None:
        raise ValueError("talos needs the answers to single rows: there are none")
    rounds = min(_ROUNDS, steps)
    total = inputs.zeros()
    left = {name: torch.zeros_like(value) for name, value in total.items()}
    ends = {(place + 1) * steps // rounds: place + 1 for place in range(rounds - 1)}
    state = {**total, **{_LEFT + name: tensor for name, tensor in left.items()}}

    def add(name: str, gradient: Tensor) -> None:
        wide = gradient.float()
        total[name].addcmul_(wide, wide)

    with preserve_parameters(inputs.parameters) as base:
        for place, step in enumerate(remaining_steps(inputs, state, steps=steps)):
            if step in ends:
                _pass_over_(total, left, k=k, after=ends[step], rounds=rounds)
            if step in ends or not place:
                _shrink_(inputs, base, left)
            with gradient_hooks(inputs, into=add):
                for row, answer in enumerate(inputs.answers(step)):
                    logits, _ = answer()
                    drawn = drawn_loss(logits, generator(inputs.seed, "labels", step, row))
                    (drawn * inputs.loss_scale).backward()
    return _in_order(total, left)


def _pass_over_(total: Parameters, left: Parameters, *, k: int, after: int, rounds: int) -> None:
    """Pass over the most sensitive coordinates after a round, and reset the sums of the others."""
    size = sum(tensor.numel() for tensor in total.values())
    kept = max(k, round(size * (k / size) ** (after / rounds)))
    # Coordinates that were passed over earlier rank behind all others, so they are not kept.
    region = top_k(_in_order(total, left), kept).masks()
    for name, tensor in total.items():
        inside = region[name].to(tensor.device)
        left[name].masked_fill_(~inside & (left[name] == 0), after)
        tensor.masked_fill_(inside, 0.0)


def _shrink_(inputs: LocalizerInputs, base: Parameters, left: Parameters) -> None:
    """Put the model at the base with a tenth of the values that were passed over."""
    with torch.no_grad():
        for name, parameter in inputs.parameters.items():
            parameter.copy_(torch.where(left[name] > 0, base[name] * _KEPT_VALUE, base[name]))


def _in_order(total: Parameters, left: Parameters) -> dict[str, Tensor]:
    """Return −F, shifted so that coordinates passed over rank behind the others, earliest last."""
    found = {name: torch.zeros_like(tensor) for name, tensor in total.items()}
    latest, behind = max(int(tensor.max()) for tensor in left.values()), 0.0
    for after in (0, *range(latest, 0, -1)):
        largest = 0.0
        for name, tensor in total.items():
            inside = left[name] == after
            if bool(inside.any()):
                found[name][inside] = -(behind + tensor[inside])
                largest = max(largest, float(tensor[inside].max()))
        behind += largest
    return found
