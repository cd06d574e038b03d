"""The jobs of a comparison (its runs and tunings) and the engine that does them one by one."""

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
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies.registry import find_strategy

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A run of a comparison, or the tuning, without a seed, that the runs of a strategy wait for.

    The config is that before tuning. The label has swept values and order of the comparison, if
    there are several, which share the folder of a cache.
    """

    strategy: str
    seed: int | None
    config: ExperimentConfig
    out: Path
    started_by: str
    cache: Path
    label: str = ""

    @property
    def name(self) -> str:
        """Name of the job, such as ``"lora, seed 0"`` or ``"lora, tuning"``."""
        return f"{self.title}, tuning" if self.seed is None else f"{self.title}, seed {self.seed}"

    @property
    def title(self) -> str:
        """Name of the strategy with the label of its comparison, for messages."""
        return self.with_label(self.strategy)

    def with_label(self, name: str) -> str:
        """Add the label of the comparison to a name, where there are several comparisons."""
        return f"{name} {self.label}".strip()

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
        progress = rename_steps(progress, job.with_label)
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
