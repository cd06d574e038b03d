"""Scenarios of a stream, which differ in what the model knows beside the text.

- task: the task label, which picks the head (task-incremental).
- domain: nothing; all tasks have the same labels and share one head (domain-incremental).
- class: nothing; one head has the labels of all tasks, and no two tasks train together
  (class-incremental).

In the class-incremental scenario the classes of all tasks are numbered consecutively, and a task
may be split into experiences of a few classes each. The head has an output for every class from the
start (decision 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cl_graft.data import Row, TextTask
from cl_graft.errors import InputError
from cl_graft.experiments.config.stream_settings import StreamSettings

__all__ = ["fit_scenario"]


def fit_scenario(tasks: Sequence[TextTask], stream: StreamSettings) -> tuple[TextTask, ...]:
    """Make the experiences of a stream from its tasks, as its scenario asks.

    Raises:
        InputError: If the tasks do not fit the scenario.

    Examples:
        >>> from cl_graft.data import load_task
        >>> from cl_graft.experiments.config.stream_settings import StreamSettings
        >>> tasks = [load_task(f"shared-0-{n}", shots=4, max_test=4) for n in range(2)]
        >>> settings = StreamSettings(tasks=["shared-0-0", "shared-0-1"], scenario="class")
        >>> first, second = fit_scenario(tasks, settings)
        >>> first.label_names[1:3]
        ('shared-0-0 second', 'shared-0-1 first')
    """
    for task in tasks if stream.scenario != "task" else ():
        if task.kind != "classification":
            raise InputError(
                f"in the scenario {stream.scenario!r} tasks share a head of classes; "
                f"{task.name!r} is a task of {task.own_kind.title}"
            )
    if stream.scenario == "domain":
        return _share_labels(tasks)
    if stream.scenario == "class":
        return _number_classes(tasks, size=stream.classes_per_experience)
    return tuple(tasks)


def _share_labels(tasks: Sequence[TextTask]) -> tuple[TextTask, ...]:
    """Number the labels of all tasks in the order of the first task's.

    Raises:
        InputError: If one has other labels.
    """
    first = tasks[0]
    for task in tasks[1:]:
        if set(task.label_names) != set(first.label_names):
            raise InputError(
                "domain-incremental tasks share their labels, but those of "
                f"{first.name!r} are {', '.join(first.label_names)}, and those of {task.name!r} "
                f"{', '.join(task.label_names)}; "
                f"stream.task_settings.{task.name}.label_names can name them alike"
            )
    return tuple(_reorder_labels(task, first.label_names) for task in tasks)


def _reorder_labels(task: TextTask, names: tuple[str, ...]) -> TextTask:
    """Number a task's labels in the order of `names`."""
    if task.label_names == names:
        return task
    numbers = [names.index(name) for name in task.label_names]

    renumbered = {
        split: tuple(Row(row.text, row.text_pair, numbers[int(row.label)]) for row in rows)
        for split, rows in task.splits.items()
    }
    return replace(task, label_names=names, **renumbered)


def _number_classes(tasks: Sequence[TextTask], *, size: int | None) -> tuple[TextTask, ...]:
    """Number the classes of all tasks, and split tasks into experiences of `size` classes.

    Every experience has the labels of all tasks. Scores are accuracies, as a task's own metric does
    not know the classes of other tasks.
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
    """Return a task's rows of some classes, with class numbers from `first`.

    Raises:
        InputError: If there are none.
    """
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
