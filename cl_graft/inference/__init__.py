"""Inference with a bank: switching between tasks, batches of several tasks, routing.

`models.task_server` answers such batches through the head of each row's task.
"""

from cl_graft.inference.routing_rules import ClassStatistics, discriminant

__all__ = ["ClassStatistics", "discriminant"]
