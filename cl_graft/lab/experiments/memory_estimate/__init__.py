"""The memory estimate: memory and disk that learning takes, before any weights are loaded."""

from cl_graft.lab.experiments.memory_estimate.plan import Plan, make_plan
from cl_graft.lab.experiments.memory_estimate.tracked_steps import PlannedPhase

__all__ = ["Plan", "PlannedPhase", "make_plan"]
