"""Progress of an Avalanche strategy on a stream, reported step by step."""

from __future__ import annotations

from typing import Any

from avalanche.core import SupervisedPlugin

from cl_graft.runtime.progress import Progress, Step


class ProgressReporter(SupervisedPlugin, supports_distributed=True):
    """Report the progress of a run: of the task that is learned now, and its steps.

    Runs at: after_training_iteration, before_eval, after_eval_exp.
    """

    def __init__(self, progress: Progress, *, strategy: str, seed: int) -> None:
        super().__init__()
        self.task = ""
        self.steps = 0
        self._progress = progress
        self._strategy = strategy
        self._seed = seed
        self._evaluated = 0

    def phase(self, phase: str, step: int, steps: int) -> None:
        """Report a step of a phase of the strategy's own."""
        self._progress(Step(phase, step, steps, self.task, self._strategy, self._seed))

    def choice(self, phase: str, step: int, steps: int) -> None:
        """Report a step of a dense run of a grid."""
        del phase
        self.phase("choose", step, steps)

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Report a step of the strategy's loop."""
        self.phase("train", strategy.clock.train_exp_iterations + 1, self.steps)

    def before_eval(self, strategy: Any, **kwargs: Any) -> None:
        """Start counting."""
        self._evaluated = 0

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Report a task's evaluation."""
        self._evaluated += 1
        self.phase("evaluate", self._evaluated, len(strategy.current_eval_stream))
