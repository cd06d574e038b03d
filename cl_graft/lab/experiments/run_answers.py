"""The collection of a run's text answers, a few of each task after every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.lab.results.formatting import shorten
from cl_graft.lab.results.shown_answers import ShownAnswer, TaskAnswers
from cl_graft.strategies.stream_scores import StreamScores

__all__ = ["collect_answers"]

_ROWS = 10
"""Rows of a task whose answers are shown."""


def collect_answers(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskAnswers]
) -> dict[str, TaskAnswers]:
    """Return answers to some test rows of each task learned so far that is answered with text.

    Args:
        tasks: The tasks of the stream, in its order.
        scores: Predictions and hashes of their test rows.
        before: Answers that were returned after the previous task; those of earlier tasks, as they
            were when learned, are taken from it.
    """
    found: dict[str, TaskAnswers] = {}
    last = len(scores.order) - 1
    for learned, number in enumerate(scores.order):
        name, compare = tasks[number].task.name, getattr(tasks[number].scorer, "compare", None)
        if compare is None:
            continue
        outputs, targets = scores.predictions(number)
        rows = len(tasks[number].task.test)
        kept = before[name].shown if learned < last and name in before else ()
        shown: list[ShownAnswer] = []
        for place, (text, said, right) in enumerate(compare(outputs, targets, most=_ROWS)):
            first = kept[place].learned if place < len(kept) else None
            then = said if learned == last else first
            shown.append(ShownAnswer(shorten(text), tuple(right), learned=then, now=said))
        same = scores.logit_hash(last, learned) == scores.logit_hash(learned, learned)
        found[name] = TaskAnswers(rows, same, tuple(shown))
    return found
