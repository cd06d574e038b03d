"""A run in progress: one strategy learns the tasks of a stream and is evaluated after each."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.grafts.bank import GraftBank
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.resume import (
    RUN_KEY,
    RunCheckpoint,
    checkpoint_values,
    resume_strategy_,
)
from cl_graft.lab.experiments.run_record import PassCounter, count_task_bytes, make_result
from cl_graft.lab.experiments.run_setup import Setup, evaluates_unseen_tasks
from cl_graft.lab.experiments.run_writers import (
    WRITERS,
    Outcome,
    TrainingCurves,
    collect_other_scores,
)
from cl_graft.lab.results.run_results import RunResult
from cl_graft.runtime.checkpoints import NoCheckpoints, State
from cl_graft.runtime.error_context import in_phase, in_task
from cl_graft.runtime.progress import Progress
from cl_graft.runtime.run_context import RunContext
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.progress_reporter import ProgressReporter
from cl_graft.settings.schedule import choose, input_settings, list_schedules
from cl_graft.storage import append_entry, load_bank
from cl_graft.storage.bank_folder import holds_entry
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.checkpoint_files import FileCheckpoints
from cl_graft.strategies import KeepBest
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.loop.phase_reports import TrainingReports
from cl_graft.strategies.method import Method
from cl_graft.strategies.registry import build_strategy, make_loop_schedules
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger
from cl_graft.training.dense_run import count_dense_passes
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.passes import Passes, total_passes

_PHASE_NAMES = {"warmup": "warm-up", "ranking": "localize"}
"""Names of phases in results, by their names in cache keys; a ranking is most of localization."""


class StreamRun:
    """A run in progress: its measurements so far, and where they are written."""

    def __init__(
        self,
        config: ExperimentConfig,
        method: Method,
        setup: Setup,
        folder: Path,
        cache: DirectoryCache,
        curves: OncePerStepTensorboardLogger,
        progress: Progress,
        checkpoints: FileCheckpoints,
        resumed: RunCheckpoint | None,
    ) -> None:
        self.config, self.method, self.setup, self.folder = config, method, setup, folder
        self.cache, self.curves, self.checkpoints = cache, curves, checkpoints
        self.resumed = resumed
        self.saved = resumed.values if resumed is not None else None
        self.record = setup.record if resumed is None else setup.record.resume(resumed.measured)
        self.reporter = ProgressReporter(progress, strategy=method.name, seed=setup.seed)
        self.passes = PassCounter(setup.model.task_model)
        self.bank = self._first_entries()
        self.unseen_tasks = evaluates_unseen_tasks(config, method)
        self.scores = StreamScores(
            {label: task.metric for label, task in setup.metadata.items()},
            zero_shot=self.unseen_tasks == "always",
        )

    def learn_stream(self) -> RunResult:
        """Learn one task after the other, and evaluate all of them after each."""
        inputs = self._inputs(self._schedules())
        schedules = make_loop_schedules(self.method, inputs, self.record.settings)
        strategy = build_strategy(self.method.name, inputs, **self.record.settings)
        train, test = (self.setup.stream.benchmark.streams[name] for name in ("train", "test"))
        label = self._resume_(strategy, train, test)
        while True:
            asked = test if self.unseen_tasks == "always" else test[: label + 1]
            self._learn(strategy, train[label], asked, label=label, schedule=schedules[label])
            label += 1
            result = self._write(learned=label)
            if result.complete:
                return result
            self._save(strategy, learned=label)

    def _learn(
        self,
        strategy: SupervisedTemplate,
        experience: Any,
        asked: Any,
        *,
        label: int,
        schedule: FineTuning,
    ) -> None:
        """Learn a task, and evaluate all tasks that can be answered."""
        record = self.record
        name, saved = record.tasks[label], Counter(self.cache.saved)
        self.reporter.task, self.reporter.steps = name, schedule.steps
        held = self.method.storage_bytes(strategy)
        self.passes.take()
        started = time.perf_counter()
        phase = "region training" if self.method.trains == "region" else "training"
        with in_task(name), in_phase(phase):
            strategy.train(experience, eval_streams=[])
        trained = time.perf_counter() - started
        counted = self.passes.take()
        started = time.perf_counter()
        with in_task(name), in_phase("evaluation"):
            strategy.eval(asked)
        answered = self.passes.take()
        rows = sum(len(other.dataset) for other in asked)
        record.passes_per_row = (answered.forward + answered.forward_backward) / rows
        seconds = record.seconds.setdefault(name, {})
        seconds |= _phases(strategy, "seconds", label) or {"train": trained}
        seconds["evaluate"] = time.perf_counter() - started
        if self.method.is_resumable:  # a resumed loop has sent only some of its rows from here
            evaluated = sum(p.rows for p in strategy.plugins if isinstance(p, KeepBest))
            counted = Passes(schedule.steps * schedule.batch_size, evaluated)
        passes = record.passes.setdefault(name, {})
        passes |= _phases(strategy, "passes", label) or {"train": counted}
        kept = record.seconds_saved.setdefault(name, {})
        for phase, spared in (self.cache.saved - saved).items():
            kept[_PHASE_NAMES.get(phase, phase)] = spared
        grown = self.method.storage_bytes(strategy) - held
        bank = self.folder / folders.BANK
        record.bytes[name] = grown + count_task_bytes(
            self.method, strategy, label, task=name, bank=bank
        )

    def _resume_(self, strategy: SupervisedTemplate, train: Any, test: Any) -> int:
        """Resume the strategy where the run was; return how many tasks are learned."""
        if self.resumed is None or not self.method.is_resumable:
            if self.unseen_tasks != "never":
                strategy.eval(test)
            self._save(strategy, learned=0)
            return 0
        asked = test if self.unseen_tasks != "never" else []
        resume_strategy_(self.resumed, strategy, self.method, self.scores, train=train, asked=asked)
        self.resumed = replace(self.resumed, tensors={})
        return self.resumed.learned

    def _save(self, strategy: SupervisedTemplate, *, learned: int) -> None:
        """Save a checkpoint of the run: always if it is small, else when it is due."""
        if not self.method.is_resumable:
            return

        log = self.curves.position()
        values = checkpoint_values(strategy, self.record, self.scores, learned=learned, log=log)
        self.saved = values

        def state() -> State:
            return self.method.state(strategy) if learned else {}, values

        if learned and self.method.trains == "everything":
            self.checkpoints.offer(RUN_KEY, state, last=True)
        else:
            if self.checkpoints.keep(RUN_KEY, state):
                self.checkpoints.clear(but=RUN_KEY)
            self.checkpoints.poll()

    def _first_entries(self) -> GraftBank | None:
        """Return the entries of the tasks that are learned; the bank may hold one more."""
        if self.resumed is None or not self.resumed.learned or self.method.stored_as != "entry":
            return None
        bank = load_bank(self.folder / folders.BANK, expect=self.setup.identity.fingerprint)
        return replace(bank, entries=bank.entries[: self.resumed.learned])

    def _schedules(self) -> dict[int, FineTuning]:
        """Return the dense schedule of every task, chosen on dev where there is a grid."""
        chosen: dict[int, FineTuning] = {}
        setup = self.setup
        for label, encoded in enumerate(setup.stream.tasks):
            grid = list_schedules(self.config, encoded.task)
            name = encoded.task.name
            chosen[label] = grid[0]
            if len(grid) > 1:
                self.reporter.task = name
                saved, started = Counter(self.cache.saved), time.perf_counter()
                base = setup.identity.fingerprint
                task = make_stream_task(
                    setup.model, setup.stream, label, base=base, seed=setup.seed
                )
                with in_task(name):
                    context = RunContext(self.cache, self.checkpoints, self.reporter.choice)
                    chosen[label] = choose(task, grid, seed=setup.seed, context=context)
                record = self.record
                record.seconds[name] = {"choose": time.perf_counter() - started}
                spared = (self.cache.saved - saved).get("dense", 0.0)
                record.seconds_saved[name] = {"choose": spared} if spared else {}
                # The chosen one is counted where it is used.
                others = (other for other in grid if other != chosen[label])
                passes = total_passes(count_dense_passes(task, other) for other in others)
                record.passes[name] = {"choose": passes}
            self.record.schedules[name] = {
                "steps": chosen[label].steps,
                "batch_size": chosen[label].batch_size,
                "lr": chosen[label].lr,
            }
        return chosen

    def _inputs(self, dense: dict[int, FineTuning]) -> StrategyInputs:
        setup, config = self.setup, self.config
        return StrategyInputs(
            model=setup.model,
            stream=setup.stream,
            metadata=setup.metadata,
            identity=setup.identity,
            **input_settings(config, dense, seed=setup.seed, builds_on=setup.builds_on),
            device=setup.device,
            evaluator=EvaluationPlugin(
                self.scores,
                TrainingReports(),
                loggers=[TrainingCurves(self.curves, self.record.tasks)],
                collect_all=False,  # Avalanche would keep every value ever logged.
            ),
            plugins=(self.reporter,),
            cache=self.cache,
            bank=self.bank,
            checkpoints=self.checkpoints
            if self.method.is_resumable
            else NoCheckpoints(self.checkpoints.poll),
            # Keys of stored files: "standing" is the run's state before the loop.
            extra_state=lambda: {"log": self.curves.position(), "standing": self.saved},
            on_entry=self._keep_entry,
            progress=self.reporter.phase,
        )

    def _keep_entry(self, bank: GraftBank) -> None:
        folder = self.folder / folders.BANK
        # A process that was killed may have kept this very entry.
        if not holds_entry(bank, folder):
            append_entry(bank, folder)
        self.bank = bank

    def _write(self, *, learned: int) -> RunResult:
        tasks = self.setup.stream.tasks
        result = make_result(
            self.record,
            self.scores,
            self.bank,
            learned=learned,
            # Over all rows of all tasks, and read at the end alone.
            other_scores=collect_other_scores(tasks, self.scores) if learned == len(tasks) else {},
        )
        outcome = Outcome(result, tasks, self.scores, self.curves, self.folder)
        for write in WRITERS:
            write(outcome)
        return result


def _phases(strategy: SupervisedTemplate, measure: str, label: int) -> dict[str, Any]:
    """Return seconds or passes by phase as a plugin of the strategy measured them, if one did."""
    found = (getattr(plugin, measure, None) for plugin in strategy.plugins)
    return next((dict(own[label]) for own in found if isinstance(own, dict) and label in own), {})
