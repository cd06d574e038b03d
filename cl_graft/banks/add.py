"""The learning of one more task into a saved bank.

It needs the bank's folder, the checkpoint of its base and the new data. The files of earlier
entries are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor

from cl_graft import metrics
from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.banks.open_bank import open_bank
from cl_graft.errors import InputError, nearest
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.graft import snapshot
from cl_graft.localization.reach import find_reach, warn_if_full
from cl_graft.models import Loaded
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.error_context import in_phase, in_task
from cl_graft.runtime.progress import Progress, silent
from cl_graft.runtime.run_context import RunContext
from cl_graft.runtime.seeding import lock_generators
from cl_graft.settings import (
    ExperimentConfig,
    bank_metadata,
    merge_configs,
    override_,
    schedule_of_task,
    to_dotted,
    to_nested,
)
from cl_graft.settings.data_report import data_lines, data_report
from cl_graft.settings.run_files import CACHE, find_run_of_bank, lock_bank
from cl_graft.settings.stream_settings import split_at_commas
from cl_graft.settings.tasks import check_tasks, load_tasks
from cl_graft.storage import append_entry, load_bank
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies import GraftingContinual, GraftingPlugin, TaskMetadata, text_model
from cl_graft.strategies.benchmark import TextStream, text_stream
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.grafting_plugin import find_earlier
from cl_graft.strategies.loop.progress_reporter import ProgressReporter
from cl_graft.strategies.registry import build_strategy
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import Passes


@dataclass(frozen=True)
class Added:
    """The entry that a bank gained.

    Attributes:
        bank: Folder of the bank.
        task: Name of the task.
        label: Task label that the entry answers.
        position: Position of the entry in the bank, from 0.
        region_size: Coordinates of the region.
        owned: Coordinates whose values the entry holds.
        density: Share of the graftable coordinates in the region, in (0, 1].
        metric: Name of the measure of `test`.
        test: Score of the new entry on the task's test rows.
        test_rows: Number of these rows.
        seconds: Wall time by phase.
        notes: Sentences on rows that were left out, cut, or look suspicious.
        new: Whether the task was learned now; not a second time with the same data and settings.
    """

    bank: Path
    task: str
    label: int
    position: int
    region_size: int
    owned: int
    density: float
    metric: str
    test: float
    test_rows: int
    seconds: Mapping[str, float]
    notes: Sequence[str]
    new: bool = True


@lock_generators()
def add_task(
    folder: Path | str,
    task: str,
    *,
    model: str | None = None,
    columns: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress = silent,
) -> Added:
    """Learn one more task into a bank, on top of the tasks that it holds.

    A task whose name the bank knows gets a new entry under the same task label, which answers it
    from then on. If the latest entry of that name was learned from the same data with the same
    settings, nothing is done. Calls in several threads of a process wait for each other.

    Args:
        folder: The bank, or the run that holds it.
        task: A name, path or hub name, as in a config.
        model: Folder or hub name of the base, if it is no longer the one that the bank recorded.
        columns: Fields of `StreamTaskSettings`: columns, label names, metric.
        settings: Settings that differ from those of the bank's run, by part, as in
            ``{"grafting": {"density": 0.001}}``.
        sets: The same as text, as in ``"fine_tuning.steps=200"``.
        options: Command-line option of each setting, by dotted name, for messages.
        device: Device to run on; None takes a GPU if there is one.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.
        progress: Called after every step of a phase.

    Raises:
        InputError: If the task, its data or a setting cannot be used, or another process writes
            to the bank.
        BankError: If the bank cannot be read, or the base is another one.
    """
    where = find_bank_folder(folder)
    with lock_bank(where):
        bank = load_bank(where)
        config, under = _config(bank, task, columns or {}, settings or {}, sets, options or {})
        seed = config.comparison.seeds[0]
        text_task = load_tasks(config.stream, seed=seed)[0]
        label = choose_label(bank, text_task.name, text_task.label_names, text_task.intent_names)
        with in_phase("loading"):
            opened = open_bank(
                where,
                model=model,
                device=pick_device(device or "auto"),
                trust_remote_code=trust_remote_code,
            )
        check_tasks([text_task], opened.loaded, config.stream)
        if config.model.gradient_checkpointing:
            opened.loaded.model.recompute_()
        stream = text_stream(
            [text_task],
            opened.loaded.tokenizer,
            family=config.model.family,
            max_length=config.stream.max_length,
            first_label=label,
        )
        targets = stream.tasks[0].splits["train"][1]
        metadata = bank_metadata.task_metadata(
            text_task, config, seed=seed, builds_on=under, targets=targets
        )
        known = [p for p, entry in enumerate(bank.entries) if entry.task == text_task.name]
        new = not (
            known and bank_metadata.is_recorded(metadata, by=bank.entries[known[-1]].metadata)
        )
        position = len(bank) if new else known[-1]
        seconds: Mapping[str, float] = {}
        with in_task(text_task.name):
            if new:
                reporter = ProgressReporter(progress, strategy="grafting", seed=seed)
                reporter.task = text_task.name
                plugin, test = learn_entry(
                    opened.loaded,
                    bank,
                    stream,
                    config,
                    where,
                    bank_metadata.record_own_settings(metadata, bank.base, config, seed=seed),
                    seed=seed,
                    reporter=reporter,
                    under=under,
                )
                bank, seconds = cast(GraftBank, plugin.bank), plugin.seconds[label]
            else:
                test = _score_test_rows(
                    lambda rows: opened.logits(rows, position),
                    stream,
                    batch=config.training.eval_batch,
                )
        entry = bank.entries[position]
        return Added(
            bank=where,
            task=entry.task,
            label=label,
            position=position,
            region_size=entry.size,
            owned=len(entry.owned),
            density=entry.density,
            metric=text_task.scored_by,
            test=test,
            test_rows=len(text_task.test),
            notes=tuple(data_lines(data_report(stream))),
            seconds=seconds,
            new=new,
        )


def learn_entry(
    loaded: Loaded,
    bank: GraftBank,
    stream: TextStream,
    config: ExperimentConfig,
    folder: Path | str,
    metadata: TaskMetadata,
    *,
    seed: int,
    reporter: ProgressReporter,
    under: tuple[str, ...] | None = None,
    tuned: Mapping[str, Tensor] | None = None,
) -> tuple[GraftingPlugin, float]:
    """Train the stream's only task, append its entry to the folder, and score it on test.

    The caller is the folder's only writer; the base in `loaded` carries the entry afterwards.
    `under` names the tasks that it may build on, None means all; `tuned` are its parameters after
    fine-tuning elsewhere, by name.
    """
    folder = Path(folder)
    label, task = stream.first_label, stream.tasks[0].task
    run = find_run_of_bank(folder)
    cache_folder = run.parent.parent / CACHE if run else None
    cache = DirectoryCache(cache_folder) if cache_folder and cache_folder.is_dir() else None
    model = text_model(loaded, stream, seed=seed)
    learnable = make_stream_task(model, stream, label, base=bank.base.fingerprint, seed=seed)
    grafting = replace(config.grafting, builds_on=under)
    reach = find_reach(learnable.model, learnable.parameters, grafting)
    warn_if_full(reach, grafting, tasks=1, owned=bank.owned(of=find_earlier(bank, grafting)))
    if tuned is None:
        dense_runs = None
        context = RunContext.of(cache, progress=reporter.choice)
        schedules = schedule_of_task.list_schedules(config, task)
        dense = schedule_of_task.choose(learnable, schedules, seed=seed, context=context)
    else:
        dense_runs = {label: DenseRun(dict(tuned), snapshot(learnable.head), None, Passes())}
        dense = schedule_of_task.make_schedule(config, task)
    inputs = StrategyInputs(
        model=model,
        stream=stream,
        **schedule_of_task.input_settings(
            config, {label: dense}, seed=seed, builds_on={} if under is None else {label: under}
        ),
        evaluator=EvaluationPlugin(loggers=[BaseLogger()]),
        plugins=(reporter,),
        metadata={label: metadata},
        identity=bank.base,
        bank=bank,
        cache=cache,
        dense=dense_runs,
        on_entry=lambda grown: append_entry(grown, folder),
        progress=reporter.phase,
    )
    strategy = cast(GraftingContinual, build_strategy("grafting", inputs))
    reporter.steps = dense.steps
    with in_phase("region training"):
        strategy.train(stream.benchmark.train_stream[0])
    task_model = model.task_model.eval()

    def answer(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return task_model(rows.to(task_model.device), label).cpu()

    score = _score_test_rows(answer, stream, batch=config.training.eval_batch)
    return strategy.grafting, score


def _score_test_rows(
    answer: Callable[[Tensor], Tensor], stream: TextStream, *, batch: int
) -> float:
    """Score what answers batches of encoded rows on the test rows of the stream's only task."""
    encoded = stream.tasks[0]
    inputs, targets = encoded.splits["test"]
    with in_phase("evaluation"):
        logits = torch.cat([answer(rows) for rows in inputs.split(batch)])
    return metrics.score(logits, targets, encoded.scored_by)


def _config(
    bank: GraftBank,
    task: str,
    columns: Mapping[str, Any],
    settings: Mapping[str, Any],
    sets: Sequence[str],
    options: Mapping[str, str],
) -> tuple[ExperimentConfig, tuple[str, ...] | None]:
    """Return the bank's settings with those of the caller, and what the new task builds on."""
    values = deepcopy(dict(settings))
    origins = dict(options)
    for text in sets:
        override_(values, text)
        origins[text.partition("=")[0].strip()] = "--set"
    if columns:
        read = {"stream": {"task_settings": {task: dict(columns)}}}
        values = merge_configs(read, values)
    under = _take_builds_on(values, task, bank)
    given, mode = to_dotted(values), {"grafting": {"mode": bank.mode}}
    restore = partial(bank_metadata.restore_config, bank.base, tasks=[task], origins=origins)
    config = restore(settings=merge_configs(mode, values))
    for name in sorted(bank_metadata.DECIDED & given.keys()):
        others = to_nested({n: value for n, value in given.items() if n != name})
        fixed = to_dotted(restore(settings=merge_configs(mode, others)).values())[name]
        if (wanted := to_dotted(config.values())[name]) != fixed:
            raise InputError(
                f"{origins.get(name, 'settings')}: the bank, the task or an option of add decides "
                f"{name}, which is {fixed!r}: got {wanted!r}"
            )
    return config, under


def _take_builds_on(values: dict[str, Any], task: str, bank: GraftBank) -> tuple[str, ...] | None:
    """Take the tasks that the new one may build on out of settings; None means all."""
    stream = values.get("stream")
    tasks = stream.get("task_settings") if isinstance(stream, dict) else None
    changed = tasks.get(task) if isinstance(tasks, dict) else None
    named = changed.pop("builds_on", None) if isinstance(changed, dict) else None
    if named is None:
        return None
    names = split_at_commas(named)
    known = {entry.task for entry in bank.entries}
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"builds_on: expected a list of names of tasks, got {named!r}")
    for name in names:
        if name not in known:
            raise InputError(f"builds_on: no task {name!r} in the bank; {nearest(name, known)}")
    return tuple(names)


def choose_label(
    bank: GraftBank, task: str, label_names: Sequence[str], intent_names: Sequence[str] = ()
) -> int:
    """Return the label of a task: that of the latest entry of the same name, else a new one."""
    known = [entry for entry in bank.entries if entry.task == task]
    if not known:
        return max((entry.label for entry in bank.entries), default=-1) + 1
    now = {"label_names": list(label_names), "intent_names": list(intent_names)}
    for what, names in now.items():
        before = known[-1].metadata.get(what, [] if what == "intent_names" else None)
        if before is not None and list(cast(Sequence[str], before)) != names:
            raise InputError(
                f"the bank knows a task {task!r} with {what[:-6]}s {before}, the new one has "
                f"{names}: give the new task another name"
            )
    return known[-1].label
