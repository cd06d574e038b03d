"""Small tasks of several labels a row: records, and a task in memory."""

from __future__ import annotations

from typing import Any

from cl_graft.kinds import TextTask
from cl_graft.kinds.multi_label import LabelledRow

_WORDS = {
    "delivery": "a late parcel",
    "damage": "a torn box",
    "payment": "a wrong bill",
    "staff": "a rude answer",
    "web": "a dead link",
}


def make_labels(count: int, *, seed: int = 0, labels: int = 3) -> list[dict[str, Any]]:
    """Return records of complaints about none, one or two of up to five things."""
    names = sorted(list(_WORDS)[:labels])
    sets = [[], *([name] for name in names), *([a, b] for a in names for b in names if a < b)]
    return [
        {
            "text": f"Number {seed + n} is about {' and '.join(map(_WORDS.get, own)) or 'nothing'}",
            "label_list": own,
        }
        for n in range(count)
        for own in [sets[(n + 1) % len(sets)]]
    ]


def labels_task(count: int = 8, **settings: Any) -> TextTask:
    """Return a task of several labels in memory."""
    names = tuple(sorted(list(_WORDS)[:3]))
    rows = [
        LabelledRow(one["text"], None, 0, tuple(map(names.index, one["label_list"])))
        for one in make_labels(3 * count)
    ]
    splits = rows[:count], rows[count : 2 * count], rows[2 * count :]
    values = {"metric": "micro_f1", "kind": "multi_label", **settings}
    return TextTask("complaints", names, *map(tuple, splits), **values)
