"""Sets of entries as runs of consecutive positions: the prefix of an entry is one, however long."""

from __future__ import annotations

from collections.abc import Sequence

from cl_graft.grafts.bank import GraftBank

Span = tuple[int, int]
"""Entries of a bank, from and to (exclusive)."""

Spans = tuple[Span, ...]
"""Runs of entries, ascending; between two of them lies at least one entry."""


def to_spans(positions: Sequence[int]) -> Spans:
    """Return ascending positions as spans."""
    spans: list[Span] = []
    for place in positions:
        if spans and spans[-1][1] == place:
            spans[-1] = spans[-1][0], place + 1
        else:
            spans.append((place, place + 1))
    return tuple(spans)


def answer_spans(bank: GraftBank, position: int | None) -> Spans:
    """Return the entries whose values answer one: its own and those that it builds on."""
    if position is None:
        return ()
    if bank.entries[position].builds_on is None:  # in one step, however long the prefix
        return ((0 if bank.mode == "prefix" else position, position + 1),)
    return to_spans((*bank.builds_on(position), position))


def subtract(spans: Spans, others: Spans) -> Spans:
    """Return the entries of `spans` that are not in `others`."""
    left: list[Span] = []
    for low, high in spans:
        for start, end in others:
            if end <= low or start >= high:
                continue
            if start > low:
                left.append((low, start))
            low = end
        if low < high:
            left.append((low, high))
    return tuple(left)


def apart(spans: Spans) -> Spans:
    """Return the entries of spans one by one, for writes whose order counts."""
    return tuple((place, place + 1) for low, high in spans for place in range(low, high))
