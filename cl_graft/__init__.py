"""cl_graft: forget-free continual learning of language models by grafting, on Avalanche.

A pretrained model stays frozen; every task of a stream leaves one graft, a tiny region of
parameters and its values (Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600). Public names
load on first use: importing the package costs torch and neither Avalanche nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cl_graft.runtime.openmp import limit_spinning
from cl_graft.runtime.torchvision_operators import declare_missing_operators

if TYPE_CHECKING:
    from cl_graft.data import Prompt, Row, TextTask, load_task
    from cl_graft.errors import BankError, InputError
    from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, RecordedBatch
    from cl_graft.grafts.graft import Graft, extract, grafted, write_
    from cl_graft.grafts.region import Layout, Region, overlap_matrix, top_k, union
    from cl_graft.inference.task_switch import Switch
    from cl_graft.integrations.skill import Skill, localize_skill
    from cl_graft.integrations.trainer_callback import GraftCallback
    from cl_graft.localization import LOCALIZERS, Problem, Ranking, localize
    from cl_graft.localization.settings import GraftingSettings
    from cl_graft.models import TaskModel, graftable_parameters, load_model
    from cl_graft.storage import append_entry, load_bank, load_graft, save_bank, save_graft
    from cl_graft.strategies import (
        GraftingContinual,
        GraftingPlugin,
        MultiTaskText,
        TaskMetadata,
        heads_for,
    )
    from cl_graft.strategies.benchmark import TextStream, text_stream
    from cl_graft.training.fine_tuning import FineTuning, fine_tune
    from cl_graft.training.region_parameters import RegionParameters

__version__ = "0.1.0"

_HOMES = {
    "grafts.bank": ("BaseIdentity", "RecordedBatch", "Entry", "GraftBank"),
    "errors": ("BankError", "InputError"),
    "grafts.graft": ("Graft", "extract", "grafted", "write_"),
    "localization.settings": ("GraftingSettings",),
    "localization": ("LOCALIZERS", "Problem", "Ranking", "localize"),
    "models": ("TaskModel", "graftable_parameters", "load_model"),
    "grafts.region": ("Layout", "Region", "overlap_matrix", "top_k", "union"),
    "integrations.skill": ("Skill", "localize_skill"),
    "training.region_parameters": ("RegionParameters",),
    "storage": ("append_entry", "load_bank", "load_graft", "save_bank", "save_graft"),
    "strategies": (
        "GraftingContinual",
        "GraftingPlugin",
        "MultiTaskText",
        "TaskMetadata",
        "heads_for",
    ),
    "inference.task_switch": ("Switch",),
    "data": ("Prompt", "Row", "TextTask", "load_task"),
    "strategies.benchmark": ("TextStream", "text_stream"),
    "integrations.trainer_callback": ("GraftCallback",),
    "training.fine_tuning": ("FineTuning", "fine_tune"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LOCALIZERS",
    "BankError",
    "BaseIdentity",
    "Entry",
    "FineTuning",
    "Graft",
    "GraftBank",
    "GraftCallback",
    "GraftingContinual",
    "GraftingPlugin",
    "GraftingSettings",
    "InputError",
    "Layout",
    "MultiTaskText",
    "Problem",
    "Prompt",
    "Ranking",
    "RecordedBatch",
    "Region",
    "RegionParameters",
    "Row",
    "Skill",
    "Switch",
    "TaskMetadata",
    "TaskModel",
    "TextStream",
    "TextTask",
    "append_entry",
    "extract",
    "fine_tune",
    "graftable_parameters",
    "grafted",
    "heads_for",
    "load_bank",
    "load_graft",
    "load_model",
    "load_task",
    "localize",
    "localize_skill",
    "overlap_matrix",
    "save_bank",
    "save_graft",
    "text_stream",
    "top_k",
    "union",
    "write_",
]

# Before anything loads torch, as the next line does.
limit_spinning()
# Before anything imports torchvision: Avalanche and transformers do.
declare_missing_operators()


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cl_graft' has no attribute {name!r}")
    value = getattr(import_module(f"cl_graft.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
