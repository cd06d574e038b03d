"""Bounds: lower ones without protection from forgetting, upper ones that forget nothing.

Avalanche's `Cumulative` and `JointTraining` need batches of as many rows as there are tasks. Here
both are `Naive` on shuffled rows of several tasks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.grafts.graft import load_, snapshot
from cl_graft.metrics.task_score import NO_TARGET
from cl_graft.runtime.batching import join_rows
from cl_graft.runtime.run_context import RunContext
from cl_graft.runtime.tensor_names import parameters_by_name
from cl_graft.strategies import StrategyInputs, count_bytes, find_plugin, register_strategy, setting
from cl_graft.strategies.experience_tasks import ExperienceTasks
from cl_graft.strategies.grafting_methods import GRAFTING_PAPER
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.phase_reports import publish
from cl_graft.strategies.loop.text_batches import shuffle_batches
from cl_graft.strategies.method import PICKED_BY_LABEL
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import unwrap_model
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask, Passes


class WeightsMethod:
    """The part of methods whose model's weights are all that a run resumes from."""

    @staticmethod
    def state(strategy: SupervisedTemplate) -> dict[str, Tensor]:
        """Return the weights of a strategy's model."""
        return {name: p.detach() for name, p in strategy.model.named_parameters()}

    @staticmethod
    def load_state_(
        strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Give a strategy's model these weights."""
        load_(strategy.model, tensors)


@register_strategy("naive", family="lower bound", source="Avalanche's Naive")
class NaiveFineTuning(WeightsMethod):
    """Train every weight on one task after the other."""

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Avalanche's Naive."""
        return inputs.naive()


class MixedRows(SupervisedPlugin, supports_distributed=False):
    """Train on shuffled rows of several experiences: those so far, or all when the first comes.

    Runs at: before_training_exp. Give it after `TextBatches`, whose loader it replaces.
    """

    def __init__(self, inputs: StrategyInputs, *, so_far: bool) -> None:
        super().__init__()
        self.stream = list(inputs.stream.benchmark.train_stream)
        self.so_far = so_far
        self.seed = inputs.seed
        self.group_by_length = inputs.first_schedule.group_by_length
        self.passes: dict[int, dict[str, Passes]] = {}

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set the loader, or stop the training if all tasks were learned with the first one."""
        if not self.so_far and strategy.clock.train_exp_counter:
            self.passes[int(strategy.experience.task_label)] = {"train": Passes()}
            strategy.stop_training()
            return
        count = strategy.clock.train_exp_counter + 1 if self.so_far else len(self.stream)
        chosen = self.stream[:count]
        inputs = torch.cat([experience.encoded[0] for experience in chosen])
        targets = join_rows([experience.encoded[1] for experience in chosen], fill=NO_TARGET)
        labels = torch.cat([torch.full((len(e.encoded[1]),), int(e.task_label)) for e in chosen])
        for plugin in strategy.plugins:
            if isinstance(plugin, KeepBest):
                plugin.labels = [int(experience.task_label) for experience in chosen]
        strategy.dataloader = shuffle_batches(
            Examples(range(len(targets)), tensors=(inputs, targets)),
            labels,
            size=strategy.train_mb_size,
            seed=self.seed,
            group_by_length=self.group_by_length,
        )


@register_strategy(
    "cumulative",
    family="upper bound",
    source="as Avalanche's Cumulative: on the rows of all tasks so far",
    adds="its head and all its rows",
    rows="seen_tasks",
    kinds="one",
)
class Cumulative(WeightsMethod):
    """Train every weight on the rows of all tasks so far, with the steps of all of them."""

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MixedRows`."""
        return inputs.naive(MixedRows(inputs, so_far=True))

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of the rows of all tasks so far."""
        learned = find_plugin(strategy, MixedRows).stream[: strategy.clock.train_exp_counter]
        return count_bytes([experience.encoded for experience in learned])


@register_strategy(
    "joint",
    family="upper bound",
    source="as Avalanche's JointTraining: on the rows of all tasks at once, before the first",
    rows="all_tasks",
    kinds="one",
)
class Joint(WeightsMethod):
    """Train every weight on the rows of all tasks, with the steps of all, when the first comes."""

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MixedRows`, on a model that has all heads."""
        for experience in inputs.stream.benchmark.train_stream:
            inputs.model.adaptation(experience)
        return inputs.naive(MixedRows(inputs, so_far=False))


class LearnsAside(SupervisedPlugin, supports_distributed=False):
    """Learn tasks outside of the strategy's loop, which trains nothing.

    Runs at: before_training_exp.
    """

    def __init__(self, inputs: StrategyInputs, *, phase: str = "") -> None:
        super().__init__()
        self.seconds: dict[int, dict[str, float]] = {}
        self.passes: dict[int, dict[str, Passes]] = {}
        self._inputs = inputs
        self._phase = phase
        self._context = RunContext.of(inputs.cache, inputs.checkpoints, inputs.progress)
        self._identity = inputs.identify_base()
        self._tasks = ExperienceTasks(inputs.dev, inputs.metrics)

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Learn the task, and skip the strategy's loop."""
        label = int(strategy.experience.task_label)

        def measure(phase: str, name: str, step: int, value: float) -> None:
            phase = self._phase or phase
            publish(strategy, self, name, phase, label=label, step=step, value=value)

        self._learn(strategy, strategy.experience, replace(self._context, measure=measure))
        strategy.stop_training()

    def learn_again(self, strategy: Any, experiences: Sequence[Any]) -> None:
        """Learn tasks that another process learned; the cache keeps their dense runs."""
        for experience in experiences:
            self._learn(strategy, experience, self._context)

    def _make_task(self, strategy: Strategy, experience: Any, *, seed: int) -> LearnableTask:
        label, base = int(experience.task_label), self._identity.fingerprint
        return self._tasks.make(strategy, experience, label=label, base=base, seed=seed)

    def _learn(self, strategy: Strategy, experience: Any, context: RunContext) -> None:
        raise NotImplementedError


class ValuesByTask(SupervisedPlugin, supports_distributed=False):
    """Answer every task with values of its own; an unlearned task is answered as the model is.

    Runs at: before_eval_exp, after_eval_exp.
    """

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.values: dict[int, dict[str, Tensor]] = {}
        self._live: dict[str, Tensor] | None = None

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Load the task's values."""
        self._restore(strategy)
        values = self.values.get(int(strategy.experience.task_label))
        if values is not None:
            model = unwrap_model(strategy.model)
            parameters = parameters_by_name(model)
            self._live = snapshot({name: parameters[name] for name in values})
            load_(model, values)

    def after_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Put the live values back."""
        self._restore(strategy)

    def _restore(self, strategy: Strategy) -> None:
        """Put the live values back, also after an evaluation that an exception interrupted."""
        if self._live is not None:
            load_(unwrap_model(strategy.model), self._live)
            self._live = None


class IndependentPlugin(ValuesByTask, LearnsAside, supports_distributed=False):
    """Answer every task with its own dense run, from which grafting would find its region.

    Runs at: before_training_exp, before_eval_exp, after_eval_exp.
    """

    def __init__(self, inputs: StrategyInputs) -> None:
        super().__init__(inputs, phase="train")

    def _learn(self, strategy: Strategy, experience: Any, context: RunContext) -> None:
        self._restore(strategy)
        label, inputs = int(experience.task_label), self._inputs
        task = self._make_task(strategy, experience, seed=inputs.seed)
        started = time.perf_counter()
        dense = fine_tune_task(task, inputs.dense_runs[label], seed=inputs.seed, context=context)
        tuned = dense.tuned | dense.head
        self.values[label] = {name: tensor.cpu() for name, tensor in tuned.items()}
        self.passes[label] = {"dense": dense.passes}
        self.seconds[label] = {"dense": time.perf_counter() - started}


def times_setting() -> Any:
    """Return the setting of a multiple of the steps."""
    meaning = "Steps, as a multiple of those of other strategies, to make rows equal."
    return setting(1.0, meaning, min_value=0.01)


@register_strategy(
    "independent",
    family="upper bound",
    source=f"{GRAFTING_PAPER}, Table 4",
    trains="nothing",
    stored_as="model",
    adds="a whole model",
    unsupported=PICKED_BY_LABEL,
)
class Independent:
    """Give every task a whole model of its own, fine-tuned from the base."""

    times_steps: float = times_setting()

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `IndependentPlugin`."""
        dense = {
            label: replace(schedule, steps=max(1, round(self.times_steps * schedule.steps)))
            for label, schedule in inputs.dense_runs.items()
        }
        plugin = IndependentPlugin(replace(inputs, fine_tuning=dense))
        plugins = inputs.loop_plugins(plugin)
        return Naive(**inputs.template_arguments(), plugins=plugins)

    @staticmethod
    def load_state_(
        strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Take the models of earlier tasks from the cache."""
        find_plugin(strategy, IndependentPlugin).learn_again(strategy, experiences)
