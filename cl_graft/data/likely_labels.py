"""A ranking of the columns that may hold labels: by name, and by how well the texts tell them.

A table of tickets has a channel, a language and an intent; each has few values, and the one with
the fewest is not the one that somebody wants to predict from the text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from cl_graft.data.record_files import RecordFile
from cl_graft.runtime.seeding import permutation

__all__ = ["join_values", "likely_labels"]

_MOST_CLASSES = 200
_ROWS = 1000
_FULL = 0.95
"""Share of the rows in which a column of labels has a value."""
_WORDS = 40
_WORD = re.compile(r"\w+")
_PART_OF_A_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LABELS = frozenset(
    (
        *("answer", "category", "class", "emotion", "gold", "intent", "label", "labels"),
        *("queue", "rating", "sentiment", "stars", "tag", "target", "topic"),
    )
)
_CIRCUMSTANCES = frozenset(
    (
        *("age", "author", "channel", "city", "country", "created", "date", "day", "device"),
        *("domain", "fold", "gender", "hour", "id", "index", "lang", "language", "locale"),
        *("month", "platform", "region", "source", "split", "time", "user", "version", "year"),
    )
)


def likely_labels(file: RecordFile, text: str, text_pair: str | None) -> dict[str, int]:
    """Rank the columns that may hold the labels of a table's texts.

    These are the columns of 2 to 200 values, at most half as many as there are rows, that have a
    value in 19 of 20 rows. Names that mean a label (intent, category) go before others, and those
    that mean a circumstance (channel, date) after them; among these, first comes what a naive Bayes
    classifier of words tells best on rows that it was not fitted on.

    Args:
        file: The table.
        text: Column of the texts.
        text_pair: Column of the second texts; None if there are none.

    Returns:
        The number of different values by column, the likeliest first.
    """
    ranks: dict[str, tuple[int, float, int]] = {}
    rows = [record.values for record in file.records]
    drawn = [rows[i] for i in permutation(len(rows), 0, "likely labels")[:_ROWS].tolist()]
    texts = [f"{row.get(text)} {row.get(text_pair or '') or ''}" for row in drawn]
    words = [Counter(_WORD.findall(each.casefold())[:_WORDS]) for each in texts]
    for column in file.columns:
        known = [str(row[column]) for row in rows if row.get(column) not in (None, "")]
        different = len(set(known))
        full = len(known) >= _FULL * len(rows)
        few = 1 < different <= min(_MOST_CLASSES, len(rows) // 2)
        if column not in (text, text_pair) and full and few:
            values = [str(row.get(column)) for row in drawn]
            ranks[column] = (_rank_name(column), -_measure_gain(words, values), different)
    return {column: ranks[column][2] for column in sorted(ranks, key=ranks.__getitem__)}


def join_values(columns: Mapping[str, int]) -> str:
    """Write columns with the number of their values.

    Examples:
        >>> join_values({"stars": 5, "lang": 3})
        'stars (5 values), lang (3 values)'
    """
    return ", ".join(f"{column} ({values:,} values)" for column, values in columns.items())


def _rank_name(column: str) -> int:
    parts = {part.lower() for part in _PART_OF_A_NAME.findall(column)}
    if parts & _LABELS:
        return 0
    return 2 if parts & _CIRCUMSTANCES else 1


def _measure_gain(words: Sequence[Counter[str]], values: Sequence[str]) -> float:
    """Return by how much words tell values better than the most frequent value does.

    Naive Bayes, fitted on half of the rows and tried on the other half.

    Returns:
        (right - r) / (1 - r) for the share r of the most frequent value, rounded to tenths; 0 if
        it is negative, or that value has all rows.
    """
    seen: dict[str, Counter[str]] = {}
    half = len(values) // 2
    rows = Counter(values[half:])
    for counted, value in zip(words[half:], values[half:], strict=True):
        seen.setdefault(value, Counter()).update(counted)
    known = len(set().union(*seen.values()))
    totals = {value: counted.total() + known for value, counted in seen.items()}
    right = 0
    for counted, value in zip(words[:half], values[:half], strict=True):
        scores = {
            guess: math.log(rows[guess])
            + sum(n * math.log((own[word] + 1) / totals[guess]) for word, n in counted.items())
            for guess, own in seen.items()
        }
        right += max(scores, key=scores.__getitem__) == value
    most = max(Counter(values[:half]).values(), default=0)
    return max(0.0, round((right - most) / (half - most), 1)) if half > most else 0.0
