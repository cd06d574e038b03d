"""The jobs of a comparison: its runs, what they wait for, and the engine that does them.

An engine does jobs and says what came of each. The one here does them one after another in this
process; those of `cl_graft.experiments.engines` spread them over processes and machines.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypedDict

from cl_graft.data import TextTask
from cl_graft.experiments import folders
from cl_graft.experiments.comparison.tuning import Tuning, tune, with_values
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.run import run
from cl_graft.experiments.tasks import load_tasks
from cl_graft.results.run_results import RunResult
from cl_graft.runtime.progress import Progress, rename_steps, silent
from cl_graft.runtime.signals import Stop
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies.registry import find_strategy

__all__ = [
    "Engine",
    "Failed",
    "Job",
    "Outcome",
    "SequentialEngine",
    "attempt",
    "chosen_config",
    "perform",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A run of a comparison, or what runs wait for.

    That is the choice of a strategy's values, or a single task: its dense run or its ranking goes
    to the cache, where the runs find it.

    Attributes:
        strategy: The strategy's name.
        seed: Seed of the run; None for the choice of values.
        config: The settings of the strategy, before its values are chosen.
        out: The comparison's folder.
        started_by: The command to note.
        cache: The folder of the cache, which several comparisons may share.
        label: Values and order of its comparison, if there are several comparisons.
        ahead: The place in the stream of the single task; None for all others.
        needs: The names of the jobs that must be over first.
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
        """Return what the job is called, such as ``"lora, seed 0"`` or ``"lora, tuning"``."""
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
        """Whether it is a run of the comparison, not a choice of values or a single task."""
        return self.seed is not None and self.ahead is None

    @property
    def folder(self) -> Path:
        """Return the folder that only this job writes to."""
        if self.seed is None:
            return self.out / folders.TUNING / self.strategy
        return folders.run_folder(self.home, self.strategy, self.seed)

    @property
    def home(self) -> Path:
        """The folder of its run's strategy: the comparison's, or one in its cache."""
        if self.ahead is None:
            return self.out
        return self.out / folders.AHEAD / self._makes / f"task{self.ahead}"

    @property
    def _makes(self) -> str:
        """What a single task is run for."""
        own = self.config
        return (
            "dense"
            if self.strategy == "independent"
            else f"{own.grafting.localizer} {own.grafting.density}"
        )


@dataclass(frozen=True)
class Failed:
    """A job that failed.

    Attributes:
        error: Its kind and sentence, as ``"DivergedError: …"``.
        trace: Where it came from.
    """

    error: str
    trace: str = ""


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
        cache: Shared by all jobs.
        tasks: Loaded tasks, by the comparison's folder and the data seed.
    """

    cache: DirectoryCache
    tasks: Mapping[tuple[Path, int], Sequence[TextTask]]

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do the jobs; see `Engine`."""
        undecided: dict[tuple[Path, str], Failed] = {}
        for job in jobs:
            outcome: Outcome | None = undecided.get((job.out, job.strategy))
            if outcome is None:
                tasks = None
                if job.seed is not None:
                    tasks = self.tasks[job.out, job.config.stream.sample_seed(job.seed)]
                outcome = attempt(job, progress=progress, stop=stop, cache=self.cache, tasks=tasks)
            if isinstance(outcome, Failed) and job.seed is None:
                undecided[job.out, job.strategy] = outcome
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
    """Do a job as `perform` does; its failure is an outcome too."""
    try:
        return perform(job, progress=progress, stop=stop, cache=cache, tasks=tasks)
    except Exception as error:
        failed = Failed(f"{type(error).__name__}: {error}", traceback.format_exc())
        logger.error("%s failed\n%s", job.name, failed.trace)
        return failed


def perform(
    job: Job,
    *,
    progress: Progress = silent,
    stop: Stop | None = None,
    cache: DirectoryCache | None = None,
    tasks: Sequence[TextTask] | None = None,
) -> RunResult | Tuning:
    """Do a job here and now; what it has left behind of an earlier attempt is gone on with.

    Args:
        job: The job.
        progress: Called after every step.
        stop: Asked after every step whether to stop.
        cache: Keeps tokens, dense runs and rankings; None opens the job's.
        tasks: The tasks, if they are loaded already.

    Raises:
        Exception: What `cl_graft.experiments.run.run` and
        `cl_graft.experiments.comparison.tuning.tune` raise.
    """
    how: _How = {
        "cache": DirectoryCache(job.cache) if cache is None else cache,
        "progress": rename_steps(progress, job.with_label),
        "stop": stop,
        "started_by": job.started_by,
    }
    if job.ahead is not None and job.seed is not None:
        return _run_ahead(job, job.seed, job.ahead, tasks, how)
    choice = tune(job.config, job.strategy, out=job.out, **how)
    if job.seed is None:
        return choice
    return run(
        chosen_config(job.config, job.strategy, choice),
        strategy=job.strategy,
        seed=job.seed,
        out=job.out,
        tasks=tasks,
        tuning=asdict(choice) if choice.chosen else None,
        **how,
    )


class _How(TypedDict):
    """What runs and choices of values are told of those who watch and stop them."""

    cache: DirectoryCache
    progress: Progress
    stop: Stop | None
    started_by: str


def _run_ahead(
    job: Job, seed: int, place: int, tasks: Sequence[TextTask] | None, how: _How
) -> RunResult:
    """Run a single task, for what the cache keeps of it."""
    stream = load_tasks(job.config.stream, seed=seed) if tasks is None else tasks
    return run(
        job.config,
        strategy=job.strategy,
        seed=seed,
        out=job.home,
        tasks=[stream[place]],
        **how,
    )


def chosen_config(config: ExperimentConfig, strategy: str, choice: Tuning) -> ExperimentConfig:
    """Return the config of a strategy's runs once its values are chosen."""
    return with_values(config, find_strategy(strategy), choice.chosen)
