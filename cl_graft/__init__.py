"""cl_graft: forget-free continual learning of language models by grafting, on Avalanche.

A pretrained model stays frozen; every task of a stream leaves one graft, a tiny region of
parameters and its values (Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600). Public names
load on first use: importing the package imports neither torch, nor Avalanche, nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cl_graft.runtime.native_libraries import declare_missing_operators, limit_spinning

if TYPE_CHECKING:
    from cl_graft.banks.open_bank import OpenBank, open_bank
    from cl_graft.banks.verify import verify
    from cl_graft.data import TextTask, load_task, register_stream
    from cl_graft.errors import BankError, InputError
    from cl_graft.grafts.bank import GraftBank
    from cl_graft.grafts.graft import Graft, grafted
    from cl_graft.grafts.region import Region
    from cl_graft.integrations.record_stream import record_stream
    from cl_graft.integrations.skill import localize_skill
    from cl_graft.integrations.trainer_callback import GraftCallback
    from cl_graft.lab.experiments.comparison.compare import compare
    from cl_graft.lab.experiments.run import run
    from cl_graft.localization.grafting_settings import GraftingSettings
    from cl_graft.localization.registry import register_localizer
    from cl_graft.metrics.task_score import register_metric
    from cl_graft.models import load_model
    from cl_graft.storage import load_bank, save_bank
    from cl_graft.strategies.benchmark import text_model, text_stream
    from cl_graft.strategies.grafting_continual import GraftingContinual
    from cl_graft.strategies.grafting_plugin import GraftingPlugin
    from cl_graft.strategies.registry import register_strategy
    from cl_graft.strategies.stream_scores import StreamScores
    from cl_graft.training.fine_tuning_settings import FineTuning

__version__ = "0.1.0"

_HOMES = {
    "banks.open_bank": ("OpenBank", "open_bank"),
    "banks.verify": ("verify",),
    "data": ("TextTask", "load_task", "register_stream"),
    "errors": ("BankError", "InputError"),
    "lab.experiments.comparison.compare": ("compare",),
    "lab.experiments.run": ("run",),
    "integrations.record_stream": ("record_stream",),
    "grafts.bank": ("GraftBank",),
    "grafts.graft": ("Graft", "grafted"),
    "grafts.region": ("Region",),
    "integrations.skill": ("localize_skill",),
    "integrations.trainer_callback": ("GraftCallback",),
    "localization.registry": ("register_localizer",),
    "localization.grafting_settings": ("GraftingSettings",),
    "metrics.task_score": ("register_metric",),
    "models": ("load_model",),
    "storage": ("load_bank", "save_bank"),
    "strategies.benchmark": ("text_model", "text_stream"),
    "strategies.grafting_continual": ("GraftingContinual",),
    "strategies.grafting_plugin": ("GraftingPlugin",),
    "strategies.registry": ("register_strategy",),
    "strategies.stream_scores": ("StreamScores",),
    "training.fine_tuning_settings": ("FineTuning",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BankError",
    "FineTuning",
    "Graft",
    "GraftBank",
    "GraftCallback",
    "GraftingContinual",
    "GraftingPlugin",
    "GraftingSettings",
    "InputError",
    "OpenBank",
    "Region",
    "StreamScores",
    "TextTask",
    "compare",
    "grafted",
    "load_bank",
    "load_model",
    "load_task",
    "localize_skill",
    "open_bank",
    "record_stream",
    "register_localizer",
    "register_metric",
    "register_strategy",
    "register_stream",
    "run",
    "save_bank",
    "text_model",
    "text_stream",
    "verify",
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
