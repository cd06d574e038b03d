"""The memory estimate: memory and disk that learning takes, before any weights are loaded."""

from cl_graft.lab.experiments.memory_estimate.plan import Plan, PlannedPhase, make_plan

__all__ = ["Plan", "PlannedPhase", "make_plan"]
