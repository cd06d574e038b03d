"""Small files of a run beside its results, each with one record a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from cl_graft.errors import InputError
from cl_graft.storage.files import replace_file

__all__ = ["TaskFile"]

_Record = TypeVar("_Record")


class TaskFile(Generic[_Record]):
    """A JSON file in the folder of a run, with a record, a dataclass, for each task.

    Attributes:
        name: Name of the file; the part before the dot says what it holds.
    """

    def __init__(self, name: str, record: type[_Record], *, indent: int | None = None) -> None:
        """Describe a file.

        Args:
            name: Name of the file.
            record: Class of the records.
            indent: Spaces by which a level is indented; None writes one line.
        """
        self.name = name
        form: Any = dict.__class_getitem__((str, record))
        self._form = TypeAdapter[dict[str, _Record]](form)
        self._indent = indent

    def read(self, folder: Path) -> dict[str, _Record]:
        """Read the records of a run, by task; none where it has no such file.

        Raises:
            InputError: If the file holds something else.
        """
        path = folder / self.name
        if not path.is_file():
            return {}
        try:
            return self._form.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place, what = ".".join(map(str, first["loc"])), Path(self.name).stem
            raise InputError(f"{path}: not the {what} of a run ({place}: {first['msg']})") from None

    def write(self, found: Mapping[str, _Record], folder: Path) -> None:
        """Write records by task; where there are none, no file."""
        if found:
            values = {task: asdict(cast(Any, record)) for task, record in found.items()}
            text = json.dumps(values, indent=self._indent, ensure_ascii=False)
            replace_file(folder / self.name, f"{text}\n".encode())
