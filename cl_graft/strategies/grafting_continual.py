"""GraftingContinual: the Avalanche strategy whose first plugin is grafting's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.grafts.bank import GraftBank
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.metrics.task_score import TaskLoss
from cl_graft.runtime.devices import pick_device
from cl_graft.strategies.experience_tasks import TaskLabels
from cl_graft.strategies.grafting_plugin import GraftingPlugin


class GraftingContinual(SupervisedTemplate):
    """Learn a stream of tasks by grafting, forgetting nothing.

    Constructed like any Avalanche strategy; the loop's epochs, optimiser and batch size are those
    of the region training. The dense run that finds a region has its own settings in `grafting`.
    A ready-made `GraftingPlugin` (with a bank to extend, a cache, callbacks…) can be given in its
    place.

    Args:
        model: The model. With task heads (a `MultiTaskModule`, such as `MultiTaskText`) each task
            keeps its own; its other parameters stay frozen.
        optimizer: Optimiser of the region; see `GraftingPlugin`.
        criterion: Function of (logits, targets) that returns the mean loss.
        train_mb_size: Rows a step of region training.
        train_epochs: Epochs of region training.
        eval_mb_size: Rows a batch in evaluation; None means `train_mb_size`.
        device: Device of the training.
        plugins: More plugins; they run after grafting's.
        evaluator: Avalanche's evaluation plugin, or a function that makes one.
        eval_every: Interval of evaluations: -1 never, 0 after an experience, n every n epochs.
        peval_mode: ``"epoch"`` or ``"iteration"``.
        grafting: Settings, or a plugin; None means the defaults.
        dev: Experiences with the dev rows, such as ``benchmark.valid_stream``; see
            `GraftingPlugin`. A ready-made plugin has its own.
        task_labels: Source of task labels, ``"stream"`` or ``"experience"``; see
            `GraftingPlugin`. A ready-made plugin has its own.

    Raises:
        ValueError: If a plugin is given together with `dev` or `task_labels`.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any = None,
        train_mb_size: int = 1,
        train_epochs: int = 1,
        eval_mb_size: int | None = 1,
        device: str | torch.device = "cpu",
        plugins: Sequence[SupervisedPlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = None,
        eval_every: int = -1,
        peval_mode: str = "epoch",
        grafting: GraftingSettings | GraftingPlugin | None = None,
        dev: Sequence[Any] | None = None,
        task_labels: TaskLabels | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(grafting, GraftingPlugin):
            for name, given in {"dev": dev, "task_labels": task_labels}.items():
                if given is not None:
                    raise ValueError(
                        f"give `{name}` to the plugin: GraftingPlugin(…, {name}={name})"
                    )
            plugin = grafting
        else:
            plugin = GraftingPlugin(grafting, dev=dev, task_labels=task_labels or "stream")
        chosen: dict[str, Any] = {} if evaluator is None else {"evaluator": evaluator}
        super().__init__(
            model=model,
            optimizer=optimizer,
            criterion=TaskLoss() if criterion is None else criterion,
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=pick_device(device),
            plugins=[plugin, *(plugins or ())],
            eval_every=eval_every,
            peval_mode=peval_mode,
            **chosen,
            **kwargs,
        )
        self.grafting = plugin

    @property
    def bank(self) -> GraftBank | None:
        """The entries of the tasks so far; None before the first task."""
        return self.grafting.bank
