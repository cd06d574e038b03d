"""Small files of a run beside its results, each with one record a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from cl_graft.errors import InputError
from cl_graft.storage.files import replace_file

__all__ = ["read_task_file", "write_task_file"]

_Record = TypeVar("_Record")


def read_task_file(
    path: Path, form: TypeAdapter[dict[str, _Record]], *, what: str
) -> dict[str, _Record]:
    """Read the records of a file, by task; none where there is no such file.

    Args:
        path: Path of the file.
        form: What it holds.
        what: Name of its content in an error, such as ``"answers"``.

    Raises:
        InputError: If it holds something else.
    """
    if not path.is_file():
        return {}
    try:
        return form.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: not the {what} of a run ({place}: {first['msg']})") from None


def write_task_file(path: Path, found: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write records, dataclasses, by task; where there are none, no file."""
    if found:
        values: dict[str, Any] = {name: asdict(record) for name, record in found.items()}
        text = json.dumps(values, indent=indent, ensure_ascii=False)
        replace_file(path, f"{text}\n".encode())
