"""The folder of a bank, with one file an entry: reading it, and every change of it.

The name of an entry's file contains its checksum, so a file that `bank.json` lists is never written
again. A change writes the new files, replaces `bank.json`, and deletes the files that it does not
list, so readers see the old bank or the new one. Files that a killed writer left are deleted by the
next one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, get_args

from cl_graft.errors import BankError, DamagedFile, ForeignFile, InputError
from cl_graft.grafts.bank import Entry, GraftBank, Mode, StoredEntry
from cl_graft.grafts.region import Layout
from cl_graft.storage.disk_errors import explain_write_errors
from cl_graft.storage.files import (
    VERSION,
    add_checksum,
    checksum_in,
    delete_partial_files,
    is_partial,
    load_json,
    read_file,
    replace_file,
    report_damage,
    sync_folder,
    to_json,
    write_once,
)
from cl_graft.storage.graft_file import (
    ENTRY_FORMAT,
    GRAFT_FORMAT,
    StoredGraft,
    pack_entry,
    pack_graft,
    read_builds_on,
    unpack_entry,
    unpack_graft,
)
from cl_graft.storage.locks import LOCK, OWNER, only_writer
from cl_graft.storage.metadata_schema import check_metadata
from cl_graft.storage.serialization import (
    base_record,
    check_fingerprint,
    check_layout,
    layout_record,
    part,
    read_base,
    read_layout,
)

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
    before = 0
    for position, record in enumerate(records):
        for listed in (record, *([record["standalone"]] if "standalone" in record else [])):
            name, checksum = listed["file"], listed["checksum"]
            if not (parts := _FILE.fullmatch(name)):
                raise ValueError(f"{name!r} is no entry file's name")
            if parts[1] != (digits := checksum[:DIGITS]):
                raise ValueError(f"{name!r} is not the name of a file with checksum {digits!r}…")
            part(listed, "bytes", int)
        of_the_task = {key: record[key] for key in ("task", "label", "weights_sha256")}
        check_metadata("task", {**of_the_task, "metadata": {}})
        owned, size = part(record, "owned", int), part(record, "size", int)
        # A value takes a byte at least, and what was owned before has values in an earlier entry.
        if not (0 <= owned <= size <= min(bank.layout.total, owned + before)):
            raise ValueError(f"{record['file']} owns {owned} of {size} coordinates")
        if owned > record["bytes"]:
            raise ValueError(f"{record['file']} has fewer bytes than its {owned} values")
        before += owned
        read_builds_on(record, bank.mode, position=position)


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


_FILES = ("file", "checksum", "bytes", "standalone")
"""Fields of a line of `bank.json` that describe an entry's files."""


def save_bank(bank: GraftBank, folder: Path | str) -> None:
    """Write a bank to a folder; entries that the folder already holds are left alone.

    Raises:
        BankError: If the folder holds another bank, or one with more entries.
        InUse: If another process writes to it.
        ValueError: If values do not have the dtype that the base states.
    """
    if not isinstance(bank, GraftBank):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            "save_bank takes a GraftBank, as load_bank returns it and as a plugin's `bank` is once "
            f"a task is learned (before, it is None); got {bank!r:.80}"
        )
    folder = Path(folder)
    with only_writer(folder):
        records = _records(folder, bank)
        if len(records) > len(bank):
            raise BankError(
                f"{folder} holds a bank of {len(records)} entries, this one has {len(bank)}"
            )
        for position, record in enumerate(records):
            if not _is_held(bank, position, record, folder):
                raise BankError(
                    f"{folder} holds another bank: its entry {position} is not the "
                    f"{record['task']!r} of this one; choose another folder"
                )
        _write_entries(bank, folder, held=records)


def append_entry(bank: GraftBank, folder: Path | str) -> None:
    """Add the last entry of `bank` to a folder that holds the entries before it.

    The files of earlier entries are not touched. A folder without a bank takes a bank of one entry.

    Raises:
        BankError: If the folder does not hold exactly the entries before the last one.
        InUse: If another process writes to it.
    """
    folder = Path(folder)
    with only_writer(folder):
        records = _records(folder, bank)
        if len(records) != len(bank) - 1:
            raise BankError(
                f"{folder} holds {len(records)} entries, so it cannot take entry number "
                f"{len(bank)}; did another process add one?"
            )
        _check_same(records, bank, folder)
        _write_entries(bank, folder, held=records)


def replace_entries(bank: GraftBank, folder: Path | str, *, first: int) -> None:
    """Put the entries of `bank` from number `first` on in the place of those that a folder holds.

    At every moment the folder is the old bank or the new one; afterwards it holds no byte of the
    entries that were replaced.
    """
    folder = Path(folder)
    with only_writer(folder):
        records = _records(folder, bank)
        if not first <= min(len(records), len(bank)):
            raise ValueError(f"first must be at most {min(len(records), len(bank))}, got {first}")
        _check_same(records[:first], bank, folder)
        _write_entries(bank, folder, held=records[:first])


def _write_entries(bank: GraftBank, folder: Path, *, held: Sequence[Mapping[str, Any]]) -> None:
    """Make a folder hold a bank, after `held`, the index lines of entries whose files it holds.

    The caller is the folder's only writer.
    """
    records, files = [*held], dict[str, bytes]()
    for position in range(len(held), len(bank)):
        if (line := _line_in(folder, bank, position)) is None:
            line, new = _describe_entry(bank, position)
            files |= new
        records.append(line)
    listed = {name for record in records for name in list_files(record)}
    if not (folder / INDEX).exists() and (lost := list_unlisted(folder, listed)):
        raise BankError(
            f"{folder} holds {lost[0]}, but no {INDEX} that lists it; was the index of a bank "
            "deleted? put it back from a copy of the bank, or choose another folder"
        )
    for name, data in files.items():
        if not (folder / name).parent.is_dir():
            (folder / name).parent.mkdir(parents=True)
            sync_folder(folder)
        write_once(folder / name, data)
    write_index(bank, records, folder)
    delete_unlisted(folder, listed)


def holds_entry(bank: GraftBank, folder: Path | str) -> bool:
    """Tell whether a folder holds the last entry of `bank`; another one in its place is refused."""
    folder, position = Path(folder), len(bank) - 1
    records = _records(folder, bank)
    if position >= len(records):
        return False
    if not _is_held(bank, position, records[position], folder):
        raise BankError(
            f"{folder} holds another entry {position} than the one that was learned now; versions, "
            "threads or the machine may have changed since, or the folder is another bank's"
        )
    return True


def load_bank(
    folder: Path | str, *, expect: str | None = None, layout: Layout | None = None
) -> GraftBank:
    """Read a bank; every byte of it is checked.

    Args:
        folder: Folder of the bank.
        expect: Fingerprint of the base model it must belong to; None takes any.
        layout: The graftable parameters it must belong to; None takes any.

    Raises:
        InputError: If there is no such folder.
        BankError: Its subclasses say why the bank is refused.
    """
    folder = Path(folder)
    records, bank = _list_bank(folder)
    check_layout(bank.layout, layout, name=str(folder))
    check_fingerprint(bank.base, expect, name=str(folder))
    try:
        with report_damage(str(folder / INDEX)):
            for entry in bank.entries:
                _ = entry.owned
            return replace(bank, entries=()).extend(bank.entries)
    except BankError:
        if read_index(folder)[0] == records:
            raise
    # A writer took entries away in between.
    return load_bank(folder, expect=expect, layout=layout)


def open_stored_bank(folder: Path | str) -> GraftBank:
    """Read a bank's index; the file of an entry is read, and checked, when it is used."""
    return _list_bank(Path(folder))[1]


def _list_bank(folder: Path) -> tuple[list[dict[str, Any]], GraftBank]:
    """Return the list of a bank's entries, and the bank with entries that are not read."""
    records, bank = read_index(folder)
    lines = enumerate(records)
    entries = tuple(_list_entry(line, folder, bank, position=number) for number, line in lines)
    return records, replace(bank, entries=entries)


def _list_entry(line: Mapping[str, Any], folder: Path, bank: GraftBank, *, position: int) -> Entry:
    """Return the entry of a line of `bank.json`; it is read when it is used."""
    read = partial(_read_used, line, folder, bank, position=position)
    return Entry.in_file(
        StoredEntry(bank.layout, read, line, str(folder.resolve())),
        task=line["task"],
        label=line["label"],
        weights_sha256=line["weights_sha256"],
        builds_on=read_builds_on(line, bank.mode, position=position),
    )


def _read_used(line: Mapping[str, Any], folder: Path, bank: GraftBank, *, position: int) -> Entry:
    """Read an entry that is used now."""
    try:
        with report_damage(str(folder / line["file"])):
            return _read_entry(line, folder, bank, position=position)
    except BankError as error:
        listed = (other["file"] for other in read_index(folder)[0])
        if not (folder / line["file"]).exists() and line["file"] not in listed:
            raise BankError(
                f"entry {position} ({line['task']!r}) is no longer in {folder}: another process "
                "took it out of the bank since this one opened it; open the bank again"
            ) from error
        if not isinstance(error, DamagedFile):
            raise
        raise type(error)(
            f"{error}; put the file back from a copy of the bank, or take the entry out: "
            f"cl-graft forget {quote(str(folder))} {position}"
        ) from error


def _line_in(folder: Path, bank: GraftBank, position: int) -> dict[str, Any] | None:
    """Return the line of an entry whose files a folder holds already; None if it does not."""
    entry = bank.entries[position]
    stored = entry.stored
    if stored is None or Path(stored.folder) != folder.resolve():
        return None
    files = {key: stored.line[key] for key in _FILES if key in stored.line}
    line = {**_record(entry), **files}
    return line if all((folder / name).is_file() for name in list_files(line)) else None


def _is_held(bank: GraftBank, position: int, line: Mapping[str, Any], folder: Path) -> bool:
    """Tell whether a line of a folder's `bank.json` lists an entry of a bank, bit for bit."""
    if _line_in(folder, bank, position) == line:
        return True
    return _describe_entry(bank, position)[0] == line


def _records(folder: Path, bank: GraftBank) -> list[dict[str, Any]]:
    """Return the index lines of a folder, none where it holds no bank; another base is refused."""
    if not (folder / INDEX).exists():
        return []
    records, held = read_index(folder)
    check_layout(held.layout, bank.layout, name=str(folder))
    check_fingerprint(held.base, bank.base.fingerprint, name=str(folder))
    if held.mode != bank.mode:
        raise BankError(f"{folder} holds a bank in {held.mode} mode, this one is {bank.mode}")
    return records


def _check_same(records: Sequence[Mapping[str, Any]], bank: GraftBank, folder: Path) -> None:
    """Refuse a folder whose entries are not the first ones of `bank`."""
    for record, entry in zip(records, bank.entries, strict=False):
        if any(record[key] != value for key, value in _record(entry).items()):
            raise BankError(
                f"{folder} holds another bank: its {record['task']!r} is not the {entry.task!r} "
                "that stands at the same place of this one"
            )


def _describe_entry(bank: GraftBank, position: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the line of an entry in `bank.json`, and the bytes of its files by their names."""
    entry = bank.entries[position]
    packed = {"entries": pack_entry(entry, bank)}
    if entry.standalone is not None:
        packed["standalone"] = pack_graft(StoredGraft(entry.standalone, bank.base, entry.task))
    task = re.sub(r"[^A-Za-z0-9._-]+", "-", entry.task)[:64] or "task"
    listed, files = {}, {}
    for kind, data in packed.items():
        checksum = checksum_in(data)
        name = f"{kind}/{checksum[:DIGITS]}-{task}.safetensors"
        listed[kind] = {"file": name, "checksum": checksum, "bytes": len(data)}
        files[name] = data
    return {**_record(entry), **listed.pop("entries"), **listed}, files


def _record(entry: Entry) -> dict[str, object]:
    """Return what `bank.json` says of an entry beside its files."""
    record: dict[str, object] = {
        "task": entry.task,
        "label": entry.label,
        "size": entry.size,
        "owned": entry.owned_size,
        "weights_sha256": entry.weights_sha256,
    }
    if entry.builds_on is not None:
        record["builds_on"] = list(entry.builds_on)
    return record


def _read_entry(line: Mapping[str, Any], folder: Path, bank: GraftBank, *, position: int) -> Entry:
    """Read the files that a line of `bank.json` names."""
    name = str(folder / line["file"])
    data = _read_listed(line, folder, format=ENTRY_FORMAT)
    entry = unpack_entry(data, bank, line, name=name, position=position)
    if "standalone" not in line:
        return entry
    listed = part(line, "standalone", dict)
    stored = unpack_graft(
        _read_listed(listed, folder, format=GRAFT_FORMAT),
        name=str(folder / listed["file"]),
        expect=bank.base.fingerprint,
        layout=bank.layout,
        checksum=listed["checksum"],
    )
    return replace(entry, standalone=stored.graft)


def _read_listed(listed: Mapping[str, Any], folder: Path, *, format: str) -> bytes:
    """Return the bytes of a listed file, whose checksum is not compared."""
    path = folder / listed["file"]
    if not path.is_file():
        raise DamagedFile(f"{path} is missing, though {INDEX} lists it")
    try:
        return read_file(path, format=format)
    except ForeignFile as error:
        raise DamagedFile(str(error)) from error
