"""Scenarios of a stream, which differ in what the model knows beside the text.

- task: the task label, which picks the head (task-incremental).
- domain: nothing; all tasks have the same labels and share one head (domain-incremental).
- class: nothing; one head has the labels of all tasks, and no two tasks train together
  (class-incremental).

Where tasks share a head, `share_labels` and `number_classes` say how their classes go together.
"""

from __future__ import annotations

from collections.abc import Sequence

from cl_graft.data import TextTask, number_classes, share_labels
from cl_graft.errors import InputError
from cl_graft.settings.stream_settings import StreamSettings

__all__ = ["fit_scenario"]


def fit_scenario(tasks: Sequence[TextTask], stream: StreamSettings) -> tuple[TextTask, ...]:
    """Make the experiences of a stream from its tasks, as its scenario asks.

    Raises:
        InputError: If the tasks do not fit the scenario.

    Examples:
        >>> from cl_graft.data import load_task
        >>> from cl_graft.settings.stream_settings import StreamSettings
        >>> tasks = [load_task(f"shared-0-{n}", shots=4, max_test=4) for n in range(2)]
        >>> settings = StreamSettings(tasks=["shared-0-0", "shared-0-1"], scenario="class")
        >>> first, second = fit_scenario(tasks, settings)
        >>> first.label_names[1:3]
        ('shared-0-0 second', 'shared-0-1 first')
    """
    for task in tasks if stream.scenario != "task" else ():
        if not task.own_kind.needs_classes:
            raise InputError(
                f"in the scenario {stream.scenario!r} tasks share a head of classes; "
                f"{task.name!r} is a task of {task.own_kind.title}"
            )
    if stream.scenario == "domain":
        return share_labels(tasks)
    if stream.scenario == "class":
        return number_classes(tasks, size=stream.classes_per_experience)
    return tuple(tasks)
