"""The place of a task's rows, by its name: a path, a folder of this package or the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unicodedata import normalize

from cl_graft.data.dataset_presets import BUILT_IN, PRESETS
from cl_graft.data.readers import Tables, has_rows
from cl_graft.data.record_files import SUFFIXES, explain_unread_kind, strip_suffix
from cl_graft.data.streams import STREAMS
from cl_graft.errors import InputError, nearest
from cl_graft.kinds.text_task import check_task_name

BUILT_IN_PREFIX = "built-in:"
"""Beginning of a name that can only be that of a built-in task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The place of a task's rows: one of path, hub and tables is set.

    Attributes:
        name: Name of the task.
        path: File or folder.
        hub: Name on the hub, with ``":config"`` where needed.
        tables: Rows that the program holds.
        built_in: Whether the path is one of the package's own tasks.
    """

    name: str
    path: Path | None = None
    hub: str | None = None
    tables: Tables | None = None
    built_in: bool = False

    @property
    def source(self) -> Path | str | Tables:
        """Path, name on the hub, or tables, as `read_files` takes them."""
        return self.tables or self.path or self.hub or ""


def find_place(name: str, data: Path | None) -> TaskPlace:
    """Find the rows of a task by its name, without reading them."""
    if name.startswith(BUILT_IN_PREFIX):
        bare = name.removeprefix(BUILT_IN_PREFIX)
        if bare not in BUILT_IN:
            raise InputError(f"no built-in task {bare!r}; {nearest(bare, BUILT_IN)}")
        return TaskPlace(name=bare, path=BUILT_IN[bare], built_in=True)
    if not name.strip():
        raise InputError("the task's name is empty")
    if data is not None:
        task_place = _find_in(data, name)
        if task_place is not None:
            return task_place
    path = Path(name).expanduser()
    path = _spell(path.parent, path.name)
    known = {*PRESETS, *BUILT_IN}
    # A folder that only happens to be called as a known task (a run's output) is not its data.
    meant = data is None and (name not in known or has_rows(path))
    if path.exists() and (meant or _looks_like_path(name)):
        return TaskPlace(name=check_task_name(_read_stem(path)), path=path)
    if name in BUILT_IN:
        return TaskPlace(name=name, path=BUILT_IN[name], built_in=True)
    hub_name = "/" in name and not _looks_like_path(name)
    if data is not None and not hub_name:
        folders = data.iterdir() if data.is_dir() else ()
        offered = {*BUILT_IN, *(_read_stem(path) for path in folders if has_rows(path))}
        raise InputError(f"{data}: there is no data for task {name!r}; {nearest(name, offered)}")
    if name in PRESETS:
        if PRESETS[name].hub is None:
            raise InputError(
                f"the data set {name!r} is not on the hub in a form that is read here: name with "
                f"`data` the folder that holds {name}/train.jsonl and {name}/test.jsonl"
            )
        return TaskPlace(name=name, hub=PRESETS[name].hub)
    if _looks_like_path(name):
        raise InputError(f"{name}: there is no such file or folder")
    if hub_name:
        return TaskPlace(name=check_task_name(name.split("/", 1)[1].replace(":", "_")), hub=name)
    hint = nearest(name, {*known, *STREAMS})  # looks streams up, which may fail
    raise InputError("; ".join([f"unknown task {name!r}", hint, *STREAMS.failures]))


def _find_in(data: Path, name: str) -> TaskPlace | None:
    if not data.exists():
        raise InputError(f"{data}: there is no such file or folder")
    candidates = [_spell(data, name + end) for end in ("", *SUFFIXES)]
    for path in candidates:
        if has_rows(path):
            return TaskPlace(name=check_task_name(_read_stem(path)), path=path)
    if has_rows(data):
        return TaskPlace(name=check_task_name(name), path=data)
    if name not in BUILT_IN:
        # What is there under the name but cannot be read says itself what is wrong with it.
        for path in candidates:
            if path.is_symlink() or path.exists():
                return TaskPlace(name=check_task_name(name), path=path)
        _refuse_other_kinds(data, name)
    return None


def _spell(data: Path, name: str) -> Path:
    """Return the path of a name in a folder, as the folder spells it: é is one character or two."""
    path = data / name
    if name.isascii() or path.exists() or not data.is_dir():
        return path
    alike = (p for p in data.iterdir() if normalize("NFC", p.name) == normalize("NFC", name))
    return next(alike, path)


def _refuse_other_kinds(data: Path, name: str) -> None:
    if data.is_file():
        raise InputError(explain_unread_kind(data))
    other = sorted(p.name for p in data.iterdir() if p.stem == name) if data.is_dir() else []
    if other:
        raise InputError(explain_unread_kind(data / other[0]))


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or strip_suffix(Path(name).name) is not None
    )


def _read_stem(path: Path) -> str:
    path = path.resolve()
    return path.name if path.is_dir() else strip_suffix(path.name) or path.name
