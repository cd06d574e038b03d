"""The score of a task: one number from its logits and labels, by the metric the task names."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from cl_graft.errors import NotFinite, find

__all__ = ["METRICS", "score"]


def score(logits: Tensor, labels: Tensor, metric: str, *, classes: int | None = None) -> float:
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
        classes: How many of the columns are the task's own, the first ones: a prediction in a later
            one is another task's, and never right. None means all.

    Raises:
        InputError: If the metric is unknown.
        ValueError: If shapes or values do not fit the metric.
    """
    measure = find(METRICS, metric, missing="unknown metric")
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or 0 in logits.shape:
        raise ValueError(
            "expected logits of shape (n, K) and labels of shape (n,) with at least one row, "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if not torch.isfinite(logits).all():
        raise NotFinite("logits hold NaN or infinite values; did the training diverge?")
    own = logits.shape[1] if classes is None else classes
    return measure(logits.detach().cpu(), labels.detach().cpu(), own)


# torchmetrics is imported where it is used: its import pulls in transformers and takes seconds.


def _accuracy(logits: Tensor, labels: Tensor, classes: int) -> float:
    _check_classes(labels, classes)
    return float((logits.argmax(dim=1) == labels).double().mean())


def _f1(logits: Tensor, labels: Tensor, classes: int) -> float:
    from torchmetrics.functional.classification import multiclass_f1_score

    _check_classes(labels, classes)
    predicted = _predicted(logits, classes)
    if classes == 2:
        return _binary_f1(predicted, labels, positive=1)
    by_class = multiclass_f1_score(predicted, labels, num_classes=classes + 1, average="none")
    present = torch.cat([predicted, labels]).unique()
    return float(by_class[present[present < classes]].mean())


def _f1_of_class_0(logits: Tensor, labels: Tensor, classes: int) -> float:
    _check_classes(labels, classes)
    if classes != 2:
        raise ValueError(f"the F1 of class 0 is of two classes, got {classes}; use 'f1'")
    return _binary_f1(_predicted(logits, classes), labels, positive=0)


def _binary_f1(predicted: Tensor, labels: Tensor, *, positive: int) -> float:
    from torchmetrics.functional.classification import binary_f1_score

    return float(binary_f1_score((predicted == positive).long(), (labels == positive).long()))


def _matthews(logits: Tensor, labels: Tensor, classes: int) -> float:
    from torchmetrics.functional.classification import multiclass_matthews_corrcoef

    _check_classes(labels, classes)
    predicted = _predicted(logits, classes)
    if predicted.unique().numel() == 1 or labels.unique().numel() == 1:
        return 0.0
    return float(multiclass_matthews_corrcoef(predicted, labels, num_classes=classes + 1))


def _predicted(logits: Tensor, classes: int) -> Tensor:
    """Return predictions, those of other tasks as one class more, which no row has."""
    return logits.argmax(dim=1).clamp(max=classes)


def _pearson(logits: Tensor, labels: Tensor, classes: int) -> float:
    del classes
    from torchmetrics.functional.regression import pearson_corrcoef

    return _correlation(logits, labels, "pearson", pearson_corrcoef)


def _spearman(logits: Tensor, labels: Tensor, classes: int) -> float:
    del classes
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


METRICS: MappingProxyType[str, Callable[[Tensor, Tensor, int], float]] = MappingProxyType(
    {
        "accuracy": _accuracy,
        "f1": _f1,
        "f1_of_class_0": _f1_of_class_0,
        "matthews": _matthews,
        "pearson": _pearson,
        "spearman": _spearman,
    }
)
