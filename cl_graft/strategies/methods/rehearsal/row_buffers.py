"""Settings and sizes of the methods that keep rows of earlier tasks."""

from __future__ import annotations

from typing import Any

from cl_graft.errors import InputError
from cl_graft.strategies.method import StreamShape, setting

__all__ = [
    "batch_setting",
    "check_batch_size",
    "count_shared_row_bytes",
    "memory_setting",
    "rows_per_task_setting",
]


def memory_setting() -> Any:
    """Return the setting of the rows kept of all tasks together."""
    return setting(200, "Rows kept, of all tasks together.", least=1, is_size=True)


def rows_per_task_setting() -> Any:
    """Return the setting of the rows kept of each task."""
    return setting(64, "Rows kept of each task.", least=1, is_size=True)


def batch_setting() -> Any:
    """Return the setting of the kept rows in a step."""
    return setting(0, "Kept rows a step; 0: as many as new ones.", least=0)


def count_shared_row_bytes(shape: StreamShape, rows: int) -> float:
    """Return the bytes a task of rows that are kept of all tasks together."""
    return rows * shape.row_bytes / shape.tasks


def check_batch_size(method: str, setting_name: str, *, rows: int, tasks: int) -> None:
    """Refuse a batch size below the number of tasks, for methods that take rows of each.

    Raises:
        InputError: If `rows` is less than `tasks`.
    """
    if rows < tasks:
        raise InputError(
            f"{method} takes rows of each of {tasks} tasks into a batch: {setting_name} must be at "
            f"least {tasks}, got {rows}"
        )
