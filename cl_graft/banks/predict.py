"""Answers of a bank to many texts, in batches of one task each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cl_graft.banks.input_texts import InputText, check_texts
from cl_graft.banks.open_bank import Answer, OpenBank
from cl_graft.errors import InputError
from cl_graft.grafts.bank import GraftBank, find_entries, find_entry
from cl_graft.kinds import find_kind

_CHUNK = 32  # batches of texts that are sorted by task together


def predict(
    opened: OpenBank, texts: Sequence[InputText], *, batch_size: int = 32
) -> Iterator[tuple[InputText, Answer]]:
    """Answer every text with the latest entry of its task, in the order in which they came.

    A batch holds texts of one task that stand near each other, so the same texts in the same order
    with the same `batch_size` give the same bits on the same machine.

    Raises:
        InputError: Before anything is answered, with file and line, if a text has no such task, or
            is none that it answers.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    check_texts(opened.bank, texts)
    return _answers(opened, texts, batch_size)


def list_calibration_notes(bank: GraftBank, tasks: Sequence[str]) -> list[str]:
    """Say of each task whether its confidence is calibrated, and on how many rows."""
    notes: list[str] = []
    for task in dict.fromkeys(tasks):
        metadata = bank.entries[find_entry(bank, task)].metadata
        found = metadata.get("temperature")
        if isinstance(found, dict):
            notes.append(
                f"{task}: confidence is calibrated (temperature {found['value']:.3g}, fitted on "
                f"{found['rows']} dev rows; their ECE went from {100 * found['ece_before']:.1f} to "
                f"{100 * found['ece_after']:.1f} points)"
            )
        elif find_kind(metadata).needs_classes or metadata.get("intent_names"):
            notes.append(
                f"{task}: confidence is not calibrated, but the model's plain softmax: the bank "
                "holds no temperature for it"
            )
    return notes


def list_entry_notes(bank: GraftBank, tasks: Sequence[str]) -> list[str]:
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
    opened: OpenBank, texts: Sequence[InputText], batch_size: int
) -> Iterator[tuple[InputText, Answer]]:
    for first in range(0, len(texts), _CHUNK * batch_size):
        chunk = texts[first : first + _CHUNK * batch_size]
        by_task: dict[str | int, list[int]] = {}
        for place, one in enumerate(chunk):
            by_task.setdefault(one.task, []).append(place)
        found: dict[int, Answer] = {}
        for places in by_task.values():
            asked = [chunk[place] for place in places]
            answers = opened.answer(asked, batch_size=batch_size)
            found |= dict(zip(places, answers, strict=True))
        yield from ((one, found[place]) for place, one in enumerate(chunk))
