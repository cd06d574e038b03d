"""Routing: which task a text belongs to, when nobody says so.

Pure functions of a base's features or of each task's logits; what decides *when* they are asked is
in `cl_graft.strategies`.
"""

from cl_graft.routing.answers import least_energy, least_entropy
from cl_graft.routing.features import ClassStatistics, discriminant, nearest_prototype

__all__ = [
    "ClassStatistics",
    "discriminant",
    "least_energy",
    "least_entropy",
    "nearest_prototype",
]
