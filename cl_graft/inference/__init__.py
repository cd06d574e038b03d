"""How a bank answers: switching between tasks, batches of several tasks, routing."""

from cl_graft.inference.routing_by_answers import least_energy, least_entropy
from cl_graft.inference.routing_by_features import ClassStatistics, discriminant, nearest_prototype

__all__ = [
    "ClassStatistics",
    "discriminant",
    "least_energy",
    "least_entropy",
    "nearest_prototype",
]
