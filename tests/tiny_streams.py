"""Small streams for tests in Avalanche: built-in text tasks, and vectors for Avalanche's own MLPs.

A learner is a strategy with everything a test looks at. Sizes are chosen so that a task is learned
in well under a second; nothing is said about how well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import (
    TaskAwareSupervisedClassificationDataset,
)
from avalanche.benchmarks.utils.data_attribute import ConstantSequence
from avalanche.models import MTSimpleMLP, SimpleMLP
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from torch import nn
from torch.utils.data import TensorDataset

from cl_graft import (
    FineTuning,
    GraftingContinual,
    GraftingPlugin,
    GraftingSettings,
    TextTask,
    load_model,
    load_task,
    text_stream,
)
from cl_graft.data import Prompt
from cl_graft.grafts.bank import Entry
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.strategies import text_model
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.task_heads import find_head_paths, unwrap_model

TASKS = ("scope", "topic", "answered")
MASKED_PROMPTS = {
    "scope": Prompt("{text} It was {mask}.", {"in_scope": "great", "out_of_scope": "terrible"})
}
Optimizers = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass
class Learner:
    """A strategy and what belongs to it."""

    strategy: Any
    plugin: GraftingPlugin
    scores: StreamScores
    benchmark: Any
    model: nn.Module

    @property
    def unwrapped(self) -> nn.Module:
        return unwrap_model(self.model)

    @property
    def train_stream(self) -> Any:
        return self.benchmark.streams["train"]

    @property
    def test_stream(self) -> Any:
        return self.benchmark.streams["test"]

    def learn(self, *, upto: int | None = None) -> Learner:
        """Evaluate the whole test stream before training and after every experience."""
        self.strategy.eval(self.test_stream)
        for experience in list(self.train_stream)[:upto]:
            self.strategy.train(experience, eval_streams=[self.test_stream])
            self.strategy.eval(self.test_stream)
        return self

    def hashes(self) -> list[str]:
        """Hash the logits of every test experience as the strategy answers them now."""
        self.strategy.eval(self.test_stream)
        count = len(self.test_stream)
        return [hash_tensors({"x": self.scores.predictions(j)[0]}) for j in range(count)]


def mlp(*, drop_rate: float = 0.0) -> SimpleMLP:
    """An MLP for `vector_stream`, the same with every call."""
    torch.manual_seed(0)
    return SimpleMLP(num_classes=2, input_size=12, hidden_size=16, drop_rate=drop_rate)


def multi_head() -> MTSimpleMLP:
    """An MLP with a head a task, the same with every call."""
    torch.manual_seed(0)
    return MTSimpleMLP(input_size=12, hidden_size=16)


def quick(**changes: Any) -> GraftingSettings:
    """Settings under which a tiny task is learned in a fraction of a second."""
    chosen: dict[str, Any] = {
        "density": 0.02,
        "mask_steps": 2,
        "mask_batch": 16,
        "fine_tuning": FineTuning(steps=4, batch_size=8, lr=0.1, evaluations=1),
    }
    return GraftingSettings(**(chosen | changes))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def quiet_evaluator(*metrics: Any, loggers: Sequence[Any] = ()) -> EvaluationPlugin:
    """An evaluator that writes to its loggers only; Avalanche warns where there is none.

    And it refuses loggers of any process but the first.
    """
    from avalanche.distributed import DistributedHelper
    from avalanche.logging import BaseLogger

    silent = [BaseLogger()] if DistributedHelper.is_main_process else []
    return EvaluationPlugin(*metrics, loggers=list(loggers) or silent)


def learner(
    model: nn.Module,
    benchmark: Any,
    *,
    settings: GraftingSettings | None = None,
    optimizer: Optimizers = sgd,
    grafting: dict[str, Any] | None = None,
    metrics: Sequence[Any] = (),
    loggers: Sequence[Any] = (),
    **strategy: Any,
) -> Learner:
    """Make a grafting strategy over a benchmark."""
    plugin = GraftingPlugin(settings or quick(), **(grafting or {}))
    scores = StreamScores()
    chosen: dict[str, Any] = {"train_mb_size": 8, "train_epochs": 1, "eval_mb_size": 32}
    made = GraftingContinual(
        model=model,
        optimizer=optimizer(model),
        evaluator=quiet_evaluator(scores, *metrics, loggers=loggers),
        grafting=plugin,
        **(chosen | strategy),
    )
    return Learner(made, plugin, scores, benchmark, model)


def naive_strategy(model: nn.Module, **chosen: Any) -> Naive:
    """Make a naive strategy."""
    settings: dict[str, Any] = {"train_mb_size": 8, "train_epochs": 1, "eval_mb_size": 32}
    settings |= {"optimizer": sgd(model), "evaluator": quiet_evaluator()}
    return Naive(model=model, **(settings | chosen))


def text_learner(
    folder: Path,
    tasks: Sequence[str | TextTask] = TASKS[:2],
    *,
    family: str = "encoder",
    dtype: str = "float32",
    precision: str = "fp32",
    max_length: int = 24,
    grafting: dict[str, Any] | None = None,
    **chosen: Any,
) -> Learner:
    """Make a grafting strategy over text tasks, some of them built-in ones, by name."""
    loaded = load_model(str(folder), family=family, dtype=dtype, precision=precision)
    stream = text_stream(
        [_task(task) if isinstance(task, str) else task for task in tasks],
        loaded.tokenizer,
        family=family,
        max_length=max_length,
    )
    model = text_model(loaded, stream, seed=0)
    dev = stream.benchmark.streams["valid"]
    chosen = {"criterion": stream.criterion} | chosen
    return learner(model, stream.benchmark, grafting={"dev": dev} | (grafting or {}), **chosen)


def vector_stream(
    tasks: int = 3,
    *,
    classes: Sequence[Sequence[int]] | None = None,
    labels: Sequence[int] | None = None,
    shape: Sequence[int] = (12,),
    rows: int = 32,
) -> Any:
    """A benchmark of separable random tensors.

    Args:
        tasks: Number of experiences, where no labels say it.
        classes: The classes of each experience; (0, 1) in all by default.
        labels: Task labels; None makes a benchmark without any.
        shape: Shape of an input.
        rows: Rows an experience and split.
    """
    tasks = len(labels) if labels is not None else tasks
    classes = classes or [(0, 1)] * tasks
    streams: dict[str, list[Any]] = {"train": [], "test": []}
    for number in range(tasks):
        generator = torch.Generator().manual_seed(number)
        centres = torch.randn(2, *shape, generator=generator)
        for split in streams.values():
            which = torch.arange(rows) % 2
            inputs = centres[which] + torch.randn(rows, *shape, generator=generator)
            targets = torch.tensor(list(classes[number]))[which]
            label = labels[number] if labels is not None else 0
            split.append(
                TaskAwareSupervisedClassificationDataset(
                    [TensorDataset(inputs, targets)],
                    data_attributes=[
                        DataAttribute(targets.tolist(), "targets"),
                        TaskLabels(ConstantSequence(label, rows)),
                    ],
                )
            )
    benchmark = benchmark_from_datasets(**streams)
    if labels is not None:
        benchmark = with_task_labels(benchmark)
    for stream in benchmark.streams.values():
        for experience, own in zip(stream, classes, strict=True):
            experience.classes_in_this_experience = list(own)
    return benchmark


def forgets_no_bit(scores: StreamScores, tasks: int = 3) -> bool:
    """Tell whether the logits of every task kept their bits from the day it was learned."""
    return all(
        scores.logit_hash(i, j) == scores.logit_hash(j, j)
        for j in range(tasks)
        for i in range(j, tasks)
    )


def same_entries(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Tell whether entries have the same grafts, heads and weights to the bit."""
    return all(
        a.owned.same_bits(b.owned)
        and a.weights_sha256 == b.weights_sha256
        and hash_tensors(a.head) == hash_tensors(b.head)
        for a, b in zip(one, other, strict=True)
    )


def bits(model: nn.Module) -> str:
    """Hash every parameter and buffer outside the task heads, as the model stands."""
    return hash_tensors(base_tensors(model))


def base_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copy every parameter and buffer outside the task heads."""
    heads = tuple(f"{path}." for path in find_head_paths(model))
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        name: tensor.detach().clone()
        for name, tensor in tensors.items()
        if not (heads and name.startswith(heads))
    }


@lru_cache
def _task(name: str) -> TextTask:
    task = load_task(name, shots=16, data_seed=0, max_test=24)
    return replace(task, prompt=MASKED_PROMPTS.get(name, task.prompt))
