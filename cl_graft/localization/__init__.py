"""Localization: which coordinates carry a task (torch only)."""

from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.ranking import Ranking, rank
from cl_graft.localization.registry import LOCALIZERS, Localizer, find_localizer, localize

__all__ = [
    "LOCALIZERS",
    "Localizer",
    "LocalizerInputs",
    "Ranking",
    "find_localizer",
    "localize",
    "rank",
]
