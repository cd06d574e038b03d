"""KeepBest: the best of a few evaluations on dev, as many for every method that is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from torch import Tensor

from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.runtime.checkpoints import State
from cl_graft.strategies.experience_tasks import ExperienceTasks
from cl_graft.strategies.loop.phase_reports import find_first_label, publish
from cl_graft.strategies.strategy import Strategy
from cl_graft.training.fine_tuning import beats, evaluated_steps
from cl_graft.training.fine_tuning_settings import FineTuning


class KeepBest(SupervisedPlugin, supports_distributed=True):
    """Score dev a few times while an experience trains, and restore the best values at its end.

    Of equal scores the later one is kept, as in a dense run. The plugin holds one copy of the
    parameters that the optimiser trains and of the model's floating-point buffers; a strategy that
    holds more of a step, such as prototypes, cannot be put back to it. Give it before plugins that
    use the trained values when the experience ends. Where several tasks train together, the step
    with the highest mean of their dev scores is kept. Loggers get ``DevScore/train_phase/...`` of a
    task.

    Runs at: before_train_dataset_adaptation, before_training_exp, before_training_iteration,
    after_training_epoch, after_training_exp.

    Args:
        steps: Steps of an experience.
        evaluations: Number of evaluations on dev, evenly spaced; below 2 the last step is kept.
        dev: Experiences with the dev rows, matched by task label; None sets 5 % of an experience's
            training rows aside.
        metrics: Names of the dev scores by task label; a missing task has ``"accuracy"``.
        seed: Seed of the draw of rows that are set aside.

    Attributes:
        labels: Labels of the tasks whose dev rows are scored in the current experience.
        first: Number of steps that are not scored; evaluations are spread over the steps after.
        rows: Number of rows that were scored in the latest experience.
        chosen: The kept step, from 1, and its dev score, by task label.
    """

    def __init__(
        self,
        steps: int,
        evaluations: int = FineTuning.evaluations,
        *,
        dev: Sequence[Any] | None = None,
        metrics: Mapping[int, str] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.evaluations = evaluations
        self.labels: list[int] = []
        self.first = 0
        self.rows = 0
        self.chosen: dict[int, tuple[int, float]] = {}
        self._tasks = ExperienceTasks(dev, metrics)
        self._seed = seed
        self._best: dict[str, Tensor] = {}
        self._best_score: tuple[int, float] | None = None
        self._scored = 0
        self._over = False

    def before_train_dataset_adaptation(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set dev rows aside, before the strategy makes its loader."""
        if self.evaluations > 1:
            self._tasks.set_aside_(strategy, label=find_first_label(strategy), seed=self._seed)

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Forget what was kept of earlier experiences."""
        self.labels, self.first, self.rows = [find_first_label(strategy)], 0, 0
        self._best, self._best_score, self._scored, self._over = {}, None, 0, False

    def before_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Score the values after the previous step, which other plugins have finished by now."""
        self._score(strategy, last=False)

    def after_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """Restore the best values, if this was the last epoch."""
        if strategy._stop_training or strategy.clock.train_exp_iterations >= self.steps:
            self._end(strategy)

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Restore the best values, if the training was cut short, and record the choice."""
        self._end(strategy)
        if self._best_score is not None:
            self.chosen[find_first_label(strategy)] = self._best_score

    def loop_state(self) -> State:
        """Return what is kept so far."""
        values = {"rows": self.rows, "scored": self._scored, "found": self._best_score}
        return self._best, {**values, "over": self._over}

    def load_loop_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore what another loop kept."""
        self._best, self.rows, self._scored = dict(tensors), values["rows"], values["scored"]
        self._best_score = None if values["found"] is None else tuple(values["found"])
        self._over = values["over"]

    def _score(self, strategy: Strategy, *, last: bool) -> None:
        """Score dev if the last step is one of those to evaluate, and keep the best values."""
        step = strategy.clock.train_exp_iterations
        asked = {
            self.first + later
            for later in evaluated_steps(max(0, self.steps - self.first), self.evaluations)
        }
        if len(asked) < 2 or step <= max(self._scored, self.first):
            return
        if not (last or step in asked):
            return
        with preserve_modes(strategy.model):
            strategy.model.eval()
            scores = [self._tasks.dev_score(strategy, label) for label in self.labels]
        score = sum(scores) / len(scores)
        if len(scores) == 1:
            publish(
                strategy, self, "DevScore", "train", label=self.labels[0], step=step, value=score
            )
        self._scored = step
        self.rows += sum(len(self._tasks.dev_rows(strategy, label)) for label in self.labels)
        if self._best_score is not None and not beats(score, self._best_score[1]):
            return
        self._best_score = step, score
        now = dict(_values(strategy))
        if self._best:
            copy_(self._best, now)  # one copy is held, not two
        else:
            self._best = snapshot(now)

    def _end(self, strategy: Strategy) -> None:
        """Put the best values in place, once."""
        if self._over:
            return
        self._score(strategy, last=True)
        self._over = True
        copy_(dict(_values(strategy)), self._best)
        self._best = {}


def _values(strategy: Strategy) -> Iterator[tuple[str, Tensor]]:
    """Yield what training changes in a model: what the optimiser trains, and running statistics."""
    held = {id(p): p for group in strategy.optimizer.param_groups for p in group["params"]}
    trained = [p for p in held.values() if p.requires_grad]
    for number, parameter in enumerate(trained):
        yield f"parameter{number}", parameter.detach()
    for name, buffer in strategy.model.named_buffers():
        if buffer.is_floating_point():
            yield f"buffer {name}", buffer
