"""Inference with a bank: switching between tasks, batches of several tasks, routing.

`models.task_server` answers such batches through the head of each row's task.
"""

from cl_graft.inference.routing_rules import (
    ClassStatistics,
    discriminant,
    least_energy,
    least_entropy,
    nearest_prototype,
)

__all__ = ["ClassStatistics", "discriminant", "least_energy", "least_entropy", "nearest_prototype"]
