"""Steps, batch sizes, learning rates, clipping, seeds and the check of the loss in any loop."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from torch import nn

from cl_graft.errors import DivergedError
from cl_graft.localization.grafting_settings import head_rate, region_rate
from cl_graft.localization.registry import Score
from cl_graft.runtime.seeding import check_generators, derive, seed_generators
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.strategy import Strategy
from cl_graft.training.examples import Examples
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.rate_schedule import Decay, rate_share


class StopAfter(SupervisedPlugin, supports_distributed=True):
    """Stop every experience after a number of optimiser steps.

    Runs at: after_training_iteration, after_training_exp. Give the strategy enough epochs to get
    there.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.steps = steps

    def after_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Stop when the steps of this experience are done."""
        if strategy.clock.train_exp_iterations + 1 >= self.steps:
            strategy.stop_training()

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Reset a stop after the last batch, which Avalanche's loop did not see."""
        strategy._stop_training = False


class SeededLoop(SupervisedPlugin, supports_distributed=True):
    """Make data order and dropout functions of (seed, experience, epoch or step).

    So a run trains with the same bits with and without evaluation in between. Draws of an
    experience of `text_stream` depend on its rows, those of any other on its position. What other
    plugins draw between experiences is seeded too: give it before them. Training in another thread
    at the same time is refused. `GraftingPlugin` does this by itself.

    Runs at: before_training, before_training_exp, before_training_epoch, before_training_iteration,
    after_update, after_training_exp.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self._experience: int | str = 0

    def before_training(self, strategy: Strategy, **kwargs: Any) -> None:
        """Seed what a strategy draws when it is given an experience."""
        self._seed_all(strategy, "before")

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Remember which experience is trained."""
        tensors = getattr(strategy.experience, "encoded", None)
        self._experience = strategy.clock.train_exp_counter
        if tensors is not None:
            self._experience = Examples(range(len(tensors[1])), tensors=tensors).fingerprint()

    def before_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """Seed the epoch's data order."""
        check_generators()
        epoch = strategy.clock.train_exp_epochs
        seed_generators(derive(self.seed, self._experience, "epoch", epoch))

    def before_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Seed the step's dropout."""
        check_generators()
        step = strategy.clock.train_exp_iterations
        seed_generators(derive(self.seed, self._experience, "step", step))

    def after_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Make sure that the step's draws were its own."""
        check_generators()

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Seed what plugins draw of an experience that is learned."""
        self._seed_all(strategy, "after")

    def _seed_all(self, strategy: Strategy, phase: str) -> None:
        seed = derive(self.seed, strategy.clock.train_exp_counter, phase)
        seed_generators(seed)
        # Avalanche's A-GEM picks its rows with Python's own generator.
        random.seed(seed)


class ClipGradient(SupervisedPlugin, supports_distributed=True):
    """Clip the norm of the optimiser's gradients before every step.

    Runs at: before_update. It clips the gradients of the optimiser's parameters: under grafting,
    those of the region and the head.
    """

    def __init__(self, norm: float) -> None:
        super().__init__()
        self.norm = norm

    def before_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Clip the norm."""
        held = [p for group in strategy.optimizer.param_groups for p in group["params"]]
        moved = [p for p in held if p.grad is not None]
        if not moved:
            return
        norms = torch.stack([torch.linalg.vector_norm(p.grad) for p in moved])
        # A penalty gives finished heads a gradient, which is 0 if its weight is 0. The number of
        # terms changes the last bits of a sum. Without the zeros, a penalty of weight 0 trains to
        # the same bits as Naive.
        norm = torch.linalg.vector_norm(norms[norms != 0])
        nn.utils.clip_grads_with_norm_(moved, self.norm, norm)


class RateSchedule(SupervisedPlugin, supports_distributed=True):
    """Let the learning rate rise, then fall, over the steps of every experience.

    A constant rate that does not rise is left as the optimiser has it.

    Runs at: before_training_iteration.

    Args:
        lr: Learning rate of all groups, > 0, or one for each group.
        steps: Number of steps of an experience.
        decay: How the rate falls.
        warm_up: Share of the steps in which it rises, in [0, 1).
    """

    def __init__(
        self,
        lr: float | Sequence[float],
        steps: int,
        *,
        decay: Decay = "linear",
        warm_up: float = 0.0,
    ) -> None:
        super().__init__()
        self.lr = lr
        self.steps = steps
        self.decay: Decay = decay
        self.warm_up = warm_up

    def before_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set the step's rate."""
        if self.decay == "constant" and not self.warm_up:
            return
        step = strategy.clock.train_exp_iterations
        share = rate_share(step, self.steps, decay=self.decay, warm_up=self.warm_up)
        groups = strategy.optimizer.param_groups
        rates = [self.lr] * len(groups) if isinstance(self.lr, float | int) else self.lr
        for group, lr in zip(groups, rates, strict=True):
            group["lr"] = lr * share


class TaskSchedules(StopAfter, supports_distributed=True):
    """Train every task with the steps, batch size and learning rate of its own schedule.

    `RateSchedule` and `KeepBest` get the task's schedule, too.

    Runs at: before_train_dataset_adaptation, after_training_iteration, after_training_exp.
    """

    def __init__(
        self, schedules: Mapping[int, FineTuning], *, head_lr: float | None = None
    ) -> None:
        super().__init__(steps=1)
        self.schedules = dict(schedules)
        self.head_lr = head_lr

    def before_train_dataset_adaptation(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set the task's schedule, before the strategy makes its loader."""
        schedule = self.schedules[int(strategy.experience.task_label)]
        batches = math.ceil(len(strategy.experience.dataset) / schedule.batch_size)
        self.steps = schedule.steps
        strategy.train_mb_size = schedule.batch_size
        strategy.train_epochs = math.ceil(schedule.steps / batches)
        for plugin in strategy.plugins:
            if isinstance(plugin, RateSchedule):
                plugin.steps, plugin.decay = schedule.steps, schedule.lr_decay or "constant"
                plugin.warm_up = schedule.warm_up or 0.0
            elif isinstance(plugin, KeepBest):
                plugin.steps, plugin.evaluations = schedule.steps, schedule.evaluations
        set_rates_(strategy, schedule.lr, head_lr=self.head_lr)


class RegionRate(SupervisedPlugin, supports_distributed=True):
    """Train every region by AdamW at the learning rate that suits its size.

    Runs at: before_training_epoch, when the optimiser has the region in its first group.

    Args:
        scale: `weight_scale` of the base, > 0.
        localizer: How regions are found; None is any of the usual rate.
        head_lr: Learning rate of the head; None takes the region's, or less for a large head.
    """

    def __init__(
        self, scale: float, *, localizer: str | Score | None = None, head_lr: float | None = None
    ) -> None:
        super().__init__()
        self.scale, self.localizer, self.head_lr = scale, localizer, head_lr

    def before_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set the rates."""
        sizes = [sum(w.numel() for w in g["params"]) for g in strategy.optimizer.param_groups]
        lr = region_rate("adamw", sizes[0], scale=self.scale, localizer=self.localizer)
        of_head = head_rate("adamw", sizes[-1], scale=self.scale, region=lr)
        set_rates_(strategy, lr, head_lr=self.head_lr or of_head)


def set_rates_(strategy: Strategy, lr: float, *, head_lr: float | None = None) -> None:
    """Set the learning rate of a strategy's optimiser, and that of `RateSchedule`."""
    groups = strategy.optimizer.param_groups
    rates = [lr] * len(groups)
    if len(groups) > 1 and head_lr is not None:
        rates[-1] = head_lr
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    for plugin in strategy.plugins:
        if isinstance(plugin, RateSchedule):
            plugin.lr = rates


class StopDiverged(SupervisedPlugin, supports_distributed=True):
    """Stop training before a step whose loss is NaN or infinite.

    Runs at: before_update. The weights are those of the last good step then. Give it after
    `MicroBatches`. `GraftingPlugin` does this by itself.
    """

    def before_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Check the loss."""
        check_loss(strategy, phase="training")


def check_loss(strategy: Strategy, *, phase: str, from_base: bool = False) -> None:
    """Refuse a loss that is NaN or infinite; `from_base` where the first step is at the base."""
    loss = float(strategy.loss.detach())
    if math.isfinite(loss):
        return
    step = strategy.clock.train_exp_iterations + 1
    why = DivergedError.before_any_step if from_base and step == 1 else "a lower lr usually helps"
    rates = {group["lr"] for group in strategy.optimizer.param_groups if group["params"]}
    lr = ", ".join(f"{rate:g}" for rate in sorted(rates))
    raise DivergedError(f"the loss is {loss} at step {step} of {phase} with lr {lr}; {why}")
