"""Models with every kind of head that Avalanche has, and streams that they can learn.

A model is built from the seed of its base; its heads are drawn anew with every build, as they are
in another process that rebuilds a base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from avalanche.models import (
    IncrementalClassifier,
    MTSimpleCNN,
    MTSimpleMLP,
    MTSlimResNet18,
    MultiHeadClassifier,
    MultiTaskModule,
    SimpleMLP,
    TrainEvalModel,
    as_multitask,
)
from avalanche.models.simple_sequence_classifier import MTSimpleSequenceClassifier
from tiny_streams import Learner, learner, quick, vector_stream
from torch import Tensor, nn

from cl_graft import GraftBank
from cl_graft.strategies.task_heads import find_head_paths

DIFFERENT = ((0, 1), (2, 3), (4, 5))
SAME = ((0, 1), (0, 1), (0, 1))


class TwoHeads(MultiTaskModule):
    """Two multi-head classifiers whose logits are added."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(12, 16), nn.Tanh())
        self.shallow = MultiHeadClassifier(12, masking=False)
        self.deep = MultiHeadClassifier(16)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        deep = self.deep.forward_single_task(self.features(x), task_label)
        return deep + self.shallow.forward_single_task(x, task_label)


def _features() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh())


_mlp = partial(SimpleMLP, num_classes=2, input_size=12, hidden_size=16)
_multi_task_mlp = partial(MTSimpleMLP, input_size=12, hidden_size=16)


def _incremental(**settings: bool) -> nn.Module:
    return nn.Sequential(_features(), IncrementalClassifier(16, **settings))


def _one_classifier_for_both() -> nn.Module:
    head = IncrementalClassifier(16)
    return TrainEvalModel(_features(), head, head)


@dataclass(frozen=True)
class HeadCase:
    """A kind of head: a model, the classes of each experience, and the shape of an input."""

    build: Callable[[], nn.Module]
    classes: Sequence[Sequence[int]] = DIFFERENT
    shape: Sequence[int] = (12,)
    lr: float = 0.1


HEADS: dict[str, HeadCase] = {
    "MTSimpleMLP": HeadCase(_multi_task_mlp),
    "MTSimpleMLP, same classes": HeadCase(_multi_task_mlp, classes=SAME),
    "MTSimpleCNN": HeadCase(MTSimpleCNN, shape=(3, 16, 16)),
    "MTSlimResNet18": HeadCase(partial(MTSlimResNet18, 2, nf=2), shape=(3, 32, 32), lr=0.01),
    "MTSimpleSequenceClassifier": HeadCase(
        partial(MTSimpleSequenceClassifier, input_size=4, hidden_size=8, rnn_layers=1), shape=(3, 4)
    ),
    "as_multitask": HeadCase(lambda: as_multitask(_mlp(), "classifier")),
    "only MultiHeadClassifier": HeadCase(lambda: MultiHeadClassifier(12)),
    "MultiHeadClassifier without masks": HeadCase(lambda: MultiHeadClassifier(12, masking=False)),
    "two MultiHeadClassifiers": HeadCase(TwoHeads),
    "IncrementalClassifier": HeadCase(_incremental),
    "IncrementalClassifier, same classes": HeadCase(_incremental, classes=SAME),
    "IncrementalClassifier without masks": HeadCase(partial(_incremental, masking=False)),
    "only IncrementalClassifier": HeadCase(lambda: IncrementalClassifier(12)),
    "TrainEvalModel of one classifier": HeadCase(_one_classifier_for_both),
    "shared Linear": HeadCase(_mlp, classes=SAME),
}


def model_of(case: str, *, heads: int) -> nn.Module:
    """Build a model from the base's seed, with heads drawn from the seed `heads`."""
    torch.manual_seed(0)
    model = HEADS[case].build()
    torch.manual_seed(heads)
    paths = find_head_paths(model)
    for name, parameter in model.named_parameters():
        if any(not path or name.startswith(f"{path}.") for path in paths):
            nn.init.normal_(parameter, 0.0, 0.3)
    return model


def made(
    case: str,
    *,
    heads: int = 1,
    bank: GraftBank | None = None,
    mode: Literal["prefix", "isolated"] = "prefix",
    **strategy: Any,
) -> Learner:
    """Make a learner of three experiences, 48 rows each."""
    about = HEADS[case]
    stream = vector_stream(labels=[0, 1, 2], classes=about.classes, shape=about.shape, rows=48)
    return learner(
        model_of(case, heads=heads),
        stream,
        settings=quick(density=0.2, mode=mode),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=about.lr, momentum=0.9),
        train_epochs=6,
        grafting={"bank": bank},
        **strategy,
    )


def accuracy(run: Learner, j: int) -> float:
    """Return the accuracy on experience j when it was last evaluated."""
    logits, targets = run.scores.predictions(j)
    return float((logits.argmax(1) == targets).double().mean())
