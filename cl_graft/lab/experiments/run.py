"""A run: one strategy with one seed on one stream, evaluated after every task.

Everything is written as soon as it is known. A run that failed or was killed resumes, and ends on
the bits of a run that was never interrupted.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.data import TextTask
from cl_graft.errors import InputError
from cl_graft.grafts.bank import GraftBank
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.run_measurements import (
    WRITERS,
    Outcome,
    PassCounter,
    RunMeasurements,
    TrainingCurves,
    collect_other_scores,
    count_task_bytes,
    draw_config,
    make_result,
)
from cl_graft.lab.experiments.run_setup import Setup, evaluates_unseen_tasks, set_up
from cl_graft.lab.results.run_results import RunResult, command
from cl_graft.models.answering_config import describe_other_settings
from cl_graft.runtime.checkpoints import NoCheckpoints, State
from cl_graft.runtime.devices import explain_slow_precision, pick_device
from cl_graft.runtime.error_context import in_phase, in_task
from cl_graft.runtime.progress import Progress, Step, silent
from cl_graft.runtime.run_context import RunContext
from cl_graft.runtime.seeding import lock_generators
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig, make_config
from cl_graft.settings.data_report import cut_note
from cl_graft.settings.run_files import BESIDE_SETTINGS
from cl_graft.settings.schedule_of_task import choose, input_settings, list_schedules
from cl_graft.settings.tasks import load_tasks, refuse_other_data
from cl_graft.storage import append_entry, explain_write_errors, load_bank, only_writer
from cl_graft.storage.bank_folder import holds_entry
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.checkpoint_files import FileCheckpoints
from cl_graft.strategies import KeepBest
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.loop.phase_reports import TrainingReports
from cl_graft.strategies.loop.progress_reporter import ProgressReporter
from cl_graft.strategies.loop.resuming import LOOP, make_loop_key, read_clock, set_clock_
from cl_graft.strategies.method import Method
from cl_graft.strategies.registry import build_strategy, find_strategy, make_loop_schedules
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger, cut_log
from cl_graft.training.dense_run import count_dense_passes
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import Passes, total_passes

run_folder = folders.run_folder


@lock_generators()
def run(
    config: ExperimentConfig | Mapping[str, Any] | Path | str,
    *,
    strategy: str | None = None,
    seed: int | None = None,
    out: Path | str,
    progress: Progress = silent,
    cache: DirectoryCache | None = None,
    tasks: Sequence[TextTask] | None = None,
    started_by: str | None = None,
    stop: Stop | None = None,
    tuning: Mapping[str, Any] | None = None,
) -> RunResult:
    """Run a strategy on the stream of a config, into ``OUT/<strategy>/seed<k>/``.

    A run of the same config that is in the folder already is resumed, or read if it is finished.
    Runs in several threads of a process wait for each other, as they share torch's generators.

    Args:
        config: The settings: a config, settings by part, or the path of a YAML file.
        strategy: The strategy's name; None means the first of the config.
        seed: Every random choice is a function of it; None means the first of the config.
        out: Folder OUT.
        progress: Called after every step of every phase.
        cache: Keeps dense runs and rankings; None means ``OUT/cache``.
        tasks: The tasks of the config, if they are loaded already.
        started_by: Command that began the run, for the results; None means this process's.
        stop: Asked after every step whether to stop.
        tuning: How values of the config were tuned, for the results.

    Raises:
        InputError: If the config asks for what a comparison does, the folder holds a run with
            another config or other data or something else, another process runs there, or model or
            data cannot be used; nothing is computed then.
        CannotWrite: If the disk is full or read-only; what was saved before is whole.
        OutOfMemory: If a phase needs more memory than there is; the phase and task are named.
        DivergedError: If a loss, a score or a weight is NaN or infinite.
        Stopped: If `stop` asked for it.
    """
    config = make_config(config)
    asked = config.comparison
    strategy = asked.strategies[0] if strategy is None else strategy
    seed = asked.seeds[0] if seed is None else seed
    if type(seed) is not int or seed < 0:
        raise InputError(f"a seed must be a whole number of at least 0, got {seed!r}")
    if asked.tune or asked.bytes_per_task is not None or asked.orders != 1 or asked.sweep:
        raise InputError(
            "tune, bytes_per_task, orders and sweep are of a comparison, and this is one run with "
            "its settings as they are: cl-graft compare takes them"
        )
    method = find_strategy(strategy)
    # Settings that a strategy fixes follow from its name, so they are not written down.
    fixed = config.with_values(method.fixed_config) if method.fixed_config else config
    folder, stop = run_folder(out, strategy, seed), stop or Stop()
    explained = explain_write_errors(folder, denied=False)  # also of writers such as TensorBoard's
    with only_writer(folder), folders.add_resume_hint(folder, config), explained:
        if (done := folders.find_finished(folder, config)) is not None:
            now = load_tasks(config.stream, seed=seed) if tasks is None else tasks
            refuse_other_data(done, now)
            folders.delete_leftovers(folder)
            folders.finish(folder)
            progress(Step("reused", 1, 1, "", strategy, seed))
            return done
        folders.refuse_links(folder)
        with folders.discard_empty_run(folder):
            device = pick_device(config.model.device)
            tasks = load_tasks(config.stream, seed=seed) if tasks is None else tasks
            with in_phase("loading"):
                setup = set_up(fixed, method, tasks, seed=seed, device=device)
            begun = folders.read_config_file(folder) or {}
            record = setup.record
            record.config = config.shared_values()
            record.command = begun.get("command") or started_by or command()
            record.processes = begun.get("processes", 0) + 1
            record.tuning = begun.get("tuning") or dict(tuning or {})
            checkpoints = FileCheckpoints(
                folder / folders.CHECKPOINTS,
                seconds=config.output.checkpoint_seconds,
                steps=config.output.checkpoint_steps,
                stop=stop,
            )
            resumed = find_checkpoint(folder, method, record, checkpoints)
            origin = {name: getattr(record, name) for name in BESIDE_SETTINGS}
            folders.write_config(folder, {**origin, **config.shared_values()})
            slow = explain_slow_precision(config.model.precision, device)
            if note := "; ".join(filter(None, [cut_note(record.data), slow])):
                progress(Step("note", 1, 1, "", method.name, seed, note))
            curves = OncePerStepTensorboardLogger(
                folders.curves_folder(folder), resume=resumed is not None
            )
            cache = DirectoryCache(Path(out) / folders.CACHE) if cache is None else cache
            try:
                if resumed is None:
                    draw_config(record, curves)
                learning = StreamRun(
                    fixed, method, setup, folder, cache, curves, progress, checkpoints, resumed
                )
                del resumed  # maybe as large as the model
                with stop.saving():
                    result = learning.learn_stream()
            finally:
                curves.writer.close()
            folders.finish(folder)
            return result


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
        saved_seconds = record.seconds_saved.setdefault(name, {})
        for phase, spared in (self.cache.saved - saved).items():
            # A ranking is most of localization.
            saved_seconds["localize" if phase == "ranking" else phase] = spared
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

        # These do not change while the run continues.
        self.saved = values = {
            "learned": learned,
            "measured": deepcopy(self.record.collect()),
            "scores": self.scores.state(),
            "clock": read_clock(strategy),
            "log": self.curves.position(),
            "origin": _origin(self.record),
        }

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
    measured = (getattr(plugin, measure, None) for plugin in strategy.plugins)
    return next((dict(m[label]) for m in measured if isinstance(m, dict) and label in m), {})


RUN_KEY = "run"
"""Key of the checkpoint among those of a run."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RunCheckpoint:
    """The state of a run between two tasks, of which `learned` are measured.

    Its origin are data, model, versions and machine, which decide the bits. Tensors are the state
    of the strategy; there are none where the loop's own state holds it.
    """

    learned: int
    measured: Mapping[str, Any]
    scores: Mapping[str, Any]
    clock: Mapping[str, int]
    log: Mapping[str, int]
    origin: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, state: State) -> RunCheckpoint:
        """Return the checkpoint of a state; an InputError says that another version wrote it."""
        tensors, values = state
        if set(values) | {"tensors"} != {known.name for known in fields(cls)}:
            raise InputError(
                "the checkpoints of this run were written by another version of cl_graft; go on "
                "with that one, or choose another output folder"
            )
        return cls(**values, tensors=tensors)

    @property
    def values(self) -> dict[str, Any]:
        """All but the tensors, as JSON can hold it."""
        return {known.name: getattr(self, known.name) for known in fields(self)[:-1]}

    def check(self, record: RunMeasurements, *, folder: object) -> None:
        """Raise an InputError if data or model are not those with which the run began.

        Other versions or another machine are warned of: the bits may differ then.
        """
        now = _origin(record)
        changed = [what for what in ("data", "model") if self.origin[what] != now[what]]
        if other := describe_other_settings(self.origin.get("config"), now["config"]):
            changed.append(f"the model's config ({other})")
        if changed:
            raise InputError(
                f"{folder}: {' and '.join(changed)} changed since the run began, so it cannot go "
                "on; choose another output folder"
            )
        other = [
            f"{name} was {then.get(name)}, is {here.get(name)}"
            for then, here in ((self.origin[what], now[what]) for what in ("versions", "machine"))
            for name in sorted({*then, *here})
            if then.get(name) != here.get(name)
        ]
        if other:
            logger.warning(
                "the run goes on under other conditions, so its bits may differ from those of a "
                "run that was never interrupted: %s",
                "; ".join(other),
            )


def find_checkpoint(
    folder: Path, method: Method, record: RunMeasurements, checkpoints: FileCheckpoints
) -> RunCheckpoint | None:
    """Return the checkpoint from which a run resumes, and cut its log back to there.

    None if the run has to begin: its folder is emptied for that. An InputError says that data or
    model changed, or that the folder holds files of others.
    """
    folders.delete_leftovers(folder)
    candidates: list[RunCheckpoint] = []
    if method.is_resumable:
        if (state := checkpoints.load(RUN_KEY)) is not None:
            candidates.append(RunCheckpoint.of(state))
        if (loop := checkpoints.latest(LOOP)) is not None:
            # A loop stores the run's state before it, under this key of stored files. Its own state
            # holds that of the strategy.
            candidates.append(RunCheckpoint.of(({}, loop[1]["standing"])))
    if not candidates:
        # A dense run does not depend on the rest of the run.
        folders.clear_unfinished(folder, keep=[folders.CONFIG, folders.CHECKPOINTS])
        checkpoints.clear(but="dense")
        return None
    latest = max(candidates, key=lambda checkpoint: checkpoint.learned)
    latest.check(record, folder=folder)
    later = checkpoints.load(make_loop_key(latest.learned))
    cut_log(folders.curves_folder(folder), latest.log if later is None else later[1]["log"])
    return latest


def resume_strategy_(
    checkpoint: RunCheckpoint,
    strategy: SupervisedTemplate,
    method: Method,
    scores: StreamScores,
    *,
    train: Sequence[Any],
    asked: Sequence[Any],
) -> None:
    """Bring a new strategy, on a model at its base, and the scores to the state of a checkpoint.

    Given are all training experiences, and the test experiences that the model answered before any
    training.
    """
    # Heads are made and put into the optimiser in the order in which the strategy met them.
    strategy.model.train()
    for experience in asked:
        strategy.experience = experience
        strategy.model_adaptation()
    for experience in train[: checkpoint.learned]:
        strategy.experience = experience
        strategy.check_model_and_optimizer()
    strategy.experience = None
    if checkpoint.learned:
        method.load_state_(strategy, train[: checkpoint.learned], checkpoint.tensors)
    set_clock_(strategy, checkpoint.clock)
    scores.load_state_(checkpoint.scores)


def _origin(record: RunMeasurements) -> dict[str, Any]:
    return {
        "data": record.data_fingerprints,
        "model": record.model["fingerprint"],
        "config": record.model["config"],
        "versions": record.versions,
        "machine": record.machine,
    }
