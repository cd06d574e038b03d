"""The learned mask, sound mode: gates that open in the order of their accumulated gain.

The paper learns gates γ = σ(S) between base and tuned weights by gradient steps from closed gates
(Panigrahi et al., 2023, Eqs. 3 and 4, https://arxiv.org/abs/2302.06600). While a gate is all but
closed, the gradient flow dS/dt = η a(t) e^S with the gain a = −g ⊙ δ has the solution e^{−S(t)} =
e^{−S(0)} − η ∫ a dt, so from equal starting points gates open in the order of their accumulated
gain. The published step size decides how many open; here the threshold moves, so that a planned
number is open after each step. The ranking is by the mean of the gains over the second half of the
steps (averaging of iterates, Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046): a gain of
step t ≥ T/2 weighs (T − t)/(T − T/2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_, extract, gather, grafted, write_
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization.gates import open_gates
from cl_graft.localization.localizer_inputs import LocalizerInputs, add_gradient_, unscale_
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.checkpoints import Checkpoint, State, join_tensors, select_tensors
from cl_graft.training.region_parameters import RegionParameters

_CHUNK = 1 << 18
"""Coordinates whose δ is formed at a time on a CPU: they stay in its cache."""


def score_candidates_by_learned_mask(
    inputs: LocalizerInputs, candidates: Region, *, k: int, steps: int
) -> Tensor:
    """Score candidates as `learned_mask` does, computing gradients at them alone."""
    base, tuned = extract(inputs.model, candidates), gather(inputs.tuned, candidates)
    try:
        with RegionParameters(inputs.model, candidates) as live:
            wide = [g.values.to(live.vector.device, live.vector.dtype) for g in (base, tuned)]
            old, new = wide
            delta = new - old
            gain = torch.zeros_like(delta, dtype=torch.float32)

            def learn(step: int, opened: Region | None, weight: float) -> None:
                with torch.no_grad():
                    live.vector.copy_(old)
                    if opened is not None:
                        places = opened.index.to(old.device)
                        live.vector[places] = new[places]
                live.write_()
                micro = inputs.losses(step)
                live.vector.grad = None
                with torch.enable_grad():
                    for loss in micro:
                        (loss() / len(micro) * inputs.loss_scale).backward()
                if live.vector.grad is not None:
                    gain.sub_(unscale_(inputs, live.vector.grad) * delta, alpha=weight)

            _grow_({"gain": gain}, k=k, steps=steps, learn=learn, checkpoint=inputs.checkpoint)
    finally:
        write_(inputs.model, base)
    return gain


@register_localizer(
    name="learned_mask",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Eqs. 3 and 4, sound mode",
    score_candidates=score_candidates_by_learned_mask,
)
def learned_mask(
    inputs: LocalizerInputs, *, k: int, steps: int, started: Region | None = None
) -> dict[str, Tensor]:
    """Score coordinates by the gain they gather while the graft grows from nothing to `k`.

    At step t of `steps` the model carries the tuned values on the round(k·t/(steps−1)) coordinates
    of highest gain so far; −g·δ of the step's batch is added to the gains. From `started`, the
    paper's γ_base, it grows from that region to `k` as `open_gates` says.
    """
    gain = inputs.zeros()

    def learn(step: int, opened: Region | None, weight: float) -> None:
        if opened is None:
            add_gains_(inputs, gain, step, {}, weight=weight)
            return
        new, old = gather(inputs.tuned, opened), gather(inputs.parameters, opened)
        delta, device = new.values.float() - old.values.float(), next(iter(gain.values())).device
        moves = {
            name: (inside.to(device), delta[part].to(device))
            for name, inside, part in opened.by_parameter()
        }
        with grafted(inputs.model, new):
            add_gains_(inputs, gain, step, moves, weight=weight)

    _grow_(gain, k=k, steps=steps, learn=learn, checkpoint=inputs.checkpoint, started=started)
    return gain


def _grow_(
    gain: dict[str, Tensor],
    *,
    k: int,
    steps: int,
    learn: Callable[[int, Region | None, float], None],
    checkpoint: Checkpoint,
    started: Region | None = None,
) -> None:
    """Let the graft grow to `k` while `learn` adds to `gain`."""
    done, opened = _resume_(gain, checkpoint) or (0, started)
    begun = 0 if started is None else len(started)
    falling = steps - steps // 2
    for step in range(done, steps):
        learn(step, opened, min(1.0, (steps - step) / falling))
        left = steps - 1 - step
        size = begun + round((k - begun) * (step + 1) / (steps - 1)) if left else 0
        if not size:
            opened = None
        elif started is None:
            opened = top_k(gain, size)
        else:
            opened = open_gates(gain, started, k=size)
        checkpoint.offer(partial(_state, gain, step + 1, opened))


def _state(gain: Parameters, done: int, opened: Region | None) -> State:
    region = {} if opened is None else {"opened": opened.index}
    return join_tensors(gain=gain, region=region), {"step": done}


def _resume_(gain: dict[str, Tensor], checkpoint: Checkpoint) -> tuple[int, Region | None] | None:
    """Put the gains where `_state` saw them, if it did; return steps done and open gates."""
    left = checkpoint.load()
    if left is None:
        return None
    tensors, values = left
    copy_(gain, select_tensors(tensors, "gain"))
    opened = select_tensors(tensors, "region").get("opened")
    return values["step"], None if opened is None else Region.of(Layout.of(gain), opened)


def add_gains_(
    inputs: LocalizerInputs,
    gain: dict[str, Tensor],
    step: int,
    moves: dict[str, tuple[Tensor, Tensor]],
    *,
    weight: float = 1.0,
) -> None:
    """Add −g·δ of a step to the gains, where the model carries the tuned values at open gates.

    The live weights are the base, so δ is 0 at an open gate; its part is added from `moves`: by
    parameter, where gates are open and how far their values moved.
    """
    base = inputs.base

    def add(name: str, gradient: Tensor) -> None:
        _add_gain_(gain[name], gradient, inputs.tuned[name], base[name], scale=weight)
        if name in moves:
            inside, delta = moves[name]
            part = gradient.reshape(-1)[inside].float() * delta
            gain[name].view(-1).index_add_(0, inside, part, alpha=-weight)

    add_gradient_(inputs, step, into=add)


def _add_gain_(gain: Tensor, grad: Tensor, tuned: Tensor, base: Tensor, *, scale: float) -> None:
    """Add scale·(−g·(tuned − base)) to `gain`, fp32, in place, without holding the difference."""
    size = gain.numel() if gain.is_cuda else _CHUNK
    flat = (tensor.detach().reshape(-1).split(size) for tensor in (grad, tuned, base))
    for into, g, new, old in zip(gain.view(-1).split(size), *flat, strict=True):
        into.addcmul_(g.float(), new.float() - old.float(), value=-scale)
