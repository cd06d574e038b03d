"""A bank in a folder, one file an entry.

`bank.json` names every entry file with its SHA-256 and is replaced last, so a crash while an
entry is being added leaves the old bank in force. A file that `bank.json` lists is never rewritten.
One process writes at a time (`only_writer`); any number may read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from cl_graft.bank import Entry, GraftBank, Mode
from cl_graft.errors import BankError, DamagedFile, ForeignFile, InputError, TruncatedFile
from cl_graft.region import Layout
from cl_graft.store.entries import pack_entry, unpack_entry
from cl_graft.store.files import (
    VERSION,
    check_json,
    check_version_1,
    is_partial,
    replace_file,
    to_json,
    valid,
)
from cl_graft.store.grafts import StoredGraft, pack_graft, unpack_graft
from cl_graft.store.locks import only_writer
from cl_graft.store.records import (
    base_record,
    check_base,
    check_layout,
    layout_record,
    part,
    read_base,
    read_layout,
)
from cl_graft.store.seals import BLANK, JSON_START, checksum, intact

__all__ = ["append_entry", "holds_entry", "load_bank", "replace_entries", "save_bank"]

_FORMAT = "cl-graft-bank"
_INDEX = "bank.json"
_KINDS = ("entries", "standalone")
_FILE = re.compile(rf"({'|'.join(_KINDS)})/[0-9]{{3,}}-[A-Za-z0-9._-]{{1,64}}\.safetensors")
_LARGEST_INDEX = 2**26
"""Bytes of `bank.json`, some 150,000 entries: it is parsed before it can be checked."""


def save_bank(bank: GraftBank, folder: Path | str) -> None:
    """Write a bank to a folder; entries that the folder already holds are left alone.

    Raises:
        BankError: If the folder holds another bank, or one with more entries.
        InUse: If another process writes to it.
        ValueError: If values do not have the dtype that the base states.
    """
    folder = Path(folder)
    with only_writer(folder):
        _save(bank, folder)


def _save(bank: GraftBank, folder: Path) -> None:
    records = _records(folder, bank) if (folder / _INDEX).exists() else []
    if len(records) > len(bank):
        raise BankError(
            f"{folder} holds a bank of {len(records)} entries, this one has {len(bank)}"
        )
    held = load_bank(folder) if records else bank
    for position, record in enumerate(records):
        # Not the bytes on disk: an earlier version of the format may have written them.
        if _files(bank, position) != _files(held, position):
            raise BankError(
                f"{folder} holds another bank: its entry {position} is not the {record['task']!r} "
                "of this one; choose another folder"
            )
    for position in range(len(records), len(bank)):
        records.append(_write_entry(bank, position, folder))
    _write_index(bank, records, folder)


def append_entry(bank: GraftBank, folder: Path | str) -> None:
    """Add the last entry of `bank` to a folder that holds the entries before it.

    The entry's file is written first, then `bank.json`; the files of earlier entries are not
    touched. A folder without a bank takes a bank of one entry.

    Raises:
        BankError: If the folder does not hold exactly the entries before the last one.
        InUse: If another process writes to it.
    """
    folder = Path(folder)
    with only_writer(folder):
        _append(bank, folder)


def _append(bank: GraftBank, folder: Path) -> None:
    records = _records(folder, bank) if (folder / _INDEX).exists() else []
    if len(records) != len(bank) - 1:
        raise BankError(
            f"{folder} holds {len(records)} entries, so it cannot take entry number {len(bank)}; "
            "did another process add one?"
        )
    _check_same(records, bank, folder)
    _write_index(bank, [*records, _write_entry(bank, len(bank) - 1, folder)], folder)


def replace_entries(bank: GraftBank, folder: Path | str, *, first: int) -> None:
    """Put the entries of `bank` from number `first` on in the place of those that a folder holds.

    At every moment the folder is the old bank or the new one; afterwards it holds no byte of the
    entries that went.

    Args:
        bank: What the folder is to hold; its entries below `first` are those of the folder.
        folder: A bank of the same base.
        first: The first entry to replace.

    Raises:
        BankError: If the folder's entries below `first` are others.
        InUse: If another process writes to it.
    """
    folder = Path(folder)
    with only_writer(folder):
        records = _records(folder, bank)
        if not first <= min(len(records), len(bank)):
            raise ValueError(f"first must be at most {min(len(records), len(bank))}, got {first}")
        _check_same(records[:first], bank, folder)
        places = range(first, len(bank))
        kept = records[:first]
        listed = {path for record in records for path in _paths(record)}
        meant = {name for place in places for name, _ in _files(bank, place).values()}
        if listed & meant:
            # Names of the old bank are taken until `bank.json` says otherwise.
            aside = len(records)
            moved = [_write_entry(bank, place, folder, number=aside + place) for place in places]
            _write_index(bank, [*kept, *moved], folder)
        _write_index(bank, [*kept, *(_write_entry(bank, p, folder) for p in places)], folder)
        sweep_entries(folder)


def sweep_entries(folder: Path | str) -> None:
    """Delete the files in a bank's folders of entries that it does not list.

    Raises:
        BankError: If the folder holds no bank that can be read.
        InUse: If another process writes to it.
    """
    folder = Path(folder)
    with only_writer(folder):
        index, _ = _read_index(folder)
        listed = {folder / name for record in index["entries"] for name in _paths(record)}
        for path in [path for kind in _KINDS for path in (folder / kind).glob("*")]:
            if path not in listed and (is_partial(path) or _FILE.fullmatch(_name(path))):
                path.unlink()
        for kind in _KINDS:
            with suppress(OSError):  # it is not empty, or not there
                (folder / kind).rmdir()


def holds_entry(bank: GraftBank, folder: Path | str) -> bool:
    """Tell whether a folder holds the last entry of `bank` already, at its place and bit for bit.

    Raises:
        BankError: If the folder holds another entry at that place.
    """
    folder, position = Path(folder), len(bank) - 1
    if not (folder / _INDEX).exists() or position >= len(_records(folder, bank)):
        return False
    if _files(load_bank(folder), position) != _files(bank, position):
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
        folder: What `save_bank` or `append_entry` wrote to.
        expect: Fingerprint of the base model it must belong to; None takes any.
        layout: The graftable parameters it must belong to; None takes any.

    Raises:
        InputError: If there is no such folder.
        BankError: Its subclasses say why the bank is refused.
    """
    folder = Path(folder)
    index, bank = _read_index(folder)
    check_layout(bank.layout, layout, name=str(folder))
    check_base(bank.base, expect, name=str(folder))
    try:
        with valid(str(folder / _INDEX)):
            return bank.extend([_read_entry(record, folder, bank) for record in index["entries"]])
    except BankError:
        if _read_index(folder)[0] == index:
            raise
    # A writer took entries away in between.
    return load_bank(folder, expect=expect, layout=layout)


def _read_index(folder: Path) -> tuple[dict[str, Any], GraftBank]:
    """Return `bank.json` and the bank it describes, without entries."""
    if not folder.is_dir():
        raise InputError(f"there is no bank folder {folder}")
    path = folder / _INDEX
    if not path.is_file():
        raise ForeignFile(f"{folder} is not a bank: it holds no {_INDEX}")
    if path.stat().st_size > _LARGEST_INDEX:
        raise ForeignFile(f"{path} is not a file of cl_graft: it has {path.stat().st_size} bytes")
    index = _parse(path.read_bytes(), name=str(path))
    with valid(str(path)):
        mode = part(index, "mode", str)
        if mode not in get_args(Mode):
            raise ValueError(f"no mode is called {mode!r}")
        layout = read_layout(part(index, "layout", dict))
        bank = GraftBank(layout, read_base(part(index, "base", dict)), mode)
        for record in part(index, "entries", list):
            for name in (record["file"], record.get("standalone", {}).get("file")):
                if name is not None and not _FILE.fullmatch(name):
                    raise ValueError(f"{name!r} is no entry file's name")
    return index, bank


def _parse(text: bytes, *, name: str) -> dict[str, Any]:
    """Return what stands in `bank.json`, once it matches its checksum."""
    try:
        index = json.loads(text)
    except (ValueError, RecursionError):
        begin = text[: len(JSON_START)]
        ours = b"cl-graft" in text or begin == JSON_START[: len(begin)]
        if ours and text.rstrip()[-1:] != b"}":
            raise TruncatedFile(f"{name} is cut short: it ends after {len(text)} bytes") from None
        if ours:
            raise DamagedFile(f"{name} is altered: it is no JSON any more") from None
        raise ForeignFile(f"{name} is not a file of cl_graft: it is no JSON") from None
    check_json(index, format=_FORMAT, name=name)
    if index["version"] == 1:
        check_version_1(index, format=_FORMAT, name=name)
    elif not intact(text, start=JSON_START):
        raise DamagedFile(f"{name} is altered: its content does not match its checksum")
    return index


def _records(folder: Path, bank: GraftBank) -> list[dict[str, Any]]:
    """Return the entries that a folder lists, once it is sure that it is about the same base."""
    index, held = _read_index(folder)
    check_layout(held.layout, bank.layout, name=str(folder))
    check_base(held.base, bank.base.fingerprint, name=str(folder))
    if held.mode != bank.mode:
        raise BankError(f"{folder} holds a bank in {held.mode} mode, this one is {bank.mode}")
    return index["entries"]


def _check_same(records: list[dict[str, Any]], bank: GraftBank, folder: Path) -> None:
    """Refuse a folder whose entries are not the first ones of `bank`.

    Raises:
        BankError: If they are others.
    """
    for record, entry in zip(records, bank.entries, strict=False):
        if any(record[key] != value for key, value in _record(entry).items()):
            raise BankError(
                f"{folder} holds another bank: its {record['task']!r} is not the {entry.task!r} "
                "that stands at the same place of this one"
            )


def _write_index(bank: GraftBank, records: list[dict[str, Any]], folder: Path) -> None:
    rows = ",".join(f"\n  {to_json(record)}" for record in records)
    parts = {
        "format": to_json(_FORMAT),
        "version": to_json(VERSION),
        "mode": to_json(bank.mode),
        "base": to_json(base_record(bank.base)),
        "entries": f"[{rows}]",
        "layout": to_json(layout_record(bank.layout)),
    }
    lines = "".join(f",\n{to_json(key)}: {value}" for key, value in parts.items())

    def sealed(digits: str) -> bytes:
        return b"%s%s%s" % (JSON_START, digits.encode(), f'"{lines}}}'.encode())

    data = sealed(checksum(sealed(BLANK), start=JSON_START))
    if len(data) > _LARGEST_INDEX:
        raise BankError(f"a bank's {_INDEX} holds {_LARGEST_INDEX} bytes at most, got {len(data)}")
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / _INDEX, data)


def _files(
    bank: GraftBank, position: int, *, number: int | None = None
) -> dict[str, tuple[str, bytes]]:
    """Return name and bytes of the files of an entry, under ``"entry"`` and ``"standalone"``.

    Their names begin with `number`, or with the entry's position.
    """
    entry = bank.entries[position]
    number = position if number is None else number
    name = f"{number:03d}-{_safe(entry.task)}.safetensors"
    files = {"entry": (f"entries/{name}", pack_entry(entry, bank))}
    if entry.standalone is not None:
        stored = StoredGraft(entry.standalone, bank.base, entry.task)
        files["standalone"] = (f"standalone/{name}", pack_graft(stored))
    return files


def _write_entry(
    bank: GraftBank, position: int, folder: Path, *, number: int | None = None
) -> dict[str, Any]:
    """Write the files of an entry, as `_files` calls them; return its line of `bank.json`."""
    entry = bank.entries[position]
    listed: dict[str, dict[str, object]] = {}
    for key, (name, data) in _files(bank, position, number=number).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(folder / name, data)
        listed[key] = {"file": name, "sha256": _sha256(data), "bytes": len(data)}
    record = {**_record(entry), **listed.pop("entry")}
    return {**record, **listed}


def _read_entry(record: Mapping[str, Any], folder: Path, bank: GraftBank) -> Entry:
    """Read the files that a line of `bank.json` names."""
    name = str(folder / record["file"])
    entry = unpack_entry(_bytes(record, folder), bank, name=name)
    for key, value in _record(entry).items():
        if record[key] != value:
            raise ValueError(f"{key} of {record['file']} is {value!r}, not {record[key]!r}")
    if "standalone" not in record:
        return entry
    listed = part(record, "standalone", dict)
    stored = unpack_graft(
        _bytes(listed, folder),
        name=str(folder / listed["file"]),
        expect=bank.base.fingerprint,
        layout=bank.layout,
        known=True,
    )
    return replace(entry, standalone=stored.graft)


def _record(entry: Entry) -> dict[str, object]:
    """Return what `bank.json` says of an entry beside its files."""
    return {
        "task": entry.task,
        "label": entry.label,
        "claimed": entry.size,
        "owned": len(entry.owned),
        "density": entry.density,
        "weights_sha256": entry.weights_sha256,
    }


def _paths(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the files that a line of `bank.json` lists."""
    standalone = record.get("standalone")
    return [record["file"], *([standalone["file"]] if standalone else [])]


def _name(path: Path) -> str:
    """Return what `bank.json` would call a file."""
    return f"{path.parent.name}/{path.name}"


def _bytes(listed: Mapping[str, Any], folder: Path) -> bytes:
    """Return the bytes of a listed file once they match their SHA-256."""
    path = folder / listed["file"]
    if not path.is_file():
        raise DamagedFile(f"{path} is missing, though {_INDEX} lists it")
    size, declared = path.stat().st_size, part(listed, "bytes", int)
    if size < declared:
        raise TruncatedFile(f"{path} is cut short: {size} of {declared} bytes are left")
    if size > declared:
        raise DamagedFile(f"{path} is altered: it has {size} bytes, not {declared}")
    data = path.read_bytes()
    if _sha256(data) != listed["sha256"]:
        raise DamagedFile(f"{path} is altered: its bytes do not match the SHA-256 in {_INDEX}")
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _safe(task: str) -> str:
    """Return a task's name as part of a file name: letters, digits and ``. _ -`` only."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task)[:64] or "task"
