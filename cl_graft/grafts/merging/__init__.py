"""Merging: one model from the grafts of many tasks, for when nobody says which task is asked.

Pure functions of grafts and base values. What is merged are *standalone* grafts, a task's whole
region with the values of its independent run: the owned parts of a bank are disjoint, so that every
rule would merely write them side by side.
"""

from cl_graft.grafts.merging.registry import MERGES, Merge, merge_grafts, standalone_grafts
from cl_graft.grafts.merging.task_vectors import TaskVectors

__all__ = ["MERGES", "Merge", "TaskVectors", "merge_grafts", "standalone_grafts"]
