"""The training of one entry of a saved bank, and its score on test rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import torch
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor

from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.graft import snapshot
from cl_graft.metrics import score
from cl_graft.models import Loaded
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.run_context import RunContext
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.progress_reporter import ProgressReporter
from cl_graft.settings.run_folder import CACHE, find_run_of_bank
from cl_graft.settings.schedule import choose, input_settings, list_schedules, make_schedule
from cl_graft.storage import append_entry
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies import (
    GraftingContinual,
    GraftingPlugin,
    MultiTaskText,
    TaskMetadata,
    text_model,
)
from cl_graft.strategies.benchmark import TextStream
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.registry import build_strategy
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.passes import Passes


def learn_entry(
    loaded: Loaded,
    bank: GraftBank,
    stream: TextStream,
    config: ExperimentConfig,
    folder: Path | str,
    metadata: TaskMetadata,
    *,
    seed: int,
    announce: Callable[[str, int], None],
    reporter: ProgressReporter,
    under: tuple[str, ...] | None = None,
    tuned: Mapping[str, Tensor] | None = None,
) -> tuple[GraftingPlugin, float]:
    """Train the stream's only task, append its entry to the folder, and score it on test.

    Args:
        loaded: The bank's base, which carries the entry afterwards.
        bank: The bank.
        stream: The task, under the label that its entry gets.
        config: Settings of the learning.
        folder: The bank's folder, of which the caller is the only writer.
        metadata: Metadata of the task for its entry.
        seed: Seed of every random choice.
        announce: Called before the bank's index is replaced, as `track_change` gives it.
        reporter: Reports the steps of phases.
        under: Names of the tasks that it may build on; None means all.
        tuned: Graftable parameters after fine-tuning elsewhere, by name; None fine-tunes here.

    Returns:
        The plugin with the grown bank, and the score on the test rows.
    """
    folder = Path(folder)
    label, task = stream.first_label, stream.tasks[0].task
    cache = _find_cache(folder)
    model = text_model(loaded, stream, seed=seed)
    learnable = make_stream_task(model, stream, label, base=bank.base.fingerprint, seed=seed)
    if tuned is None:
        found = None
        context = RunContext.of(cache, progress=reporter.choice)
        dense = choose(learnable, list_schedules(config, task), seed=seed, context=context)
    else:
        found = {label: DenseRun(dict(tuned), snapshot(learnable.head), None, Passes())}
        dense = make_schedule(config, task)
    inputs = StrategyInputs(
        model=model,
        stream=stream,
        **input_settings(
            config,
            {label: dense},
            seed=seed,
            builds_on={} if under is None else {label: under},
        ),
        evaluator=EvaluationPlugin(loggers=[BaseLogger()]),
        plugins=(reporter,),
        metadata={label: metadata},
        identity=bank.base,
        bank=bank,
        cache=cache,
        dense=found,
        on_entry=lambda grown: append_entry(grown, folder, announce=announce),
        progress=reporter.phase,
    )
    strategy = cast(GraftingContinual, build_strategy("grafting", inputs))
    reporter.steps = dense.steps
    with in_phase("region training"):
        strategy.train(stream.benchmark.train_stream[0])
    return strategy.grafting, _score_model(model, stream, batch=config.training.eval_batch)


def _find_cache(bank: Path) -> DirectoryCache | None:
    """Return the cache that the run of a bank has, which keeps its dense runs and rankings."""
    run = find_run_of_bank(bank)
    place = run.parent.parent / CACHE if run else None
    return DirectoryCache(place) if place is not None and place.is_dir() else None


def _score_model(model: MultiTaskText, stream: TextStream, *, batch: int) -> float:
    """Score a model as it is on the test rows of the stream's only task."""
    task_model = model.task_model.eval()

    def answer(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return task_model(rows.to(task_model.device), stream.first_label).cpu()

    return score_test_rows(answer, stream, batch=batch)


def score_test_rows(answer: Callable[[Tensor], Tensor], stream: TextStream, *, batch: int) -> float:
    """Score what answers batches of encoded rows on the test rows of the stream's only task."""
    encoded = stream.tasks[0]
    inputs, targets = encoded.splits["test"]
    with in_phase("evaluation"):
        logits = torch.cat([answer(rows) for rows in inputs.split(batch)])
    return score(logits, targets, encoded.scored_by)
