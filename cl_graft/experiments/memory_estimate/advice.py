"""What to lower where a phase does not fit into memory."""

from __future__ import annotations

from dataclasses import replace

import torch

from cl_graft.experiments.memory_estimate.phases import Phase, PhaseMemory, Workload, measure_phase
from cl_graft.experiments.memory_estimate.weightless_model import HollowModel
from cl_graft.runtime.byte_sizes import readable_bytes

__all__ = ["advise"]


def advise(
    phase: Phase, hollow: HollowModel, work: Workload, found: PhaseMemory, *, left: int
) -> str:
    """Say what to lower so that a phase fits, or nothing if it does.

    Args:
        phase: The phase.
        hollow: The model.
        work: How much goes through it.
        found: What that takes.
        left: Bytes that the model leaves; negative if it does not fit itself.
    """
    if found.kept + found.step <= left:
        return ""
    if left < 0:
        return f"the model alone is {readable_bytes(-left)} too large: {_smaller_weights(hollow)}"
    if found.kept > left:
        over = readable_bytes(found.kept - left)
        said = f"what it keeps beside the model is {over} too much: "
        return said + _smaller_weights(hollow) + _other_phase(phase)
    option = f"--{phase.rows.replace('_', '-')}"
    rows = _rows(phase, work) // 2
    while rows:
        fewer = measure_phase(phase, hollow, replace(work, **{phase.rows: rows}))
        if fewer.kept + fewer.step <= left:
            return f"{option} {rows} fits"
        rows //= 2
    ways = [f"{option} 1", "a smaller --max-length"]
    if phase.rows == "micro_batch" and not hollow.model.recomputes:
        ways.append("--gradient-checkpointing")
    if next(iter(hollow.parameters.values())).dtype == torch.float32:
        ways.append("--dtype bfloat16")
    return f"lower what a step needs: {', '.join(ways)}" + _other_phase(phase)


def _rows(phase: Phase, work: Workload) -> int:
    """Return how many rows a phase computes at a time."""
    if phase.rows == "eval_batch":
        return work.eval_batch
    if phase.localizes:
        return work.localized
    return min(work.batch_size, work.micro_batch or work.batch_size)


def _smaller_weights(hollow: HollowModel) -> str:
    half = next(iter(hollow.parameters.values())).dtype == torch.float32
    return "take --dtype bfloat16" if half else "take a smaller model"


def _other_phase(phase: Phase) -> str:
    return f", or {phase.instead}" if phase.instead else ""
