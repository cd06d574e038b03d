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

The model itself carries the base, so beside it no more is held than the tuned values and A. On
candidates, A lives on a few coordinates only, and so do the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.checkpointing import Checkpoint, State, joined, part_of
from cl_graft.graft import Graft, copy_, extract, gather, grafted, write_
from cl_graft.localization.gain import add_gain_
from cl_graft.localization.gates import gated
from cl_graft.localization.problem import Problem, add_gradient_, unscaled_
from cl_graft.region import Layout, Parameters, Region, top_k
from cl_graft.sparse import RegionParameters

__all__ = ["add_gains_", "learned_mask", "learned_mask_inside"]


def learned_mask(
    problem: Problem, *, k: int, steps: int, depth: int, started: Region | None = None
) -> dict[str, Tensor]:
    """Score coordinates by the gain they gather while the graft grows from nothing to `k`.

    At step t of `steps` the model carries the tuned values on the round(k·t/(steps−1))
    coordinates of highest gain so far; −g·δ of that step's batch, taken there, is added to the
    gains. From `started`, the paper's γ_base, it grows from that region to `k` as `gated` says.
    In the second half the graft of size k is scored on dev after every second step, and
    the gains of the best one (ties: the later) are returned, those of its `depth` best
    coordinates at least; others may come back as −∞.
    """
    gain = problem.zeros()

    def learn(step: int, opened: Region | None) -> None:
        if opened is None:
            add_gains_(problem, gain, step, {})
            return
        new, old = gather(problem.tuned, opened), gather(problem.parameters, opened)
        moves = _moves(new, old, device=next(iter(gain.values())).device)
        with grafted(problem.model, new):
            add_gains_(problem, gain, step, moves)

    def look(region: Region) -> float:
        with grafted(problem.model, gather(problem.tuned, region)):
            return problem.dev_score()

    kept = problem.checkpoint
    _grow_(
        gain, k=k, steps=steps, depth=depth, learn=learn, look=look, checkpoint=kept,
        started=started,
    )  # fmt: skip
    return gain


def learned_mask_inside(problem: Problem, candidates: Region, *, k: int, steps: int) -> Tensor:
    """Score candidates as `learned_mask` does, computing gradients at them alone.

    Returns:
        One fp32 score a candidate, of shape (size of `candidates`,).
    """
    base, tuned = extract(problem.model, candidates), gather(problem.tuned, candidates)
    try:
        with RegionParameters(problem.model, candidates) as live:
            wide = [g.values.to(live.vector.device, live.vector.dtype) for g in (base, tuned)]
            old, new = wide
            delta = new - old
            gain = torch.zeros_like(delta, dtype=torch.float32)

            def carry(opened: Region | None) -> None:
                with torch.no_grad():
                    live.vector.copy_(old)
                    if opened is not None:
                        places = opened.index.to(old.device)
                        live.vector[places] = new[places]
                live.write_()

            def learn(step: int, opened: Region | None) -> None:
                carry(opened)
                micro = problem.losses(step)
                live.vector.grad = None
                with torch.enable_grad():
                    for loss in micro:
                        (loss() / len(micro) * problem.loss_scale).backward()
                if live.vector.grad is not None:
                    gain.sub_(unscaled_(problem, live.vector.grad) * delta)

            def look(region: Region) -> float:
                carry(region)
                return problem.dev_score()

            _grow_(
                {"gain": gain},
                k=k,
                steps=steps,
                depth=len(gain),
                learn=learn,
                look=look,
                checkpoint=problem.checkpoint,
            )
    finally:
        write_(problem.model, base)
    return gain


def _grow_(
    gain: dict[str, Tensor],
    *,
    k: int,
    steps: int,
    depth: int,
    learn: Callable[[int, Region | None], None],
    look: Callable[[Region], float],
    checkpoint: Checkpoint,
    started: Region | None = None,
) -> None:
    """Let the graft grow to `k` while `learn` adds to `gain`; leave there the best gains.

    Args:
        gain: The gains, in place.
        k: The budget.
        steps: Steps, at least 1.
        depth: How many of the best gains must be right in the end.
        learn: Called with (step, open gates).
        look: Scores a region on dev; asked only where the region is another than before.
        checkpoint: Where the growth was left, if it was, and where its steps are offered.
        started: Which gates are open before the first step, at most `k`; None means none.
    """
    now = _take_up_(gain, checkpoint) or _Growth(opened=started)
    begun = 0 if started is None else len(started)

    def best(size: int, among: Region | None = None) -> Region:
        return top_k(gain, size, among=among) if started is None else gated(gain, started, k=size)

    for step in range(now.step, steps):
        learn(step, now.opened)
        left = steps - 1 - step
        top: Region | None = None
        if left == 0 or (step >= steps // 2 and left % 2 == 0):
            top = best(k)
            if now.seen is None or top != now.seen:
                now.score, now.seen = look(top), top
            if now.score >= now.best:
                now.best = now.score
                now.kept = _best(gain, depth) if left else None
        size = begun + round((k - begun) * (step + 1) / (steps - 1)) if left else 0
        now.opened = best(size, among=top) if size else None
        now.step = step + 1
        checkpoint.offer(lambda: _state(gain, now))
    if now.kept is not None:
        _restore_(gain, now.kept)


@dataclass
class _Growth:
    """Where a growing graft stands beside its gains.

    Attributes:
        step: Steps done.
        best: The highest score on dev.
        kept: The gains that belong to it; None for those of now.
        seen: The region that was looked at last, and its `score`.
        opened: The gates that are open.
    """

    step: int = 0
    best: float = float("-inf")
    kept: Graft | None = None
    seen: Region | None = None
    score: float = float("-inf")
    opened: Region | None = None


def _state(gain: Parameters, now: _Growth) -> State:
    regions = {"seen": now.seen, "opened": now.opened}
    regions |= {"kept": now.kept.region} if now.kept is not None else {}
    tensors = joined(
        gain=gain,
        region={name: region.index for name, region in regions.items() if region is not None},
        values={"kept": now.kept.values} if now.kept is not None else {},
    )
    return tensors, {"step": now.step, "best": now.best, "score": now.score}


def _take_up_(gain: dict[str, Tensor], checkpoint: Checkpoint) -> _Growth | None:
    """Put the gains where `_state` saw them, if it did."""
    left = checkpoint.load()
    if left is None:
        return None
    tensors, facts = left
    copy_(gain, part_of(tensors, "gain"))
    layout = Layout.of(gain)
    regions = {name: Region.of(layout, i) for name, i in part_of(tensors, "region").items()}
    kept = regions.pop("kept", None)
    values = part_of(tensors, "values")
    return _Growth(
        step=facts["step"],
        best=facts["best"],
        score=facts["score"],
        kept=Graft(kept, values["kept"]) if kept is not None else None,
        **regions,
    )


def _best(gain: Parameters, depth: int) -> Graft:
    """Copy the `depth` highest gains."""
    return gather(gain, top_k(gain, depth))


def _restore_(gain: Parameters, kept: Graft) -> None:
    """Write kept gains back; all others become −∞."""
    for tensor in gain.values():
        tensor.fill_(float("-inf"))
    for name, inside, place in kept.region.by_parameter():
        flat = gain[name].view(-1)
        flat[inside.to(flat.device)] = kept.values[place].to(flat.device)


def _moves(new: Graft, old: Graft, *, device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
    """Return, by parameter, where gates are open and how far their values moved."""
    delta = new.values.float() - old.values.float()
    return {
        name: (inside.to(device), delta[place].to(device))
        for name, inside, place in new.region.by_parameter()
    }


def add_gains_(
    problem: Problem,
    gain: dict[str, Tensor],
    step: int,
    moves: dict[str, tuple[Tensor, Tensor]],
) -> None:
    """Add −g·δ of a step to the gains, where the model carries the tuned values at open gates.

    The live weights serve as the base: δ comes out as 0 at an open gate, whose part is added from
    `moves`.

    Args:
        problem: The task's problem.
        gain: The gains, in place.
        step: Which batch.
        moves: By parameter, the flat places of its open gates and δ there.
    """
    base = problem.base

    def add(name: str, gradient: Tensor) -> None:
        add_gain_(gain[name], gradient, problem.tuned[name], base[name])
        if name in moves:
            inside, delta = moves[name]
            part = gradient.reshape(-1)[inside].float() * delta
            gain[name].view(-1).index_add_(0, inside, part, alpha=-1)

    add_gradient_(problem, step, into=add)
