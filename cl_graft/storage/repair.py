"""The repair of a bank's folder: leftovers are deleted, and whole entries are listed again.

It is apart from `banks` because nothing else reads a folder whose `bank.json` is not whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cl_graft.errors import BankError, DamagedFile, FutureVersion
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.storage.bank_folder import list_entry, read_entry, write_entries
from cl_graft.storage.bank_index import (
    DIGITS,
    INDEX,
    REMOVED,
    delete_unlisted,
    list_files,
    list_unlisted,
    read_description,
    read_index,
    refuse_linked_folders,
    write_description,
)
from cl_graft.storage.entry_file import ENTRY_FORMAT, read_place, unpack_entry
from cl_graft.storage.files import read_file, report_damage, sync_folder
from cl_graft.storage.graft_file import GRAFT_FORMAT
from cl_graft.storage.locks import only_writer

__all__ = ["Repaired", "repair_bank"]


@dataclass(frozen=True)
class Repaired:
    """Result of repairing a bank's folder.

    Attributes:
        bank: The folder.
        entries: Number of entries that the bank has now.
        deleted: Files that killed writers left, by their names in the folder.
        removed: Files that were moved to `removed/`, by their names before.
        faults: Reasons why entries are no longer listed, a sentence each.
        rebuilt: Whether a new `bank.json` was written.
    """

    bank: Path
    entries: int
    deleted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    rebuilt: bool = False


@dataclass(frozen=True)
class _Slot:
    """An entry of the folder: its line of `bank.json`, and its content or why it has none."""

    position: int
    record: Mapping[str, Any]
    entry: Entry | None
    fault: str = ""


def repair_bank(folder: Path | str) -> Repaired:
    """Delete what killed writers left, and list the entries that are whole.

    A bank whose files are as `bank.json` says keeps it. Where an entry's file is missing or
    damaged, `bank.json` is written without it, and without the later entries that build on it. In
    prefix mode these are all later ones, unless they name what they build on. Where `bank.json`
    itself is missing or damaged, it is made from the entries. Files that are no longer listed are
    moved to `removed/`.

    Raises:
        InputError: If there is no such folder.
        BankError: If the folder is no bank, a newer package wrote it, or two files claim the same
            place in it.
        InUse: If another process writes to it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        read_index(folder)  # says so
    with only_writer(folder) as partial:
        repaired = _repair(folder)
    return replace(repaired, deleted=(*partial, *repaired.deleted))


def _repair(folder: Path) -> Repaired:
    """Repair a bank; the caller holds the folder's lock."""
    refuse_linked_folders(folder)
    try:
        index, bank = read_index(folder)
    except FutureVersion:
        raise
    except BankError:
        return _rebuild(folder)
    slots = list(_list_slots(index["entries"], folder, bank))
    if all(slot.entry is not None for slot in slots):
        write_description(bank, folder)
        listed = {name for slot in slots for name in list_files(slot.record)}
        return Repaired(folder, len(slots), tuple(delete_unlisted(folder, listed)))
    old = [name for slot in slots for name in list_files(slot.record)]
    return _list_whole(folder, bank, slots, old=old)


def _rebuild(folder: Path) -> Repaired:
    """Make `bank.json` from `base.json` and the entries."""
    bank = read_description(folder)
    names = list_unlisted(folder, ())
    if (folder / INDEX).is_file():
        names.append(INDEX)
    return _list_whole(folder, bank, list(_find_slots(names, folder, bank)), old=names)


def _list_whole(
    folder: Path, bank: GraftBank, slots: Iterable[_Slot], *, old: Iterable[str]
) -> Repaired:
    """Write `bank.json` with the entries that are whole, and move the files of others away."""
    whole: list[_Slot] = []
    entries: list[Entry] = []
    faults: list[str] = []
    number: dict[int, int] = {}
    kept: list[Mapping[str, Any]] = []
    for slot in slots:
        if slot.entry is None:
            faults.append(slot.fault)
            continue
        entry = slot.entry
        under = entry.builds_on
        if under is None:
            under = range(slot.position) if bank.mode == "prefix" else ()
        if any(place not in number for place in under):
            faults.append(
                f"entry {slot.position} was trained on top of entries of which one is lost"
            )
            continue
        if entry.builds_on is not None:
            entry = replace(entry, builds_on=tuple(number[place] for place in under))
        stays = bank.mode == "isolated" or slot.position == len(whole)
        if stays and len(kept) == len(whole):
            kept.append(slot.record)
        number[slot.position] = len(whole)
        whole.append(slot)
        entries.append(entry)
    with report_damage(str(folder)):
        repaired = replace(bank, entries=()).extend(entries)
    needed = {name for slot in whole for name in list_files(slot.record)}
    removed = [name for name in old if name not in needed and (folder / name).is_file()]
    for name in removed:
        target = folder / REMOVED / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / name, target)
        sync_folder(target.parent)
    write_entries(repaired, folder, kept=kept)
    return Repaired(
        folder, len(repaired), removed=tuple(removed), faults=tuple(faults), rebuilt=True
    )


def _list_slots(
    records: Iterable[Mapping[str, Any]], folder: Path, bank: GraftBank
) -> Iterator[_Slot]:
    """Yield the entries that `bank.json` lists."""
    for position, record in enumerate(records):
        try:
            with report_damage(str(folder / record["file"])):
                entry = read_entry(record, folder, bank, position=position)
            yield _Slot(position, record, entry)
        except BankError as error:
            yield _Slot(position, record, None, f"entry {position}: {error}")


def _find_slots(names: Sequence[str], folder: Path, bank: GraftBank) -> Iterator[_Slot]:
    """Yield the entries whose files are whole, by their place in the bank, then the other files.

    Raises:
        BankError: If two of them claim the same place.
    """
    found: dict[int, _Slot] = {}
    faults: list[_Slot] = []
    for name in (name for name in names if name.startswith("entries/")):
        try:
            slot = _slot(name, names, folder, bank)
        except BankError as error:
            faults.append(_Slot(-1, {}, None, str(error)))
            continue
        if slot.position in found:
            other = found[slot.position].record["file"]
            raise BankError(
                f"{folder}: {name} and {other} both are entry {slot.position} of the bank; move "
                "the one that was added later, or the one that was forgotten, to another folder"
            )
        found[slot.position] = slot
    yield from (found[position] for position in sorted(found))
    yield from faults


def _slot(name: str, names: Sequence[str], folder: Path, bank: GraftBank) -> _Slot:
    """Read an entry from its files alone.

    Raises:
        BankError: If one is missing, damaged or another bank's.
    """
    data = read_file(folder / name, format=ENTRY_FORMAT)
    with report_damage(str(folder / name)):
        place = read_place(data, name=str(folder / name))
        # Before version 3 the position and the name of the standalone graft stood in the name.
        position = int(name.partition("/")[2].partition("-")[0]) if place is None else place[0]
        beside = name.replace("entries", "standalone", 1)
        if place is not None:
            start = f"standalone/{(place[1] or '')[:DIGITS]}-"
            beside = next((n for n in names if place[1] and n.startswith(start)), "")
            if place[1] and not beside:
                raise DamagedFile(f"{folder / name} needs a standalone graft that is missing")
        entry = unpack_entry(data, bank, name=str(folder / name), position=position)
        files = {"entries": (name, data)}
        if beside in names:
            files["standalone"] = (beside, read_file(folder / beside, format=GRAFT_FORMAT))
        record = list_entry(entry, files)
        return _Slot(position, record, read_entry(record, folder, bank, position=position))
