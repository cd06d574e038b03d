"""Independent fine-tuning: every task has a whole model of its own, trained from the base.

Not a way to learn continually but the measure of one: nothing is forgotten and nothing is
transferred, at the price of one model a task. The dense runs are those from which grafting finds
its regions (Panigrahi et al., 2023, App. C.3, https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.grafts.graft import load_, snapshot
from cl_graft.runtime.cache import Cache
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.runtime.tensor_names import parameters_by_name
from cl_graft.strategies.experience_tasks import ExperienceTasks
from cl_graft.strategies.heads import unwrap_model
from cl_graft.strategies.method import PICKED_BY_LABEL
from cl_graft.strategies.methods.grafting.region_loop import GRAFTING_PAPER
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.stored_bytes import find_plugin
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.dense_run import fine_tune_task, silent
from cl_graft.training.passes import Passes
from cl_graft.training.settings import FineTuning

__all__ = ["Independent", "IndependentPlugin"]


class IndependentPlugin(SupervisedPlugin, supports_distributed=False):
    """Answer every task with its own densely fine-tuned model; the strategy's loop trains nothing.

    Runs at: before_training_exp, before_eval_exp, after_eval_exp.

    Args:
        fine_tuning: The dense run of each task, by task label.
        base: Fingerprint of the base model.
        dev: Experiences with the rows for choosing checkpoints, matched by task label.
        metrics: The dev score by task label; ``"accuracy"`` where a task is not named.
        seed: Every random choice is a function of it.
        cache: Answers dense runs that were computed before.
        checkpoints: Where a dense run that was interrupted is taken up.
        progress: Called as (phase, step, steps) during dense fine-tuning.

    Attributes:
        seconds: Wall time by task label and phase.
        passes: Rows that went through the model, by task label and phase.
    """

    def __init__(
        self,
        fine_tuning: Mapping[int, FineTuning],
        *,
        base: str,
        dev: Any = None,
        metrics: Mapping[int, str] | None = None,
        seed: int = 0,
        cache: Cache | None = None,
        checkpoints: Checkpoints | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        super().__init__()
        self.seconds: dict[int, dict[str, float]] = {}
        self.passes: dict[int, dict[str, Passes]] = {}
        self._fine_tuning = dict(fine_tuning)
        self._base = base
        self._tasks = ExperienceTasks(dev, metrics)
        self._seed = seed
        self._cache = cache
        self._checkpoints = checkpoints
        self._progress = progress or silent
        self._models: dict[int, dict[str, Tensor]] = {}
        self._away: dict[str, Tensor] | None = None

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Fine-tune the base on the task, put the base back, and skip the strategy's loop."""
        self._home(strategy)
        self._learn(strategy, strategy.experience)
        strategy.stop_training()

    def before_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Carry the task's own model; a task that was not learned is answered by the base."""
        self._home(strategy)
        own = self._models.get(int(strategy.experience.task_label))
        if own is None:
            return
        model = unwrap_model(strategy.model)
        parameters = parameters_by_name(model)
        self._away = snapshot({name: parameters[name] for name in own})
        load_(model, own)

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Put the base back."""
        self._home(strategy)

    def learn_again(self, strategy: Any, experiences: Sequence[Any]) -> None:
        """Learn tasks that another process learned; the cache keeps their dense runs."""
        for experience in experiences:
            self._learn(strategy, experience)

    def _learn(self, strategy: Any, experience: Any) -> None:
        label = int(experience.task_label)
        base, seed = self._base, self._seed
        task = self._tasks.make(strategy, experience, label=label, base=base, seed=seed)
        started = time.perf_counter()
        dense = fine_tune_task(
            task,
            self._fine_tuning[label],
            seed=self._seed,
            cache=self._cache,
            checkpoints=self._checkpoints,
            progress=self._progress,
        )
        own = dense.tuned | dense.head
        self._models[label] = {name: tensor.cpu() for name, tensor in own.items()}
        self.passes[label] = {"dense": dense.passes}
        self.seconds[label] = {"dense": time.perf_counter() - started}

    def _home(self, strategy: Any) -> None:
        """Put the base back, also after an evaluation that an exception interrupted."""
        if self._away is not None:
            load_(unwrap_model(strategy.model), self._away)
            self._away = None


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

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `IndependentPlugin`."""
        plugin = IndependentPlugin(
            inputs.dense_runs,
            base=inputs.identify_base().fingerprint,
            dev=inputs.dev,
            metrics=inputs.metrics,
            seed=inputs.seed,
            cache=inputs.cache,
            checkpoints=inputs.checkpoints,
            progress=inputs.progress,
        )
        return Naive(**inputs.template_arguments(), plugins=inputs.loop_plugins(plugin))

    @staticmethod
    def load_state_(
        strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Take the models of earlier tasks from the cache."""
        find_plugin(strategy, IndependentPlugin).learn_again(strategy, experiences)
