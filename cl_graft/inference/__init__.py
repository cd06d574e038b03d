"""Inference with a bank: switching between tasks, batches of several tasks, routing."""

from cl_graft.inference.routing_rules import (
    ClassStatistics,
    discriminant,
    least_energy,
    least_entropy,
    nearest_prototype,
)

__all__ = ["ClassStatistics", "discriminant", "least_energy", "least_entropy", "nearest_prototype"]
