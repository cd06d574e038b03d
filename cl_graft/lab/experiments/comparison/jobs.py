"""The jobs of a comparison (its runs, and what they wait for) and the sequential engine.

An engine does jobs and returns the outcome of each. Those of `cl_graft.lab.experiments.engines`
spread them over processes and machines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from cl_graft.data import TextTask
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.tuning import Tuning, tune, with_values
from cl_graft.lab.experiments.run import run
from cl_graft.lab.results.run_results import RunResult
from cl_graft.runtime.progress import Progress, rename_steps, silent
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies.registry import find_strategy

__all__ = [
    "Engine",
    "Failed",
    "Job",
    "Outcome",
    "SequentialEngine",
    "apply_tuning",
    "attempt",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A run of a comparison, or a job that runs wait for.

    Runs wait for the tuning of their strategy, and for runs of single tasks, which leave a dense
    run or a ranking in the cache.

    Attributes:
        strategy: Name of the strategy.
        seed: Seed of the run; None for tuning.
        config: Settings of the strategy before tuning.
        out: Folder of the comparison.
        started_by: Command that started the comparison, for the results.
        cache: Folder of the cache, which several comparisons may share.
        label: Swept values and order of the comparison, if there are several comparisons.
        ahead: Place of a single task in the stream, from 0; None for all other jobs.
        needs: Names of the jobs that must be over first.
    """

    strategy: str
    seed: int | None
    config: ExperimentConfig
    out: Path
    started_by: str
    cache: Path
    label: str = ""
    ahead: int | None = None
    needs: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Name of the job, such as ``"lora, seed 0"`` or ``"lora, tuning"``."""
        if self.seed is None:
            return f"{self.title}, tuning"
        if self.ahead is None:
            return f"{self.title}, seed {self.seed}"
        return f"{self.with_label(self._makes)}, seed {self.seed}, task {self.ahead} ahead"

    @property
    def title(self) -> str:
        """Name of the strategy with the label of its comparison, for messages."""
        return self.with_label(self.strategy)

    def with_label(self, name: str) -> str:
        """Add the label of the comparison to a name, where there are several comparisons."""
        return f"{name} {self.label}".strip()

    @property
    def is_run(self) -> bool:
        """Whether it is a run of the comparison, not tuning or a single task."""
        return self.seed is not None and self.ahead is None

    @property
    def folder(self) -> Path:
        """Folder that only this job writes to."""
        if self.seed is None:
            return self.out / folders.TUNING / self.strategy
        return folders.run_folder(self.home, self.strategy, self.seed)

    @property
    def home(self) -> Path:
        """Folder OUT of the run: the comparison's, or one in its cache."""
        if self.ahead is None:
            return self.out
        return self.out / folders.AHEAD / self._makes / f"task{self.ahead}"

    @property
    def _makes(self) -> str:
        """Name of the outcome of a single task: its dense run, or a ranking."""
        grafting = self.config.grafting
        is_dense = self.strategy == "independent"
        return "dense" if is_dense else f"{grafting.localizer} {grafting.density}"


@dataclass(frozen=True)
class Failed:
    """The outcome of a job that failed.

    Attributes:
        error: Kind and sentence of the error, as ``"DivergedError: …"``.
    """

    error: str


Outcome = RunResult | Tuning | Failed


class Engine(Protocol):
    """Does jobs, those that others wait for first."""

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do jobs, and yield each with its outcome as soon as it is known.

        Args:
            jobs: In the order in which they are wanted; a job comes after those it waits for.
            progress: Called after the steps of all jobs.
            stop: Asked whether to stop; what is under way is saved then.

        Raises:
            Stopped: If `stop` asked for it.
        """
        ...


@dataclass(frozen=True)
class SequentialEngine:
    """The engine that does one job after another in this process.

    Attributes:
        cache: Cache that all jobs share.
        tasks: Loaded tasks, by folder of the comparison and data seed.
    """

    cache: DirectoryCache
    tasks: Mapping[tuple[Path, int], Sequence[TextTask]]

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do the jobs; see `Engine`."""
        failed_tunings: dict[tuple[Path, str], Failed] = {}
        for job in jobs:
            outcome: Outcome | None = failed_tunings.get((job.out, job.strategy))
            if outcome is None:
                tasks = None
                if job.seed is not None:
                    tasks = self.tasks[job.out, job.config.stream.sample_seed(job.seed)]
                outcome = attempt(job, progress=progress, stop=stop, cache=self.cache, tasks=tasks)
            if isinstance(outcome, Failed) and job.seed is None:
                failed_tunings[job.out, job.strategy] = outcome
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

    Args:
        job: The job.
        progress: Called after every step.
        stop: Asked after every step whether to stop.
        cache: Cache of dense runs and rankings; None opens that of the job.
        tasks: The tasks, if they are loaded already.

    Raises:
        Stopped: If `stop` asked for it.
    """
    try:
        cache = DirectoryCache(job.cache) if cache is None else cache
        return _do(job, rename_steps(progress, job.with_label), stop, cache, tasks)
    except Exception as error:
        logger.error("%s failed", job.name, exc_info=True)
        return Failed(f"{type(error).__name__}: {error}")


def _do(
    job: Job,
    progress: Progress,
    stop: Stop | None,
    cache: DirectoryCache,
    tasks: Sequence[TextTask] | None,
) -> RunResult | Tuning:
    """Tune, run, or run a single task."""
    config, tuning = job.config, None
    if job.ahead is None:
        choice = tune(
            config,
            job.strategy,
            out=job.out,
            cache=cache,
            progress=progress,
            stop=stop,
            started_by=job.started_by,
        )
        if job.seed is None:
            return choice
        config = apply_tuning(config, job.strategy, choice)
        tuning = asdict(choice) if choice.chosen else None
    elif job.seed is not None:
        stream = load_tasks(config.stream, seed=job.seed) if tasks is None else tasks
        tasks = [stream[job.ahead]]
    return run(
        config,
        strategy=job.strategy,
        seed=job.seed,
        out=job.home,
        progress=progress,
        cache=cache,
        tasks=tasks,
        started_by=job.started_by,
        stop=stop,
        tuning=tuning,
    )


def apply_tuning(config: ExperimentConfig, strategy: str, choice: Tuning) -> ExperimentConfig:
    """Return the config of a strategy's runs with the values that tuning chose."""
    return with_values(config, find_strategy(strategy), choice.chosen)
