"""Names of tasks, which name files and folders, too."""

from __future__ import annotations

import re

from cl_graft.errors import InputError

__all__ = ["check_task_name"]

_FILE_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def check_task_name(name: str) -> str:
    """Return `name` if it can name a file everywhere.

    Raises:
        InputError: If it holds anything but letters, digits, '.', '_' and '-', starts with a dot,
            or is longer than 100 characters.

    Examples:
        >>> check_task_name("topic-2")
        'topic-2'
    """
    if len(name) > 100 or not _FILE_SAFE.fullmatch(name):
        raise InputError(
            f"task name {name[:120]!r} cannot name a file: use up to 100 letters, digits, '.', '_' "
            "or '-' (no leading dot)"
        )
    return name
