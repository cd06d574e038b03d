"""Localization: scores, a registry of them, and the search for a task's region by one of them."""

from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.ranking import Ranking, localize, rank
from cl_graft.localization.registry import LOCALIZERS, Localizer, find_localizer, register_localizer

__all__ = [
    "LOCALIZERS",
    "Localizer",
    "LocalizerInputs",
    "Ranking",
    "find_localizer",
    "localize",
    "rank",
    "register_localizer",
]
