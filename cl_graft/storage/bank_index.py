"""The index of a bank: `bank.json`, the list of the files of its entries."""

from __future__ import annotations

import re
import shutil
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from cl_graft.errors import BankError, ForeignFile, InputError
from cl_graft.grafts.bank import GraftBank, Mode
from cl_graft.storage.disk_errors import explain_write_errors
from cl_graft.storage.files import (
    VERSION,
    add_checksum,
    delete_partial_files,
    is_partial,
    load_json,
    replace_file,
    report_damage,
    to_json,
)
from cl_graft.storage.graft_file import read_builds_on
from cl_graft.storage.locks import LOCK, OWNER
from cl_graft.storage.metadata_schema import check_metadata
from cl_graft.storage.serialization import base_record, layout_record, part, read_base, read_layout

INDEX = "bank.json"

DIGITS = 16
"""Digits of its checksum in the name of an entry's file."""

_KINDS = ("entries", "standalone")
_FILE = re.compile(
    rf"(?:{'|'.join(_KINDS)})/([0-9a-f]{{{DIGITS}}})-[A-Za-z0-9._-]{{1,64}}\.safetensors"
)
"""Name of an entry's file: digits of its checksum and the task's name."""

STAGED = ".staged"
"""Folder in a bank for entries that are trained again; the next writer deletes a left one."""

_FORMAT = "cl-graft-bank"
_LARGEST_INDEX = 2**26
"""Bytes of `bank.json`, some 150,000 entries: it is parsed before it can be checked."""


def read_index(folder: Path) -> tuple[list[dict[str, Any]], GraftBank]:
    """Return the lines of a bank's index, and the bank without entries."""
    path = folder / INDEX
    if not folder.is_dir():
        raise InputError(f"there is no bank folder {folder}")
    if not path.is_file():
        raise ForeignFile(f"{folder} is not a bank: it holds no {INDEX}")
    if (size := path.stat().st_size) > _LARGEST_INDEX:
        raise ForeignFile(f"{path} is not a file of cl_graft: it has {size} bytes")
    values = load_json(path.read_bytes(), format=_FORMAT, name=str(path))
    with report_damage(str(path)):
        if (mode := part(values, "mode", str)) not in get_args(Mode):
            raise ValueError(f"no mode is called {mode!r}")
        layout = read_layout(part(values, "layout", dict))
        bank = GraftBank(layout, read_base(part(values, "base", dict)), mode)
        _check_list(part(values, "entries", list), bank)
        return values["entries"], bank


def _check_list(records: Sequence[Mapping[str, Any]], bank: GraftBank) -> None:
    """Refuse a list of entries that no bank would write."""
    for position, record in enumerate(records):
        for listed in (record, *([record["standalone"]] if "standalone" in record else [])):
            _check_name(listed["file"], listed["checksum"])
            part(listed, "bytes", int)
        of_the_task = {key: record[key] for key in ("task", "label", "weights_sha256")}
        check_metadata("task", {**of_the_task, "metadata": {}})
        owned, size = part(record, "owned", int), part(record, "size", int)
        if not 0 <= owned <= size <= bank.layout.total:
            raise ValueError(f"{record['file']} owns {owned} of {size} coordinates")
        read_builds_on(record, bank.mode, position=position)


def _check_name(name: str, checksum: str) -> None:
    """Refuse a name that is not an entry file's, or not that of a file with this checksum."""
    if not (parts := _FILE.fullmatch(name)):
        raise ValueError(f"{name!r} is no entry file's name")
    if parts[1] != checksum[:DIGITS]:
        raise ValueError(f"{name!r} is not the name of a file with checksum {checksum[:DIGITS]!r}…")


def write_index(bank: GraftBank, records: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Replace `bank.json`."""
    rows = ",".join(f"\n  {to_json(record)}" for record in records)
    keys = {
        "format": to_json(_FORMAT),
        "version": to_json(VERSION),
        "mode": to_json(bank.mode),
        "base": to_json(base_record(bank.base)),
        "layout": to_json(layout_record(bank.layout)),
        "entries": f"[{rows}]",
    }
    data = add_checksum(
        "{\n" + ",\n".join(f'"{key}": {text}' for key, text in keys.items()) + "}\n"
    )
    if len(data) > _LARGEST_INDEX:
        raise BankError(f"a bank's {INDEX} holds {_LARGEST_INDEX} bytes at most, got {len(data)}")
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / INDEX, data)


def list_files(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the files that a line of `bank.json` lists."""
    standalone = record.get("standalone")
    return [record["file"], *([standalone["file"]] if standalone else [])]


def count_entry_bytes(record: Mapping[str, Any]) -> int:
    """Return the bytes of the files that a line of `bank.json` lists."""
    return record["bytes"] + record.get("standalone", {}).get("bytes", 0)


def delete_unlisted(folder: Path, listed: Container[str]) -> None:
    """Delete the files that killed writers left in a bank's folder."""
    delete_partial_files([path for kind in _KINDS for path in (folder / kind).glob("*")])
    for name in list_unlisted(folder, listed):
        with explain_write_errors(folder / name):
            (folder / name).unlink(missing_ok=True)
    for kind in _KINDS:
        with suppress(OSError):  # it is not empty, or not there
            (folder / kind).rmdir()
    shutil.rmtree(folder / STAGED, ignore_errors=True)


def holds_no_bank_yet(folder: Path) -> bool:
    """Tell whether a folder is empty, apart from files of a writer that was killed at its start."""
    return folder.is_dir() and all(
        path.name in (LOCK, OWNER)
        or is_partial(path)
        or (path.name in _KINDS and path.is_dir() and all(map(_is_of_a_bank, path.iterdir())))
        for path in folder.iterdir()
    )


def list_unlisted(folder: Path, listed: Container[str]) -> list[str]:
    """Return the names of a bank's files that are not among `listed`, without partial ones."""
    names = (f"{kind}/{path.name}" for kind in _KINDS for path in (folder / kind).glob("*"))
    return sorted(name for name in names if _FILE.fullmatch(name) and name not in listed)


def _is_of_a_bank(path: Path) -> bool:
    return is_partial(path) or _FILE.fullmatch(f"{path.parent.name}/{path.name}") is not None
