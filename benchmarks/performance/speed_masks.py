"""Time and memory of a step of mask learning.

A step of the paper's size has 1,024 rows, here micro-batches of 8. Its gains are updated during
every backward pass, so a micro-batch is timed with its update; selecting the open gates is done
once a step, and its share of one micro-batch in 128 is added.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from speed_training import Shape, full_step
from time_and_memory import pairs_apart, peak_memory
from torch import Tensor

from cl_graft.grafts.graft import gather
from cl_graft.grafts.selection import top_k
from cl_graft.localization import LocalizerInputs
from cl_graft.localization.learned_mask import add_gains_, learned_mask
from cl_graft.training.region_parameters import RegionParameters

_Prepare = Callable[[Shape], tuple[Callable[[], None], Callable[[], object]]]
_MICRO_BATCHES = 1024 // 8
_OPEN = 8505


def mask_ratios(shape: Shape, *, repeats: int, threads: int) -> dict[str, list[float]]:
    """Time a micro-batch of mask learning against a full step, in alternating pairs."""
    full = partial(full_step, shape, "sgd")
    found: dict[str, list[float]] = {}
    for name, prepare in (("dense", _dense), ("candidates", _candidates)):
        mine, theirs = pairs_apart(
            partial(_step, prepare, shape), full, threads=threads, repeats=repeats
        )
        step, selection = prepare(shape)
        step()  # gains that are all alike would be selected otherwise
        once = []
        for _ in range(3):
            started = time.perf_counter()
            selection()
            once.append(time.perf_counter() - started)
        share = sorted(once)[1] / _MICRO_BATCHES
        ratios = [(a + share) / b for a, b in zip(mine, theirs, strict=True)]
        found[f"mask_step_{name}/full_step"] = ratios
        found[f"mask_step_{name}, selection, seconds"] = once
    return found


def mask_memory(shape: Shape, *, repeats: int, threads: int) -> dict[str, list[float]]:
    """Measure what dense mask learning holds beyond model and activations."""
    unit = 4 * sum(p.numel() for p in shape.graftable(shape.model()).values())
    multiples = []
    for _ in range(repeats):
        whole, passing = (
            peak_memory(prepare, shape, threads=threads) for prepare in (_learning, _passing)
        )
        multiples.append((_of(whole) - _of(passing)) / unit)
    return {"mask_memory_dense": multiples}


def _inputs(shape: Shape) -> LocalizerInputs:
    model = shape.model()
    parameters = shape.graftable(model)
    draw = torch.Generator().manual_seed(3)
    tuned = {
        name: p.detach() + 1e-3 * torch.randn(p.shape, generator=draw).to(p.device)
        for name, p in parameters.items()
    }
    loss = shape.compute_loss(model)
    return LocalizerInputs(model, parameters, tuned, lambda _: [loss], _one, _one, seed=0)


def _one() -> float:
    return 1.0


def _step(prepare: _Prepare, shape: Shape) -> Callable[[], None]:
    """Set a micro-batch up and leave the selection out."""
    step, _ = prepare(shape)
    return step


def _dense(shape: Shape) -> tuple[Callable[[], None], Callable[[], object]]:
    inputs = _inputs(shape)
    gain = inputs.zeros()
    opened = shape.region(inputs.model, _OPEN)
    delta = gather(inputs.tuned, opened).values - gather(inputs.base, opened).values
    device = next(iter(gain.values())).device
    moves = {
        name: (inside.to(device), delta[place].to(device))
        for name, inside, place in opened.by_parameter()
    }
    return lambda: add_gains_(inputs, gain, 0, moves), lambda: top_k(gain, _OPEN)


def _candidates(shape: Shape) -> tuple[Callable[[], None], Callable[[], object]]:
    model = shape.model()
    total = sum(p.numel() for p in shape.graftable(model).values())
    live = RegionParameters(model, shape.region(model, total // 100))
    loss = shape.compute_loss(model)
    delta = torch.ones_like(live.vector, requires_grad=False)
    gain = torch.zeros_like(delta)

    def step() -> None:
        live.vector.grad = None
        loss().backward()
        grad: Tensor = live.vector.grad  # pyright: ignore[reportAssignmentType]
        gain.sub_(grad * delta)

    return step, lambda: top_k({"": gain}, min(_OPEN, len(gain)))


def _learning(shape: Shape) -> Callable[[], None]:
    model = shape.model()
    with torch.no_grad():
        shape.compute_loss(model)()
    del model

    def run() -> None:
        inputs = _inputs(shape)
        total = inputs.layout.total
        learned_mask(inputs, k=min(_OPEN, total // 10), steps=6)

    return run


def _passing(shape: Shape) -> Callable[[], None]:
    """The same model, its activations and one gradient at a time, and nothing else."""
    model = shape.model()
    with torch.no_grad():
        shape.compute_loss(model)()
    del model

    def run() -> None:
        fresh = shape.model()
        loss = shape.compute_loss(fresh)
        for parameter in shape.graftable(fresh).values():
            parameter.register_post_accumulate_grad_hook(_drop)
        for _ in range(3):
            loss().backward()

    return run


def _drop(parameter: Tensor) -> None:
    parameter.grad = None


def _of(peak: object) -> int:
    memory, device = (getattr(peak, name) for name in ("memory", "device"))
    return memory if device is None else device
