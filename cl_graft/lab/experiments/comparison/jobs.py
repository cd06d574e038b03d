"""The jobs of a comparison: what is done and left, and the engine that does them one by one."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from cl_graft.data import TextTask
from cl_graft.errors import InputError
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.matched_bytes import resize_strategy, sizes_within
from cl_graft.lab.experiments.comparison.sweep import SingleComparison
from cl_graft.lab.experiments.comparison.tuning import Tuning, stored_tuning, tune, with_values
from cl_graft.lab.experiments.run import run
from cl_graft.lab.experiments.run_setup import check_strategies
from cl_graft.lab.reporting.summary_files import write_summary
from cl_graft.lab.results.comparison import (
    Budget,
    Comparison,
    ComparisonSummary,
    Failure,
    Size,
    summarize,
)
from cl_graft.lab.results.run_results import RunResult
from cl_graft.models import Loaded
from cl_graft.models.config_settings import describe_other_settings
from cl_graft.runtime.progress import Progress, rename_steps, silent
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.bank_metadata import BaseHashes, base_hashes, load_base_model
from cl_graft.settings.tasks import check_tasks, load_tasks, refuse_other_data
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies.registry import find_strategy

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A run of a comparison, or the tuning, without a seed, that the runs of a strategy wait for.

    The config is that before tuning. Several comparisons may share the folder of a cache.
    """

    part: SingleComparison
    strategy: str
    seed: int | None
    config: ExperimentConfig
    out: Path
    started_by: str
    cache: Path

    @property
    def name(self) -> str:
        """Name of the job, such as ``"lora, seed 0"`` or ``"lora, tuning"``."""
        return f"{self.title}, tuning" if self.seed is None else f"{self.title}, seed {self.seed}"

    @property
    def title(self) -> str:
        """Name of the strategy with the label of its comparison, for messages."""
        return self.part.name_strategy(self.strategy)

    @property
    def strategy_key(self) -> tuple[Path, str]:
        """Comparison and strategy, which have one tuning."""
        return self.out, self.strategy

    @property
    def folder(self) -> Path:
        """Folder that only this job writes to."""
        if self.seed is None:
            return self.out / folders.TUNING / self.strategy
        return folders.run_folder(self.out, self.strategy, self.seed)


@dataclass(frozen=True)
class Failed:
    """The outcome of a job that failed, with kind and sentence, as ``"DivergedError: …"``."""

    error: str


Outcome = RunResult | Tuning | Failed


class Engine(Protocol):
    """Does jobs, tunings before the runs that wait for them."""

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do jobs in their order, and yield each with its outcome as soon as it is known.

        Raises:
            Stopped: If `stop` asked for it; what is under way is saved.
        """
        ...


@dataclass(frozen=True)
class SequentialEngine:
    """The engine that does one job after another in this process, with one cache.

    Loaded tasks are by folder of the comparison and data seed.
    """

    cache: DirectoryCache
    tasks: Mapping[tuple[Path, int], Sequence[TextTask]]

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do the jobs; see `Engine`."""
        failed_tunings: dict[tuple[Path, str], Failed] = {}
        for job in jobs:
            outcome: Outcome | None = failed_tunings.get(job.strategy_key)
            if outcome is None:
                tasks = None
                if job.seed is not None:
                    tasks = self.tasks[job.out, job.config.stream.sample_seed(job.seed)]
                outcome = attempt(job, progress=progress, stop=stop, cache=self.cache, tasks=tasks)
            if isinstance(outcome, Failed) and job.seed is None:
                failed_tunings[job.strategy_key] = outcome
            yield job, outcome
            stop.check()


def attempt(
    job: Job,
    *,
    progress: Progress = silent,
    stop: Stop | None = None,
    cache: DirectoryCache | None = None,
    tasks: Sequence[TextTask] | None = None,
) -> Outcome:
    """Do a job here and now, or resume an earlier attempt at it; a failure is an outcome too.

    Without a cache, that of the job is opened.

    Raises:
        Stopped: If `stop` asked for it.
    """
    try:
        cache = DirectoryCache(job.cache) if cache is None else cache
        progress = rename_steps(progress, job.part.name_strategy)
        choice = tune(
            job.config,
            job.strategy,
            out=job.out,
            cache=cache,
            progress=progress,
            stop=stop,
            started_by=job.started_by,
        )
        if job.seed is None:
            return choice
        return run(
            with_values(job.config, find_strategy(job.strategy), choice.chosen),
            strategy=job.strategy,
            seed=job.seed,
            out=job.out,
            progress=progress,
            cache=cache,
            tasks=tasks,
            started_by=job.started_by,
            stop=stop,
            tuning=asdict(choice) if choice.chosen else None,
        )
    except Exception as error:
        logger.error("%s failed", job.name, exc_info=True)
        return Failed(f"{type(error).__name__}: {error}")


@dataclass
class ComparisonRuns:
    """The runs of a comparison, every strategy with every seed: done, failed, or left as jobs.

    Tasks are by data seed. Without jobs there is no base.
    """

    part: SingleComparison
    out: Path
    started_by: str
    tasks: Mapping[int, Sequence[TextTask]]
    budget: Budget | None
    jobs: list[Job]
    done: dict[tuple[str, int], RunResult]
    base: BaseHashes | None = None
    failed: list[Failure] = field(default_factory=list)

    def take(self, job: Job, outcome: Outcome) -> None:
        """Add the outcome of a job, and summarize the finished runs."""
        if job.seed is None:
            return  # if it failed, so do the runs that wait for it
        if isinstance(outcome, RunResult):
            self.done[job.strategy, job.seed] = outcome
        elif isinstance(outcome, Failed):
            self.failed.append(Failure(job.strategy, job.seed, outcome.error))
        self.sum_up()

    def sum_up(self) -> Comparison:
        """Write the summaries of the finished runs."""
        results, config = self.results, self.part.config
        summary: ComparisonSummary | None = None
        if results:
            summary = summarize(
                results,
                self.failed,
                config=config.values(),
                started_by=self.started_by,
                budget=self.budget,
            )
            write_summary(summary, self.out)
        return Comparison(self.out, tuple(results), tuple(self.failed), summary)

    @property
    def results(self) -> list[RunResult]:
        """The finished runs, in the order of the config."""
        config = self.part.config
        runs = itertools.product(config.comparison.strategies, config.comparison.seeds)
        return [self.done[run] for run in runs if run in self.done]


def find_runs_to_do(
    part: SingleComparison, out: Path, *, cache: Path, started_by: str
) -> ComparisonRuns:
    """Find the finished runs of a comparison, and the jobs that are left.

    Raises:
        InputError: If the folder holds a comparison with another config, or model or data cannot
            be used.
    """
    config = part.config
    folders.check_out(out, config)
    seeds = {config.stream.sample_seed(seed): seed for seed in config.comparison.seeds}
    # For every data seed at once: errors in the data are raised now.
    tasks = {data_seed: load_tasks(config.stream, seed=seed) for data_seed, seed in seeds.items()}

    @functools.cache
    def base() -> Loaded:
        """Load the base model, for strategies that can all run."""
        check_strategies(config.comparison.strategies, config, next(iter(tasks.values())))
        return load_base_model(config.model)

    budget: Budget | None = None
    if (limit := config.comparison.bytes_per_task) is not None:
        sizes, unmet = sizes_within(limit, config, base(), next(iter(tasks.values())))
        budget = Budget(limit, sizes, unmet)
        for name, reason in unmet.items():
            logger.warning("%s is left out at %s bytes a task: %s", name, f"{limit:,}", reason)
    own = {
        name: resize_strategy(config, name, budget.sizes[name] if budget else Size())
        for name in config.comparison.strategies
        if not budget or name in budget.sizes
    }
    tuned = {name: stored_tuning(settings, name, out=out) for name, settings in own.items()}
    done: dict[tuple[str, int], RunResult] = {}
    jobs: list[Job] = []
    for seed, (strategy, settings) in itertools.product(config.comparison.seeds, own.items()):
        job = Job(part, strategy, seed, settings, out, started_by, cache)
        choice = tuned[strategy]
        if choice is None:
            to_choose = replace(job, seed=None)
            jobs += [job] if to_choose in jobs else [to_choose, job]
            continue
        chosen = with_values(settings, find_strategy(strategy), choice.chosen)
        if result := folders.find_finished(job.folder, chosen):
            refuse_other_data(result, tasks[config.stream.sample_seed(seed)])
            done[strategy, seed] = result
        else:
            jobs.append(job)
    if jobs:
        for stream in tasks.values():
            check_tasks(stream, base(), config.stream)
    hashes = base_hashes(base()) if jobs else None
    return ComparisonRuns(part, out, started_by, tasks, budget, jobs, done, hashes)


def refuse_another_base(comparisons: Sequence[ComparisonRuns]) -> None:
    """Raise an InputError if the checkpoint changed since a finished run of the same folder."""
    for new, old in itertools.product(comparisons, repeat=2):
        if new.base is None or new.part.config.model != old.part.config.model:
            continue
        for result in old.done.values():
            other = describe_other_settings(result.model.get("config"), new.base.config)
            if result.model["fingerprint"] != new.base.fingerprint:
                other = (
                    f"base {result.model['fingerprint'][:12]}… then, "
                    f"{new.base.fingerprint[:12]}… now: its weights or tokenizer changed"
                )
            if other:
                raise InputError(
                    f"{new.part.config.model.name} is another model than when {result.strategy} "
                    f"with seed {result.seed} was run ({other}); choose another output folder"
                )
