"""The memory estimate: what learning with a model will take, before its weights are there."""

from cl_graft.experiments.memory_estimate.plan import Plan, PlannedPhase, PlanSettings, make_plan

__all__ = ["Plan", "PlanSettings", "PlannedPhase", "make_plan"]
