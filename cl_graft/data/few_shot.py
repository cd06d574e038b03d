"""Few-shot samples: k rows a class from the training rows, and a dev split that always exists.

LM-BFF's protocol (https://arxiv.org/abs/2012.15723, section 3): shuffle with the data seed, the
first k rows of each class train, the next k select. Where the data leave no such dev split, 5 % of
the training rows serve (grafting paper, appendix B.2, https://arxiv.org/abs/2302.06600). A smaller
k is a part of a larger one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cl_graft.errors import InputError, join_names
from cl_graft.kinds.rows import Row
from cl_graft.runtime.seeding import permutation

_DEV_SHARE = 0.05
_TEST_SHARE = 0.2
_LARGE_CLASS = 10

HELD_OUT = "; a fifth of the rows is held out for test: give a test file, or more rows"
"""End of an error on data that came without a test split."""


@dataclass(frozen=True, slots=True)
class FewShot:
    """Training and dev rows, in the order of the file, and how they were chosen, as JSON."""

    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    rule: Mapping[str, object]


def few_shot(
    rows: Sequence[Row],
    *,
    label_names: Sequence[str],
    shots: int | None,
    data_seed: int,
    dev: Sequence[Row] | None = None,
) -> FewShot:
    """Choose training and dev rows.

    With `shots` = k ≥ 1, the first k rows of each class, or all if it has fewer, after a shuffle by
    `data_seed`, train and the next m of each are dev, where m is k, or what the smallest class has
    left. Dev is 5 % of the training rows instead, at least one of each class that has two, if m of
    each are fewer than that. A dev split that came with the data gives the dev rows instead (at
    most k a class), unless all its rows are of one class. With `shots` = None all rows train, and
    dev is the data's own split, or 5 %. For a regression (`label_names` empty) all rows are one
    class.

    `rule` says how dev was chosen (``dev``), and what a reader may not expect of it (``note``).

    Raises:
        InputError: If a class has no row, or there are too few rows to hold any out for dev.

    Examples:
        >>> rows = [Row(f"Text {n}", None, n % 2) for n in range(20)]
        >>> chosen = few_shot(rows, label_names=("even", "odd"), shots=3, data_seed=0)
        >>> len(chosen.train), len(chosen.dev)
        (6, 6)
    """
    if shots is not None and shots < 1:
        raise InputError(f"shots must be at least 1 row a class, got {shots}")
    classes = _group_by_class(rows, label_names, data_seed)
    if empty := [name for name, order in classes.items() if not order]:
        of = f" of {join_names(empty)}" if empty != [""] else ""
        raise InputError(f"there is no training row{of}")

    train = sorted(index for order in classes.values() for index in order[:shots])
    rule: dict[str, object] = {
        "train": "all rows" if shots is None else f"{shots} rows a class",
        "shots": shots,
        "data_seed": data_seed,
    }
    held = _hold_out_dev(classes, set(train))
    dev_rows: Sequence[Row] = ()
    note = ""
    if dev is not None:
        dev_rows, note = _choose_own_dev(dev, label_names, shots, data_seed)
        rule["dev"] = "the data's own dev split"
    elif shots is not None:
        most = min(min(shots, max(0, len(order) - shots)) for order in classes.values())
        if most * len(classes) < len(held):
            spare = f"{most or 'no'} row{'s' if most > 1 else ''} to spare"
            note = f"the smallest class has {spare}" if label_names else f"there is {spare}"
        else:
            chosen = sorted(i for order in classes.values() for i in order[shots : shots + most])
            dev_rows = [rows[index] for index in chosen]
            rule["dev"] = f"the next {most} rows a class"

    if not dev_rows:
        if not held:
            raise InputError(
                f"{len(train)} training rows are too few to hold out any for a dev split: at least "
                "one class with two rows is needed"
            )
        dev_rows = [rows[index] for index in sorted(held)]
        train = [index for index in train if index not in held]
        rule["dev"] = "5% of the training rows"
        note = f"dev is 5% of the training rows, since {note}" if note else ""
    few = [f"{n} {len(order)}".strip() for n, order in classes.items() if len(order) < (shots or 0)]
    short = f"fewer than {shots} rows, all of which serve: {join_names(few)}" if few else ""
    notes = (short, note, name_missing("dev", dev_rows, label_names))
    if note := "; ".join(filter(None, notes)):
        rule["note"] = note

    train_rows = tuple(rows[index] for index in train)
    rule |= {
        "train_rows": _count_rows(train_rows, label_names),
        "dev_rows": _count_rows(dev_rows, label_names),
    }
    return FewShot(train_rows, tuple(dev_rows), rule)


def hold_out_test(
    rows: Sequence[Row], *, data_seed: int, label_names: Sequence[str] = ()
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Split rows 80/20 into training and test rows, for data that come without a test split.

    Each class gives a fifth of its texts, and keeps one that trains. Rows of the same inputs stay
    together, so no test row stands in train; so do those that are scored together. Both parts keep
    the order of the file.
    """
    groups: dict[object, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(getattr(row, "group", "") or row.inputs, []).append(index)
    names = _name_classes(rows, label_names)
    classes: dict[str, list[list[int]]] = {}
    for group in groups.values():
        classes.setdefault(names[group[0]], []).append(group)
    test: set[int] = set()
    for name, groups_of_class in classes.items():
        held = round(_TEST_SHARE * len(groups_of_class))
        keys = ["test", name] if name else ["test"]
        order = permutation(len(groups_of_class), data_seed, *keys)[:held].tolist()
        test.update(index for number in order for index in groups_of_class[number])
    if not test:  # of a few texts a class
        largest = max(classes.values(), key=len)
        if len(largest) < 2:
            what = "have the same text" if len(groups) < 2 else "are of different classes"
            raise InputError(
                "the data have no dev and no test split, and test rows cannot be held out, as all "
                f"{len(rows)} rows {what}"
            )
        test.update(largest[-1])
    return (
        tuple(row for index, row in enumerate(rows) if index not in test),
        tuple(row for index, row in enumerate(rows) if index in test),
    )


def _name_classes(rows: Sequence[Row], label_names: Sequence[str]) -> list[str]:
    """Return the class of each row: its label, or its answer where few answers stand for labels.

    So a task of labels has the same test rows when it is read as text to text.
    """
    if label_names:
        return [label_names[int(row.label)] for row in rows]
    answers = [str(*getattr(row, "targets", ())[:1]) for row in rows]
    return answers if len(set(answers)) <= len(rows) * _TEST_SHARE else [""] * len(rows)


def _group_by_class(
    rows: Sequence[Row], label_names: Sequence[str], data_seed: int
) -> dict[str, list[int]]:
    """Return the row numbers of each class, shuffled. Keys are names, as ids differ by source."""
    members: dict[str, list[int]] = {name: [] for name in label_names or ("",)}
    for index, row in enumerate(rows):
        members[label_names[int(row.label)] if label_names else ""].append(index)
    return {
        name: [indices[number] for number in permutation(len(indices), data_seed, "shots", name)]
        for name, indices in members.items()
    }


def _choose_own_dev(
    dev: Sequence[Row], label_names: Sequence[str], shots: int | None, data_seed: int
) -> tuple[list[Row], str]:
    """Return the rows of the data's own dev split, or none and why it cannot serve."""
    classes = _group_by_class(dev, label_names, data_seed)
    present = [name for name, order in classes.items() if order]
    if label_names and len(present) == 1:
        return [], f"all rows of the data's own dev split are of the class {present[0]!r}"
    chosen = sorted(index for order in classes.values() for index in order[:shots])
    return [dev[index] for index in chosen], ""


def name_single(rows: Sequence[Row], label_names: Sequence[str]) -> str:
    """Say in a sentence which classes have one training row among larger ones; empty if none."""
    counts = _count_rows(rows, label_names)
    single = [name for name, count in counts.items() if count == 1]
    if not single or max(counts.values()) < _LARGE_CLASS:
        return ""
    return f"train has a single row of {join_names(single)}: a class, or a fault of that row?"


def name_missing(split: str, rows: Sequence[Row], label_names: Sequence[str]) -> str:
    """Say in a sentence which classes have no row in a split; empty if all have."""
    lacking = [name for name, count in _count_rows(rows, label_names).items() if not count]
    return f"{split} has no row of {join_names(lacking)}" if label_names and lacking else ""


def _hold_out_dev(classes: Mapping[str, Sequence[int]], train: set[int]) -> set[int]:
    """Choose the last 5 % of each class's shuffle, at least one where a class has several rows."""
    held: set[int] = set()
    for order in classes.values():
        training = [index for index in order if index in train]
        if len(training) > 1:
            held.update(training[-max(1, round(_DEV_SHARE * len(training))) :])
    return held


def _count_rows(rows: Sequence[Row], label_names: Sequence[str]) -> dict[str, int]:
    if not label_names:
        return {"all": len(rows)}
    counts = dict.fromkeys(label_names, 0)
    for row in rows:
        counts[label_names[int(row.label)]] += 1
    return counts
