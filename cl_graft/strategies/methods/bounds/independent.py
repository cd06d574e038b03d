"""Independent fine-tuning: every task has a whole model of its own, trained from the base.

It is a bound for methods that learn continually: nothing is forgotten and nothing is transferred,
at the price of one model a task. The dense runs are those from which grafting finds
its regions (Panigrahi et al., 2023, App. C.3, https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.grafts.graft import load_, snapshot
from cl_graft.runtime.tensor_names import parameters_by_name
from cl_graft.strategies import StrategyInputs, find_plugin, register_strategy, setting
from cl_graft.strategies.experience_tasks import ExperienceTasks
from cl_graft.strategies.heads import unwrap_model
from cl_graft.strategies.loop.phase_reports import publish
from cl_graft.strategies.method import PICKED_BY_LABEL
from cl_graft.strategies.methods.grafting.region_loop import GRAFTING_PAPER
from cl_graft.training.dense_run import (
    Measure,
    fine_tune_task,
    ignore_measurement,
    ignore_progress,
)
from cl_graft.training.passes import Passes

__all__ = ["Independent", "IndependentPlugin"]


class IndependentPlugin(SupervisedPlugin, supports_distributed=False):
    """Answer every task with its own densely fine-tuned model; the strategy's loop trains nothing.

    Runs at: before_training_exp, before_eval_exp, after_eval_exp.

    Args:
        inputs: Inputs of the strategy, with the dense run of each task.

    Attributes:
        seconds: Wall time by task label and phase.
        passes: Rows that went through the model, by task label and phase.
    """

    def __init__(self, inputs: StrategyInputs) -> None:
        super().__init__()
        self.seconds: dict[int, dict[str, float]] = {}
        self.passes: dict[int, dict[str, Passes]] = {}
        self._inputs = inputs
        self._base = inputs.identify_base().fingerprint
        self._tasks = ExperienceTasks(inputs.dev, inputs.metrics)
        self._models: dict[int, dict[str, Tensor]] = {}
        self._base_values: dict[str, Tensor] | None = None

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Fine-tune the base on the task, put the base back, and skip the strategy's loop."""
        self._restore(strategy)
        label = int(strategy.experience.task_label)

        def measure(_: str, name: str, step: int, value: float) -> None:
            # The dense run takes the place of the loop of other strategies.
            publish(strategy, self, name, "train", label=label, step=step, value=value)

        self._learn(strategy, strategy.experience, measure=measure)
        strategy.stop_training()

    def before_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Carry the task's own model; a task that was not learned is answered by the base."""
        self._restore(strategy)
        own = self._models.get(int(strategy.experience.task_label))
        if own is None:
            return
        model = unwrap_model(strategy.model)
        parameters = parameters_by_name(model)
        self._base_values = snapshot({name: parameters[name] for name in own})
        load_(model, own)

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Put the base back."""
        self._restore(strategy)

    def learn_again(self, strategy: Any, experiences: Sequence[Any]) -> None:
        """Learn tasks that another process learned; the cache keeps their dense runs."""
        for experience in experiences:
            self._learn(strategy, experience)

    def _learn(
        self, strategy: Any, experience: Any, *, measure: Measure = ignore_measurement
    ) -> None:
        label, inputs = int(experience.task_label), self._inputs
        task = self._tasks.make(
            strategy, experience, label=label, base=self._base, seed=inputs.seed
        )
        started = time.perf_counter()
        dense = fine_tune_task(
            task,
            inputs.dense_runs[label],
            seed=inputs.seed,
            cache=inputs.cache,
            checkpoints=inputs.checkpoints,
            progress=inputs.progress or ignore_progress,
            measure=measure,
        )
        own = dense.tuned | dense.head
        self._models[label] = {name: tensor.cpu() for name, tensor in own.items()}
        self.passes[label] = {"dense": dense.passes}
        self.seconds[label] = {"dense": time.perf_counter() - started}

    def _restore(self, strategy: Any) -> None:
        """Put the base back, also after an evaluation that an exception interrupted."""
        if self._base_values is not None:
            load_(unwrap_model(strategy.model), self._base_values)
            self._base_values = None


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

    times_steps: float = setting(
        1.0, "Steps, as a multiple of those of other strategies, to make rows equal.", least=0.01
    )

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
