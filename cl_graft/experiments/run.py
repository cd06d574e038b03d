"""One strategy, one seed, one stream: learn, measure after every task, and write it all down.

    run(config_from({"tasks": ["sentiment", "topic"]}), strategy="grafting", seed=0, out=Path("o"))

Everything is kept as soon as it is known: an entry of the bank when its task is learned, the
results after every task. A run that fails leaves what it had.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from avalanche.evaluation.metrics import loss_metrics
from avalanche.training.plugins import EvaluationPlugin
from torch import nn

from cl_graft.bank import BaseIdentity, GraftBank
from cl_graft.experiments import folders
from cl_graft.experiments.base import BASE_HASHES, base_identity, load_base_model
from cl_graft.experiments.cache import DirectoryCache
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.data_report import cut_note, data_report
from cl_graft.experiments.devices import pick_device
from cl_graft.experiments.facts import task_facts
from cl_graft.experiments.hosting import Reporter, set_schedule_
from cl_graft.experiments.memory import measure_memory, memory_note
from cl_graft.experiments.progress import Progress, Step, silent
from cl_graft.experiments.records import (
    Record,
    draw_end,
    draw_row,
    entry_bytes,
    result_of,
    tensor_bytes,
    write_table,
)
from cl_graft.experiments.report import write_run_summary
from cl_graft.experiments.results import RunResult, machine, versions, write_result
from cl_graft.experiments.room import reserve_room
from cl_graft.experiments.schedule import choose, grafting_settings, grid_of, region_schedule
from cl_graft.experiments.tasks import check_tasks, load_tasks
from cl_graft.learning import dense_passes
from cl_graft.metrics.plugins import StreamScores
from cl_graft.metrics.tensorboard import OncePerStepTensorboardLogger
from cl_graft.models import graftable_parameters
from cl_graft.passes import Passes, total_passes
from cl_graft.store import append_entry, only_writer, told_of_full_disks
from cl_graft.strategies import MultiTaskText, StopAfter, TaskFacts, heads_for
from cl_graft.strategies.heads import head_state
from cl_graft.strategies.problems import task_problem
from cl_graft.strategies.table import Ingredients, StrategyRow, find_strategy
from cl_graft.tasks import TextTask
from cl_graft.tasks.benchmark import TextStream, text_stream
from cl_graft.training import FineTuning
from cl_graft.trouble import about_task, in_phase

__all__ = ["run", "run_folder"]

run_folder = folders.run_folder

logger = logging.getLogger(__name__)


def run(
    config: ExperimentConfig,
    *,
    strategy: str,
    seed: int,
    out: Path | str,
    progress: Progress = silent,
    cache: DirectoryCache | None = None,
    tasks: Sequence[TextTask] | None = None,
) -> RunResult:
    """Run a strategy on the stream of a config, into ``OUT/<strategy>/seed<k>/``.

    Args:
        config: The settings; its own strategies and seeds play no part.
        strategy: The strategy's name.
        seed: Every random choice is a function of it.
        out: OUT.
        progress: Called after every step of every phase.
        cache: Keeps tokens, dense runs and rankings; None means ``OUT/cache``.
        tasks: The tasks of the config, if they are loaded already.

    Raises:
        InputError: If the folder already holds a run, another process runs there, or model or
            data cannot be used; nothing is computed then.
        CannotWrite: If the disk is full or read-only; what was saved before is whole.
        OutOfMemory: If a phase needs more memory than there is; the phase and task are named.
        DivergedError: If a loss, a score or a weight is NaN or infinite.
    """
    row = find_strategy(strategy)
    folder = run_folder(out, strategy, seed)
    with only_writer(folder), told_of_full_disks(folder):
        folders.refuse_taken(folder)
        device = pick_device(config.device)
        tasks = load_tasks(config, seed=seed) if tasks is None else tasks
        cache = DirectoryCache(Path(out) / folders.CACHE) if cache is None else cache
        with in_phase("loading"):
            setup = _set_up(config, row, tasks, seed=seed, device=device, cache=cache)
        carrier = setup.model.task_model
        reserve_room(config, row, setup.stream, carrier, seed=seed, folder=folder, cache=cache)
        folders.write_config(config, folder, strategy=strategy, seed=seed)
        curves = OncePerStepTensorboardLogger(folder / "tensorboard")
        note = memory_note(setup.record.memory) + cut_note(setup.record.data)
        progress(Step("memory", 1, 1, "", strategy, seed, note))
        try:
            settings = json.dumps(config.cell(), indent=1)
            code = settings.replace("\n", "\n    ")
            curves.writer.add_text("config", f"{strategy}, seed {seed}\n\n    {code}")
            return _Run(config, row, setup, folder, cache, curves, progress).learn_stream()
        finally:
            curves.writer.close()


@dataclass(frozen=True, eq=False)
class _Setup:
    """A model at its base and the stream that it will learn."""

    seed: int
    device: torch.device
    stream: TextStream
    model: MultiTaskText
    identity: BaseIdentity
    facts: dict[int, TaskFacts]
    record: Record


def _set_up(
    config: ExperimentConfig,
    row: StrategyRow,
    tasks: Sequence[TextTask],
    *,
    seed: int,
    device: torch.device,
    cache: DirectoryCache,
) -> _Setup:
    loaded = load_base_model(config)
    check_tasks(tasks, loaded, config)
    stream = text_stream(
        tasks,
        loaded.tokenizer,
        family=config.family,
        max_length=config.max_length,
        cache=cache,
    )
    length = stream.tasks[0].splits["train"][0].shape[-1]
    identity = base_identity(loaded, config, seed=seed)
    coordinates = sum(p.numel() for p in graftable_parameters(loaded.model).values())
    record = Record(
        strategy=row.name,
        seed=seed,
        tasks=stream.names,
        metrics={task.name: task.metric for task in tasks},
        schedules={},
        data_fingerprints={task.name: task.fingerprint for task in tasks},
        model={
            "name": loaded.name,
            "family": config.family,
            "fingerprint": identity.fingerprint,
            "precision": config.precision,
            "graftable": coordinates,
            **{name: identity.facts[name] for name in BASE_HASHES},
        },
        config=config.cell(),
        versions=versions(device),
        machine=machine(device),
        data=data_report(stream),
    )
    model = MultiTaskText(loaded.model, heads_for(loaded.model, stream, seed=seed)).to(device)
    with in_phase("dense fine-tuning"):
        record.memory = measure_memory(model.task_model, stream, config)
    return _Setup(
        seed=seed,
        device=device,
        stream=stream,
        model=model,
        identity=identity,
        facts={
            label: task_facts(task, config, max_length=length) for label, task in enumerate(tasks)
        },
        record=record,
    )


class _Run:
    """A run in progress: what has been measured so far, and where it is written."""

    def __init__(
        self,
        config: ExperimentConfig,
        row: StrategyRow,
        setup: _Setup,
        folder: Path,
        cache: DirectoryCache,
        curves: OncePerStepTensorboardLogger,
        progress: Progress,
    ) -> None:
        self.config, self.row, self.setup, self.folder = config, row, setup, folder
        self.cache, self.curves = cache, curves
        self.reporter = Reporter(progress, strategy=row.name, seed=setup.seed)
        self.stop = StopAfter(1)
        self.bank: GraftBank | None = None
        # A prompt can be asked before its task was learned; a head would answer by chance.
        self.zero_shot = config.family != "encoder" and row.trains != "nothing"
        self.scores = StreamScores(
            {label: facts.metric for label, facts in setup.facts.items()},
            zero_shot=self.zero_shot,
        )

    def learn_stream(self) -> RunResult:
        """Learn one task after the other, and measure all of them after each."""
        dense = self._schedules()
        strategy = self.row.build(self._ingredients(dense))
        train, test = (self.setup.stream.benchmark.streams[name] for name in ("train", "test"))
        record = self.setup.record
        if self.zero_shot:
            strategy.eval(test)
        for label, experience in enumerate(train):
            name, saved = record.tasks[label], Counter(self.cache.saved)
            schedule = dense[label]
            if self.row.trains == "region":
                schedule = region_schedule(self.config, schedule)
            self.reporter.task, self.reporter.steps = name, schedule.steps
            set_schedule_(strategy, self.stop, schedule, rows=len(experience.dataset))
            started = time.perf_counter()
            phase = "region training" if self.row.trains == "region" else "training"
            with about_task(name), in_phase(phase):
                strategy.train(experience, eval_streams=[])
            trained = time.perf_counter() - started
            started = time.perf_counter()
            with about_task(name), in_phase("evaluation"):
                strategy.eval(test if self.zero_shot else test[: label + 1])
            seconds = record.seconds.setdefault(name, {})
            seconds |= _own(strategy, "seconds", label) or {"train": trained}
            seconds["evaluate"] = time.perf_counter() - started
            rows = Passes(schedule.steps * schedule.batch_size)
            passes = record.passes.setdefault(name, {})
            passes |= _own(strategy, "passes", label) or {"train": rows}
            self._saved(name, self.cache.saved - saved)
            record.bytes[name] = self._bytes(name, label)
            self._write(learned=label + 1)
        result = result_of(record, self.scores, self.bank, learned=len(record.tasks))
        draw_end(result, self.scores, self.curves)
        return result

    def _schedules(self) -> dict[int, FineTuning]:
        """Return the dense schedule of every task, chosen on dev where there is a grid."""
        chosen: dict[int, FineTuning] = {}
        setup = self.setup
        streams = setup.stream.benchmark.streams
        for label, encoded in enumerate(setup.stream.tasks):
            grid = grid_of(self.config, encoded.task)
            name = encoded.task.name
            chosen[label] = grid[0]
            if len(grid) > 1:
                experience = streams["train"][label]
                setup.model.adaptation(experience)
                self.reporter.task = name
                saved, started = Counter(self.cache.saved), time.perf_counter()
                problem = task_problem(
                    setup.model,
                    experience,
                    label=label,
                    criterion=nn.functional.cross_entropy,
                    base=setup.identity.fingerprint,
                    device=setup.device,
                    dev=streams["valid"][label],
                    metric=setup.facts[label].metric,
                    seed=setup.seed,
                )
                with about_task(name):
                    chosen[label] = choose(
                        problem,
                        grid,
                        seed=setup.seed,
                        cache=self.cache,
                        progress=lambda _, step, steps: self.reporter.phase("choose", step, steps),
                    )
                record = setup.record
                record.seconds[name] = {"choose": time.perf_counter() - started}
                spared = (self.cache.saved - saved).get("dense", 0.0)
                record.seconds_saved[name] = {"choose": spared} if spared else {}
                # The chosen one is counted where it is used.
                others = (other for other in grid if other != chosen[label])
                passes = total_passes(dense_passes(problem, other) for other in others)
                record.passes[name] = {"choose": passes}
            setup.record.schedules[name] = {
                "steps": chosen[label].steps,
                "batch_size": chosen[label].batch_size,
                "lr": chosen[label].lr,
            }
        return chosen

    def _ingredients(self, dense: dict[int, FineTuning]) -> Ingredients:
        setup, config = self.setup, self.config
        return Ingredients(
            model=setup.model,
            stream=setup.stream,
            facts=setup.facts,
            identity=setup.identity,
            grafting={
                label: grafting_settings(config, schedule, seed=setup.seed)
                for label, schedule in dense.items()
            },
            dense=dense,
            seed=setup.seed,
            clip=config.clip,
            region_decay=config.region_decay,
            eval_batch=config.eval_batch,
            device=setup.device,
            evaluator=EvaluationPlugin(
                self.scores, loss_metrics(minibatch=True), loggers=[self.curves]
            ),
            plugins=(self.stop, self.reporter),
            cache=self.cache,
            on_entry=self._keep_entry,
            progress=self.reporter.phase,
        )

    def _keep_entry(self, bank: GraftBank) -> None:
        append_entry(bank, self.folder / folders.BANK)
        self.bank = bank

    def _saved(self, name: str, saved: Counter[str]) -> None:
        """Note what the cache saved: rankings are most of localization."""
        phases = {"warmup": "warm-up", "ranking": "localize"}
        kept = self.setup.record.seconds_saved.setdefault(name, {})
        kept |= {phases.get(phase, phase): seconds for phase, seconds in saved.items()}

    def _bytes(self, name: str, label: int) -> int:
        """Return what a task adds to what must be stored."""
        if self.row.keeps == "entry":
            return entry_bytes(self.folder / folders.BANK)[name]
        carrier = self.setup.model.task_model
        tensors = list(head_state(carrier, label).values())
        if self.row.keeps == "model":
            tensors += [p.detach() for p in graftable_parameters(carrier).values()]
        return tensor_bytes(tensors)

    def _write(self, *, learned: int) -> None:
        result = result_of(self.setup.record, self.scores, self.bank, learned=learned)
        draw_row(result, self.curves)
        write_table(result, self.folder / "metrics.csv")
        write_run_summary(result, self.folder)
        # Last, as a complete one says that the run is finished.
        write_result(result, self.folder)


def _own(strategy: Any, what: str, label: int) -> dict[str, Any]:
    """Return what the strategy's plugin noted of its phases, such as its seconds, if it did."""
    noted = (getattr(plugin, what, None) for plugin in strategy.plugins)
    return next((dict(n[label]) for n in noted if isinstance(n, dict) and label in n), {})
