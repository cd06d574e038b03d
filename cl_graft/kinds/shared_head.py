"""Class ids of tasks that share a head: the same labels, or the classes of all tasks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
from cl_graft.kinds.text_task import TextTask


def share_labels(tasks: Sequence[TextTask]) -> tuple[TextTask, ...]:
    """Number the labels of all tasks in the order of the first task's (domain-incremental).

    Raises:
        InputError: If one has other labels.
    """
    first, names = tasks[0], tasks[0].label_names
    shared: list[TextTask] = []
    for task in tasks:
        if set(task.label_names) != set(names):
            raise InputError(
                "domain-incremental tasks share their labels, but those of "
                f"{first.name!r} are {', '.join(first.label_names)}, and those of {task.name!r} "
                f"{', '.join(task.label_names)}; "
                "label_names of load_task, or in a config "
                f"stream.task_settings.{task.name}.label_names can name them alike"
            )
        numbers = [names.index(name) for name in task.label_names]
        renumbered = {
            split: tuple(Row(row.text, row.text_pair, numbers[int(row.label)]) for row in rows)
            for split, rows in task.splits.items()
        }
        same = task.label_names == names
        shared.append(task if same else replace(task, label_names=names, **renumbered))
    return tuple(shared)


def number_classes(tasks: Sequence[TextTask], *, size: int | None = None) -> tuple[TextTask, ...]:
    """Number the classes of all tasks consecutively, for one head (class-incremental).

    Every task has the labels of all tasks, and the rows of its own classes. Scores are accuracies,
    as a task's own metric does not know the classes of other tasks.

    Args:
        tasks: Classification tasks.
        size: Classes an experience; a task of more is split into several. None splits none.

    Raises:
        InputError: If a split has no rows of an experience's classes.

    Examples:
        >>> from cl_graft.data import load_task
        >>> tasks = [load_task(name, shots=4, max_test=20) for name in ("scope", "answered")]
        >>> number_classes(tasks)[1].label_names
        ('scope in_scope', 'scope out_of_scope', 'answered answered', 'answered not_answered')
    """
    names = tuple(
        f"{task.name} {label}" if len(tasks) > 1 else label
        for task in tasks
        for label in task.label_names
    )
    experiences: list[TextTask] = []
    first = 0
    for task in tasks:
        count = task.num_outputs
        step = size or count
        for start in range(0, count, step):
            group = range(start, min(start + step, count))
            part = "" if len(group) == count else f".{'-'.join(map(str, group))}"
            experiences.append(
                replace(
                    task,
                    name=f"{task.name}{part}",
                    label_names=names,
                    metric="accuracy",
                    positive=None,
                    prompt=None,
                    causal_prompt=None,
                    source={**task.source, "classes": [first + label for label in group]},
                    **{split: _rows(task, split, group, first) for split in task.splits},
                )
            )
        first += count
    return tuple(experiences)


def _rows(task: TextTask, split: str, classes: range, first: int) -> tuple[Row, ...]:
    """Return a task's rows of some classes, with class numbers from `first`."""
    chosen = tuple(
        Row(row.text, row.text_pair, int(row.label) + first)
        for row in task.splits[split]
        if row.label in classes
    )
    if not chosen:
        named = ", ".join(task.label_names[label] for label in classes)
        raise InputError(
            f"task {task.name!r} has no {split} rows of the classes {named}, which are an "
            "experience of their own"
        )
    return chosen
