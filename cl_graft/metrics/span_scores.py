"""Metrics of tagging (spans, intents) and of extracted or short answers (F1, exact match).

Tags are numbered so that scores need no names: 0 is O, 2 t + 1 is B of type t, 2 t + 2 is I of it.
The first token of a row has no tag; where rows have an intent, it has that in place of one.
"""

from __future__ import annotations

import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from cl_graft.metrics.task_score import register_metric


def write_tag(number: int) -> str:
    """Write the tag of a number with the type's number as its name, such as ``"B-0"``.

    Examples:
        >>> write_tag(0), write_tag(1), write_tag(2)
        ('O', 'B-0', 'I-0')
    """
    return f"{'B' if number % 2 else 'I'}-{(number - 1) // 2}" if number else "O"


def list_tags(types: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tags of span types, in the order of their numbers.

    Examples:
        >>> list_tags(["PER", "LOC"])
        ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC')
    """
    return ("O", *(f"{mark}-{name}" for name in types for mark in "BI"))


@register_metric("span_f1", kind="tagging")
def _span_f1(logits: Tensor, labels: Tensor, classes: int) -> float:
    from seqeval.metrics import f1_score

    pairs = _read_tags(logits, labels)
    right, predicted = [tags for tags, _ in pairs], [tags for _, tags in pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy's, about a mean of no types
        value: Any = f1_score(right, predicted, zero_division=0)  # pyright: ignore[reportArgumentType]
    return float(value)


def count_spans(logits: Tensor, labels: Tensor, *, types: int) -> Counter[tuple[int, int]]:
    """Count spans by their right type and the type that is answered.

    A span of other bounds is another span: the number `types` stands for one that is not there.
    """
    from seqeval.metrics.sequence_labeling import get_entities

    counts: Counter[tuple[int, int]] = Counter()
    for tags in _read_tags(logits, labels):
        right, answered = (
            {(first, last): int(name) for name, first, last in get_entities(row_tags)}
            for row_tags in tags
        )
        for bounds in right | answered:
            counts[right.get(bounds, types), answered.get(bounds, types)] += 1
    return counts


def _read_tags(logits: Tensor, labels: Tensor) -> list[tuple[list[str], list[str]]]:
    """Return the right and the answered tags of each row's words."""
    _check_shape(logits)
    pairs = []
    for row, targets in zip(logits[:, 1:].argmax(-1), labels[:, 1:], strict=True):
        tagged = targets >= 0
        pairs.append(tuple([write_tag(n) for n in t[tagged].tolist()] for t in (targets, row)))
    return pairs


@register_metric("intent_accuracy", kind="tagging")
def _intent_accuracy(logits: Tensor, labels: Tensor, classes: int) -> float:
    _check_shape(logits)
    if bool((labels[:, 0] < 0).any()):
        raise ValueError("rows without an intent have no intent_accuracy; use 'span_f1'")
    return float((logits[:, 0].argmax(-1) == labels[:, 0]).double().mean())


@register_metric("frame_accuracy", kind="tagging")
def _frame_accuracy(logits: Tensor, labels: Tensor, classes: int) -> float:
    _check_shape(logits)
    wrong = (logits.argmax(-1) != labels) & (labels >= 0)
    return float((~wrong.any(1)).double().mean())


def _check_shape(logits: Tensor) -> None:
    if logits.ndim != 3:
        raise ValueError(
            f"scores of tags need logits of shape (n, L, K), got {tuple(logits.shape)}"
        )


@register_metric("answer_f1", kind=("extractive_qa", "text2text"), of_texts=True)
def _answer_f1(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    return _average_best(answers, right, _share_words)


@register_metric("exact_match", kind=("extractive_qa", "text2text"), of_texts=True)
def _exact_match(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    return _average_best(answers, right, lambda said, given: float(said == given))


def _average_best(
    answers: Sequence[str],
    right: Sequence[Sequence[str]],
    compare: Callable[[list[str], list[str]], float],
) -> float:
    """Compare each answer with the right one that is nearest, as SQuAD's script does.

    The script: https://arxiv.org/abs/1606.05250.
    """
    best = [
        max(compare(_split_words(said), _split_words(text)) for text in texts)
        for said, texts in zip(answers, right, strict=True)
    ]
    return sum(best) / len(best)


def _split_words(text: str) -> list[str]:
    """Return the words of a text without case, punctuation and articles."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def _share_words(said: list[str], given: list[str]) -> float:
    """Return the F1 of the words of an answer; where a side has none, whether both have none."""
    if not said or not given:
        return float(said == given)
    shared = sum((Counter(said) & Counter(given)).values())
    return 2 * shared / (len(said) + len(given))
