"""The comparison of strategies on one stream, on several orders of it, and over swept settings.

The runs share a cache, so independent fine-tuning costs nothing where grafting ran before. The same
comparison into the same folder resumes. Seeds, strategies and values of a sweep can be added.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from cl_graft.data import TextTask
from cl_graft.errors import InputError
from cl_graft.grafts.region import Region
from cl_graft.kinds.text_task import make_task_head
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.sweep import SingleComparison, draw_orders, expand_sweep
from cl_graft.lab.experiments.comparison.tuning import Tuning, stored_tuning, tune, with_values
from cl_graft.lab.experiments.plan import entry_bytes, find_storage
from cl_graft.lab.experiments.run import run
from cl_graft.lab.experiments.run_setup import (
    check_strategies,
    describe_shape,
    keep_able_strategies,
)
from cl_graft.lab.reporting.summary_files import write_summary
from cl_graft.lab.results.comparison import (
    Budget,
    Comparison,
    ComparisonSummary,
    Failure,
    Size,
    SweptValues,
    summarize,
)
from cl_graft.lab.results.run_results import RunResult, command
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.reach import find_reach
from cl_graft.models import Loaded, graftable_parameters
from cl_graft.models.answering_config import describe_other_settings
from cl_graft.runtime.byte_sizes import largest_within
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.progress import Progress, Step, rename_steps, silent
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig, make_config
from cl_graft.settings.bank_metadata import BaseHashes, base_hashes, load_base_model
from cl_graft.settings.tasks import check_tasks, load_tasks, refuse_other_data
from cl_graft.storage import only_writer
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies import count_bytes
from cl_graft.strategies.method import Method, StreamShape
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
    configs = {
        name: resize_strategy(config, name, budget.sizes[name] if budget else Size())
        for name in config.comparison.strategies
        if not budget or name in budget.sizes
    }
    tuned = {name: stored_tuning(settings, name, out=out) for name, settings in configs.items()}
    done: dict[tuple[str, int], RunResult] = {}
    jobs: list[Job] = []
    for seed, (strategy, settings) in itertools.product(config.comparison.seeds, configs.items()):
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


_MOST = 2**40

_NAMES = 256
"""Bytes by which names and numbers in an entry may be longer than those of the estimate."""


def sizes_within(
    budget: int, config: ExperimentConfig, loaded: Loaded, tasks: Sequence[TextTask]
) -> tuple[dict[str, Size], dict[str, str]]:
    """Return the sizes of the strategies that fit, and why the others do not, each by name.

    Grafting gets the largest region whose entry of a bank fits, a LoRA the largest rank, replay the
    most rows; heads and indices count. Bounds are not compared by their bytes.

    Raises:
        InputError: If none fits but bounds, or standalone grafts are asked for.
    """
    if config.grafting.keep_standalone:
        raise InputError("bytes_per_task counts no standalone grafts: leave keep_standalone out")
    widest = max(tasks, key=lambda task: task.num_outputs)
    length = config.stream.max_length or widest.max_length
    tokens = widest.own_kind.label_tokens(
        widest, loaded.tokenizer, family=config.model.family, max_length=length
    )
    head = make_task_head(loaded.model, widest, label_tokens=tokens, seed=0)
    shape = describe_shape(loaded.model, config, tasks)
    sizes: dict[str, Size] = {}
    unmet: dict[str, str] = {}
    for name in config.comparison.strategies:
        try:
            sizes[name] = _size(find_strategy(name), budget, config, shape, head)
        except InputError as error:
            unmet[name] = str(error)
    if all(size.bytes is None for size in sizes.values()):
        said = "; ".join(f"{name}: {reason}" for name, reason in unmet.items())
        raise InputError(f"no strategy can be sized to {budget:,} bytes a task: {said}")
    return sizes, unmet


def resize_strategy(config: ExperimentConfig, strategy: str, size: Size) -> ExperimentConfig:
    """Return the config under which a sized strategy is compared."""
    values = {} if size.value is None else {size.setting: size.value}
    resized = with_values(config, find_strategy(strategy), values)
    return resized.with_values(
        {"comparison.tune": config.comparison.tune, "comparison.bytes_per_task": None}
    )


def _size(
    method: Method, budget: int, config: ExperimentConfig, shape: StreamShape, head: nn.Module
) -> Size:
    """Size one strategy; an InputError says why it does not fit."""
    if method.is_bound:
        return Size()
    if method.stored_as == "entry" or method.family == "merging":
        grafting = config.with_values(method.fixed_config).grafting
        return _density(method, budget, shape, head, grafting)
    heads = count_bytes(head.state_dict())
    if not method.has_size:
        raise InputError(f"there is no size to set: it adds {method.adds}")
    name, settings = method.size_setting, config.comparison.strategy_settings.get(method.name, {})
    if not name or settings.get(name):
        value, within = int(settings.get(name, 0)), int(method.task_bytes(shape, settings)) + heads
        if within > budget:
            why = f"with the {name} that the config sets" if value else "and it has no size to set"
            raise InputError(f"a task adds {within:,} bytes, {why}")
        return Size(name, value or None, within)
    least = next(int(setting.min_value or 1) for setting in method.settings if setting.is_size)

    def size(value: int) -> float:
        return method.task_bytes(shape, {**settings, name: value}) + heads

    most = method.largest_size(shape, settings, otherwise=_MOST)
    value = largest_within(budget, size, least=least, most=most)
    return Size(name, value, round(size(value)))


def _density(
    method: Method, budget: int, shape: StreamShape, head: nn.Module, grafting: GraftingSettings
) -> Size:
    """Return the density whose entry of a bank fits, or whose graft to be merged does."""
    reach = find_reach(shape.model, graftable_parameters(shape.model), grafting)
    total, none, stored_as = reach.layout.total, Region.empty(reach.layout), find_storage(grafting)
    beside = math.ceil(method.task_bytes(shape, {})) if method.has_size else 0
    if method.stored_as != "entry" and stored_as == "seed":
        stored_as = "index"  # as a graft to be merged is stored
    options: Any = {"length": shape.length, "stored_as": stored_as}

    def size(k: int) -> int:
        coordinates = sum(reach.divide(k, owned=none))
        owned = (shape.tasks - 1) * coordinates
        entry = entry_bytes(shape.model, head, size=coordinates, owned=owned, **options)
        if method.stored_as == "entry":
            return entry.total + _NAMES + beside
        return entry.indices + entry.values + entry.head + beside

    value = largest_within(budget, size, least=1, most=reach.total)
    if len(reach.parts) == 1:
        (value,) = reach.divide(value, owned=none)
    return Size("grafting.density", value / total, size(value))


def compare(
    config: ExperimentConfig | Mapping[str, Any] | Path | str,
    *,
    out: Path | str,
    progress: Progress = silent,
    started_by: str | None = None,
    stop: Stop | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Run all strategies and seeds of a config into a folder, and summarize them there.

    A run that fails is reported, and the others go on. Where the config asks for several orders or
    sweeps a setting, every one of them is a comparison of its own in a folder below, and measures
    are over seeds, of a strategy with each value; of several orders a seed has the mean.

    Args:
        config: The settings: a config, settings by part, or the path of a YAML file.
        out: Folder, which gets ``<strategy>/seed<k>/`` for every run, ``cache/``, ``tuning/`` where
            values are chosen, ``summary.json``, ``.md``, ``.csv`` and ``.tex``. With several
            comparisons it gets ``order<n>/``, ``density=0.001/`` and the like for each, the cache,
            and the summaries over all of them.
        progress: Called after every step of every phase.
        started_by: Command that started it, for the results; None means this process's.
        stop: Asked after every step whether to stop.
        engine: Engine that does the jobs; None does them one after another in this process.

    Raises:
        InputError: If the folder holds a comparison with another config or with runs on another
            base or other data, another process writes to it, model or data cannot be used, or
            there are not as many orders; nothing is computed then.
        Stopped: If `stop` asked for it.
    """
    config = keep_able_strategies(make_config(config))
    out, parts = Path(out), expand_sweep(config)
    started_by, stop = started_by or command(), stop or Stop()
    several = bool(parts[0].name)
    with ExitStack() as locks:
        locks.enter_context(only_writer(out))
        folders.check_out(out, config)
        cache = out / folders.CACHE
        comparisons = {
            out / part.name: find_runs_to_do(
                part, out / part.name, cache=cache, started_by=started_by
            )
            for part in parts
        }
        every = list(comparisons.values())
        refuse_another_base(every)
        # No folder was written so far: a comparison that cannot run leaves nothing behind.
        jobs = [job for runs in every for job in runs.jobs]
        if jobs and engine is None:
            pick_device(config.model.device)
        locks.push(partial(_drop_empty, [*comparisons, out]))
        for folder, runs in comparisons.items():
            if several:
                locks.enter_context(only_writer(folder))
            folders.write_config(folder, {"command": started_by, **runs.part.config.values()})
        folders.write_config(out, {"command": started_by, **config.values()})
        for folder, runs in comparisons.items():
            for strategy, seed in runs.done:
                folders.finish_killed_run(folders.run_folder(folder, strategy, seed))
                progress(Step("reused", 1, 1, "", runs.part.name_strategy(strategy), seed))
        store = DirectoryCache(cache)
        tasks = {(runs.out, seed): loaded for runs in every for seed, loaded in runs.tasks.items()}
        engine = engine or SequentialEngine(store, tasks)
        for job, outcome in engine(jobs, progress=progress, stop=stop):
            comparisons[job.out].take(job, outcome)
            if job.seed is not None and several:
                _summarize_all(config, every, out, started_by)
        logger.info("cache: %s answered, %s computed", dict(store.hits), dict(store.misses))
        sums = [runs.sum_up() for runs in every]
        return _summarize_all(config, every, out, started_by) if several else sums[0]


def _drop_empty(outs: Sequence[Path], error: type[BaseException] | None, *_: object) -> None:
    """Delete the configs of comparisons without any result, unless they were stopped."""
    if error is None or issubclass(error, Exception):
        for out in outs:
            folders.drop_comparison(out)


def _summarize_all(
    config: ExperimentConfig, comparisons: Sequence[ComparisonRuns], out: Path, started_by: str
) -> Comparison:
    """Summarize the finished runs of all comparisons, a row for each strategy and swept value."""
    rows: dict[str, list[RunResult]] = {}
    sweep: dict[str, SweptValues] = {}
    for name in config.comparison.strategies:
        for runs in comparisons:
            row = runs.part.name_row(name)
            done = [run for run in runs.results if run.strategy == name]
            rows.setdefault(row, []).extend(replace(run, strategy=row) for run in done)
            if name in runs.part.config.comparison.strategies:
                sweep[row] = SweptValues(name, dict(runs.part.values))
    finished = [run for done in rows.values() for run in done]
    failed = tuple(
        replace(
            failure,
            strategy=runs.part.name_row(failure.strategy),
            error=runs.part.name_order(failure.error),
        )
        for runs in comparisons
        for failure in runs.failed
    )
    if not finished:
        return Comparison(out, (), failed, None)
    orders = draw_orders(config) if config.comparison.orders != 1 else ()
    summary = summarize(
        finished, failed, config=config.values(), started_by=started_by, orders=orders,
        budget=comparisons[0].budget, sweep=sweep if config.comparison.sweep else None,
    )  # fmt: skip
    if orders:  # values are tuned for each order by itself
        untuned = {name: replace(row, tuning={}) for name, row in summary.strategies.items()}
        summary = replace(summary, strategies=untuned)
    write_summary(summary, out)
    return Comparison(out, tuple(finished), failed, summary)
