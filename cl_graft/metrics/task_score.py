"""Score, loss and agreement of a task's logits.

A score is one number from logits and labels, by the metric that the task names.

Metrics are registered by name, so that a task's settings, a bank and results name them alike, and
so that other packages can add their own.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.errors import InputError, NotFinite
from cl_graft.runtime.registry import Registry

NO_TARGET = -100
"""Target of a token that has no answer."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    Attributes:
        compute: Function of logits, labels and the number of classes that returns the score; of
            `of_texts`, function of the answers and the right answers of each row.
        kinds: Names of the kinds of tasks that it scores.
        of_texts: Whether it compares texts, not tensors.
        of_groups: Whether its function gets the group of each row, too.
    """

    compute: Callable[..., float]
    kinds: tuple[str, ...] = ("classification",)
    of_texts: bool = False
    of_groups: bool = False


class Scorer(Protocol):
    """Scores outputs where a metric needs more than tensors, such as the texts of passages."""

    @property
    def name(self) -> str:
        """Name of the metric."""
        ...

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the score of outputs, (n, …), whose targets, (n, …), name their rows."""
        ...

    def references(self, targets: Tensor) -> object:
        """Return what outputs with these targets are compared with, as JSON: a part of cache keys.

        It holds all that decides the score beside outputs and targets, such as right answers.
        """
        ...


def _load_metrics() -> None:
    # By name, as these modules import this one.
    for name in ("span_scores", "text_scores"):
        import_module(f"cl_graft.metrics.{name}")


METRICS: Registry[Metric] = Registry("metric", group="cl_graft.metrics", load_own=_load_metrics)
"""Metrics by name."""


_Function = TypeVar("_Function", bound=Callable[..., float])


def register_metric(
    name: str,
    *,
    kind: str | tuple[str, ...] = "classification",
    of_texts: bool = False,
    of_groups: bool = False,
) -> Callable[[_Function], _Function]:
    """Register a function as the metric that tasks can name; used as a decorator.

    The function gets logits (floating, shape (n, K), on the CPU), labels (shape (n,), class ids or
    real values) and the number of the task's own classes. It returns a finite number, higher is
    better; tables show it in percent. Columns from the number of classes on are labels of other
    tasks: a prediction in one of them is never right.

    A package that is installed beside this one registers its metrics when this package looks one
    up: it names its module as an entry point of the group ``cl_graft.metrics``.

    Args:
        name: Name of the metric: lower-case letters, digits and underscores.
        kind: Kind of tasks, or several: ``"classification"``; ``"regression"``, whose logits have
            shape (n, 1); ``"tagging"``, whose logits have shape (n, L, K) and whose labels, (n, L),
            are negative at tokens without a tag; or any other that is registered, with logits of
            shape (n, P, K) and labels of shape (n, P), or as those of rows.
        of_texts: Whether the function gets texts: a sequence of n answers, and a sequence of the n
            lists of right answers.
        of_groups: Whether a function of texts gets a third argument: a sequence of n values, equal
            where rows belong together, such as the slots of a turn of a dialogue.

    Raises:
        ValueError: If the name is taken, or cannot be a name; or if a metric has groups and no
            texts.

    Examples:
        >>> @register_metric("share_of_errors_avoided")
        ... def share_of_errors_avoided(logits, labels, classes):
        ...     wrong = (logits.argmax(dim=1) != labels).double().mean()
        ...     return float(1 - wrong * classes / (classes - 1))
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the name of a metric is lower-case letters, digits and underscores, got {name!r}"
        )

    if of_groups and not of_texts:
        raise ValueError(f"the metric {name!r} of groups compares texts; pass of_texts=True")

    def register(function: _Function) -> _Function:
        kinds = (kind,) if isinstance(kind, str) else kind
        METRICS.register(name, Metric(function, kinds, of_texts, of_groups))
        return function

    return register


def score(
    logits: Tensor, labels: Tensor, metric: str | Scorer, *, classes: int | None = None
) -> float:
    """Return the score of predictions by `metric`.

    Args:
        logits: Floating, shape (n, K); (n, 1) for regression. Of equal logits the first class is
            the prediction.
        labels: Shape (n,); integers in [0, K), or real values for regression.
        metric: One of `METRICS`:
            `accuracy`: share of right predictions, in [0, 1].
            `f1`: of class 1 where there are two classes (as GLUE scores MRPC and QQP,
            https://arxiv.org/abs/1804.07461), else the mean over classes (as SuperGLUE scores CB,
            https://arxiv.org/abs/1905.00537); in [0, 1].
            `f1_of_class_0`: of class 0 of two classes, for a task whose positive label is the
            first (`TextTask.scored_by`).
            `matthews`: Matthews correlation coefficient (as GLUE scores CoLA), in [-1, 1]; 0 where
            all predictions or all labels are one class.
            `pearson`: correlation of predicted and given values (as GLUE scores STS-B), in
            [-1, 1]; 0 where either side is constant.
            `spearman`: the same of their ranks, the other score of STS-B; equal values share their
            mean rank.
            `span_f1`: micro-averaged F1 of tagged spans, a span being right if its type and both
            its ends are, as CoNLL's script scores them; in [0, 1].
            `intent_accuracy`, `frame_accuracy`: share of rows whose intent is right, and of those
            whose intent and tags all are; in [0, 1].
            `micro_f1`, `macro_f1`: of rows with several labels, the F1 of all labels together, and
            the mean of each label's over those that a row has or gets; in [0, 1].
            `subset_accuracy`: share of rows that get all their labels and no other, in [0, 1].
            A scorer is called with logits and labels, and knows its rows.
        classes: How many of the columns are the task's own, the first ones: a prediction in a later
            one is another task's, and never right. None means all.

    Raises:
        InputError: If the metric is unknown, or returns no finite number.
        ValueError: If shapes or values do not fit the metric.

    Examples:
        >>> score(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]), "accuracy")
        0.5
    """
    known = METRICS.find(metric) if isinstance(metric, str) else None
    if known is not None and known.of_texts:
        raise ValueError(f"the metric {metric!r} compares texts; pass the scorer of the task")
    rows = known is not None and not {"classification", "regression"}.isdisjoint(known.kinds)
    fitting = labels.shape == logits.shape[:-1] and (logits.ndim == 2 or not rows)
    if known is not None and (not fitting or 0 in logits.shape):
        wanted = ("(n, K)", "(n,)") if rows else ("(n, P, K)", "(n, P)")
        raise ValueError(
            f"expected logits of shape {wanted[0]} and labels of shape {wanted[1]} with at least "
            f"one row, got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if not torch.isfinite(logits).all():
        raise NotFinite("logits hold NaN or infinite values; did the training diverge?")
    logits, labels = logits.detach().cpu(), labels.detach().cpu()
    if known is not None:
        value = float(
            known.compute(logits, labels, logits.shape[-1] if classes is None else classes)
        )
    else:
        value = float(metric(logits, labels))  # pyright: ignore[reportCallIssue]
    if not math.isfinite(value):
        name = metric if isinstance(metric, str) else metric.name
        raise InputError(f"the metric {name!r} returned {value}; expected a finite number")
    return value


def agreement(first: Tensor, second: Tensor) -> float:
    """Return the share of rows on which two models predict the same class, in [0, 1].

    The agreement of a grafted model with the fine-tuned one is that of Panigrahi et al., 2023,
    Table 2 (https://arxiv.org/abs/2302.06600).

    Args:
        first: Logits or probabilities, of shape (n, K); of equal ones the first class counts.
        second: The other model's, of the same shape.

    Raises:
        ValueError: If shapes differ, or there are no rows.

    Examples:
        >>> first = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
        >>> agreement(first, torch.tensor([[1.0, 0.0], [5.0, 4.0]]))
        0.5
    """
    if first.ndim != 2 or first.shape != second.shape or 0 in first.shape:
        raise ValueError(
            "expected two tensors of one shape (n, K) with at least one row, "
            f"got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    return float((first.argmax(dim=1) == second.argmax(dim=1)).double().mean())


def task_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a batch.

    Args:
        logits: Logits, shape (n, K); (n, 1) for a regression; (n, P, K) where a row has P answers,
            such as a tag for each token, or the start and the end of a span. Of free text, (n, 2W):
            token ids, then the log-probability of each right token.
        targets: Targets, shape (n,): class ids, or real numbers for a regression; or shape (n, Q)
            with Q >= P, class ids of which the first P count, −100 where there is no answer.
            Text that was decoded, beside targets without an answer, has no loss: it is NaN.

    Returns:
        A scalar: the cross-entropy, where a row has several answers the mean over rows of its mean;
        for real targets the mean squared error, which GLUE's STS-B is trained with
        (https://arxiv.org/abs/1810.04805, Section 4.1).

    Examples:
        >>> task_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))  # ln 2
        tensor(0.6931)
    """
    if targets.is_floating_point():
        return F.mse_loss(logits[:, 0].float(), targets)
    if targets.ndim == 1:
        return F.cross_entropy(logits, targets)
    if logits.ndim == 2:
        return _text_loss(logits, targets)
    answered = targets[:, : logits.shape[1]]
    each = F.cross_entropy(
        logits.flatten(0, 1).float(), answered.flatten(), ignore_index=NO_TARGET, reduction="none"
    ).view_as(answered)
    # The mean of each row, so that the loss of a batch is the mean of those of its parts.
    return (each.sum(1) / (answered != NO_TARGET).sum(1).clamp(min=1)).mean()


def _text_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    width = outputs.shape[1] // 2
    lengths = (targets[:, :width] != NO_TARGET).sum(1)
    if not bool((lengths > 0).all()):
        return outputs.new_tensor(torch.nan)
    # No wider than the longest answer: zeros behind it would change the rounding of the sum.
    each = -outputs[:, width : width + int(lengths.max())]
    return (each.sum(1) / lengths).mean()


class TaskLoss(nn.Module):
    """`task_loss` as a module, for hosts that take one."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return task_loss(logits, targets)


# torchmetrics is imported where it is used: its import pulls in transformers and takes seconds.


@register_metric("accuracy")
def _accuracy(logits: Tensor, labels: Tensor, classes: int) -> float:
    _check_classes(labels, classes)
    return float((logits.argmax(dim=1) == labels).double().mean())


@register_metric("f1")
def _f1(logits: Tensor, labels: Tensor, classes: int) -> float:
    from torchmetrics.functional.classification import multiclass_f1_score

    _check_classes(labels, classes)
    predicted = _predict(logits, classes)
    if classes == 2:
        return _binary_f1(predicted, labels, positive=1)
    by_class = multiclass_f1_score(predicted, labels, num_classes=classes + 1, average="none")
    present = torch.cat([predicted, labels]).unique()
    return float(by_class[present[present < classes]].mean())


@register_metric("f1_of_class_0")
def _f1_of_class_0(logits: Tensor, labels: Tensor, classes: int) -> float:
    _check_classes(labels, classes)
    if classes != 2:
        raise ValueError(f"the F1 of class 0 is of two classes, got {classes}; use 'f1'")
    return _binary_f1(_predict(logits, classes), labels, positive=0)


def _binary_f1(predicted: Tensor, labels: Tensor, *, positive: int) -> float:
    from torchmetrics.functional.classification import binary_f1_score

    return float(binary_f1_score((predicted == positive).long(), (labels == positive).long()))


@register_metric("matthews")
def _matthews(logits: Tensor, labels: Tensor, classes: int) -> float:
    from torchmetrics.functional.classification import multiclass_matthews_corrcoef

    _check_classes(labels, classes)
    predicted = _predict(logits, classes)
    if predicted.unique().numel() == 1 or labels.unique().numel() == 1:
        return 0.0
    return float(multiclass_matthews_corrcoef(predicted, labels, num_classes=classes + 1))


def _predict(logits: Tensor, classes: int) -> Tensor:
    """Return predictions, those of other tasks as one class more, which no row has."""
    return logits.argmax(dim=1).clamp(max=classes)


@register_metric("pearson", kind="regression")
def _pearson(logits: Tensor, labels: Tensor, classes: int) -> float:
    from torchmetrics.functional.regression import pearson_corrcoef

    return _correlation(logits, labels, "pearson", pearson_corrcoef)


@register_metric("spearman", kind="regression")
def _spearman(logits: Tensor, labels: Tensor, classes: int) -> float:
    from scipy.stats import spearmanr

    # torchmetrics adds 1e-6 to what it divides by.
    return _correlation(logits, labels, "spearman", lambda a, b: spearmanr(a.numpy(), b.numpy())[0])


def _correlation(
    logits: Tensor, labels: Tensor, name: str, of: Callable[[Tensor, Tensor], Any]
) -> float:
    if logits.shape[1] != 1:
        raise ValueError(f"{name} needs logits of shape (n, 1), got {tuple(logits.shape)}")
    predicted, given = logits[:, 0].double(), labels.double()
    if not torch.isfinite(given).all():
        raise ValueError("labels hold NaN or infinite values")
    if predicted.unique().numel() == 1 or given.unique().numel() == 1:
        return 0.0
    return float(of(predicted, given))


def _check_classes(labels: Tensor, classes: int) -> None:
    if classes < 2:
        raise ValueError(f"a class metric needs at least 2 classes, got {classes}; use 'pearson'")
    if labels.is_floating_point():
        raise ValueError(f"a class metric needs integer labels, got {labels.dtype}")
    first, last = int(labels.min()), int(labels.max())
    if first < 0 or last >= classes:
        raise ValueError(f"labels must be in [0, {classes}), got values in [{first}, {last}]")
