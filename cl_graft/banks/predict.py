"""Answer texts with a bank, task by task, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cl_graft.banks.opening import Answer, OpenedBank
from cl_graft.banks.questions import Question
from cl_graft.data.text_checks import fault_of
from cl_graft.errors import InputError
from cl_graft.grafts.bank import GraftBank, find_entries, find_entry

__all__ = ["calibration_notes", "check_questions", "entry_notes", "predict"]

_CHUNK = 32
"""Batches that are gathered before they are answered: a mixed file is sorted by task in each."""


def predict(
    opened: OpenedBank, questions: Sequence[Question], *, batch_size: int = 32
) -> Iterator[tuple[Question, Answer]]:
    """Answer every text with the latest entry of its task, in the order in which they came.

    A batch holds texts of one task that stand near each other, so the same texts in the same order
    give the same bits.

    Args:
        opened: The bank.
        questions: What is asked.
        batch_size: Rows computed at a time.

    Raises:
        InputError: Before anything is answered, with file and line, if the bank has no such task,
            or a text is none that it answers.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    check_questions(opened.bank, questions)
    return _answers(opened, questions, batch_size)


def check_questions(bank: GraftBank, questions: Sequence[Question]) -> None:
    """Refuse texts that a bank cannot answer.

    Raises:
        InputError: With file and line.
    """
    for question in questions:
        try:
            facts = bank.entries[find_entry(bank, question.task)].facts
        except InputError as error:
            raise InputError(f"{question.place}: {error}") from None
        pair, wanted = question.pair, facts.get("pair")
        if wanted is not None and wanted != (pair is not None):
            raise InputError(
                f"{question.place}: task {question.task!r} answers "
                f"{'pairs of texts, got one text' if wanted else 'single texts, got a pair'}"
            )
        for text in (question.text, pair):
            if text is not None and (fault := fault_of(text)):
                raise InputError(f"{question.place}: the text {fault}")


def calibration_notes(bank: GraftBank, tasks: Sequence[str]) -> list[str]:
    """Say of each task whether its confidence is calibrated, and on how many rows."""
    notes: list[str] = []
    for task in dict.fromkeys(tasks):
        facts = bank.entries[find_entry(bank, task)].facts
        found = facts.get("temperature")
        if isinstance(found, dict):
            notes.append(
                f"{task}: confidence is calibrated (temperature {found['value']:.3g}, fitted on "
                f"{found['rows']} dev rows; their ECE went from {100 * found['ece_before']:.1f} to "
                f"{100 * found['ece_after']:.1f} points)"
            )
        elif facts.get("label_names") != []:
            notes.append(
                f"{task}: confidence is not calibrated, but the model's plain softmax: the bank "
                "holds no temperature for it"
            )
    return notes


def entry_notes(bank: GraftBank, tasks: Sequence[str]) -> list[str]:
    """Say of each task whose name has several entries which of them answers."""
    notes: list[str] = []
    for task in dict.fromkeys(tasks):
        positions = find_entries(bank, task)
        if len(positions) > 1:
            earlier = ", ".join(map(str, positions[:-1]))
            notes.append(
                f"{task}: entry {positions[-1]} answers, the latest of this name; ask an earlier "
                f"one by its position ({earlier})"
            )
    return notes


def _answers(
    opened: OpenedBank, questions: Sequence[Question], batch_size: int
) -> Iterator[tuple[Question, Answer]]:
    for first in range(0, len(questions), _CHUNK * batch_size):
        chunk = questions[first : first + _CHUNK * batch_size]
        by_task: dict[str, list[int]] = {}
        for place, question in enumerate(chunk):
            by_task.setdefault(question.task, []).append(place)
        found: dict[int, Answer] = {}
        for task, places in by_task.items():
            texts = [chunk[place].text for place in places]
            pairs = [pair for place in places if (pair := chunk[place].pair) is not None]
            answers = opened.answer(texts, task=task, pairs=pairs or None, batch_size=batch_size)
            found |= dict(zip(places, answers, strict=True))
        yield from ((question, found[place]) for place, question in enumerate(chunk))
