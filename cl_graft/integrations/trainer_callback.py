"""The callback for the `Trainer` of transformers that makes a graft when training ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from cl_graft.errors import InputError
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.integrations.skill import Skill, localize_skill, model_tensors
from cl_graft.localization import find_localizer
from cl_graft.localization.registry import Score

__all__ = ["GraftCallback"]


class GraftCallback(TrainerCallback):
    """Localize what a `Trainer` taught a model, when training ends.

    The model itself stays as the trainer leaves it: tuned, or at its best checkpoint where
    ``load_best_model_at_end`` is set. Beside it one copy of the base is kept on the CPU. The mean
    loss is that of the model (``model(**batch).loss``).

    Runs at: train_begin, train_end.

    Args:
        base: The model before training; it may be the very object that the trainer then trains.
        batches: Number of the trainer's training batches that the localizer uses.
        density: Share of the graftable coordinates in the region, in (0, 1].
        localizer: Name of a localizer in `cl_graft.localization.LOCALIZERS`, or a score function.
        exclude: As in `localize_skill`.
        keep: As in `localize_skill`.
        seed: Every random choice of the localizer is a function of it.

    Attributes:
        skill: Skill of the trained model; None before the end of training.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        *,
        batches: int = 12,
        density: float = 0.002,
        localizer: str | Score = "learned_mask",
        exclude: tuple[str, ...] = ("heads",),
        keep: Callable[[str], bool] | None = None,
        seed: int = 0,
    ) -> None:
        self.skill: Skill | None = None
        self._base = {name: tensor.cpu() for name, tensor in snapshot(model_tensors(base)).items()}
        self._batches = batches
        self._settings: Mapping[str, Any] = {
            "density": density,
            "localizer": localizer,
            "exclude": exclude,
            "keep": keep,
            "seed": seed,
        }
        self._gradients = find_localizer(localizer).needs_gradients

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Refuse a model that the base does not belong to, before anything is trained."""
        del args, state, control
        now = {name: tuple(tensor.shape) for name, tensor in model_tensors(kwargs["model"]).items()}
        if now != {name: tuple(tensor.shape) for name, tensor in self._base.items()}:
            raise InputError(
                "GraftCallback was made with another model than the trainer trains; pass it the "
                "model that goes into Trainer(model=...)"
            )

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Find the skill."""
        del args, state, control
        model = kwargs["model"]
        device = next(model.parameters()).device
        loader = kwargs["train_dataloader"] if self._gradients else ()
        batches = [_on(device, batch) for batch in islice(loader, self._batches)]
        tensors = model_tensors(model)
        tuned = snapshot(tensors)
        with replace_parameters(tensors, self._base):
            self.skill = localize_skill(model, tuned, batches=batches, **self._settings)


def _on(device: torch.device, batch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in batch.items()
    }
