"""Localization: which coordinates carry a task (torch only)."""

from cl_graft.localization.problem import Problem
from cl_graft.localization.ranking import Ranking, rank
from cl_graft.localization.registry import LOCALIZERS, Localizer, find_localizer, localize

__all__ = ["LOCALIZERS", "Localizer", "Problem", "Ranking", "find_localizer", "localize", "rank"]
