"""The repair of a bank's folder: leftovers are deleted, and whole entries are listed again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cl_graft.errors import BankError, FutureVersion
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.storage.bank_folder import list_entry, write_entries
from cl_graft.storage.bank_index import (
    COPY,
    INDEX,
    REMOVED,
    delete_unlisted,
    list_files,
    list_unlisted,
    read_index,
    refuse_linked_folders,
    write_copy,
)
from cl_graft.storage.files import report_damage, sync_folder
from cl_graft.storage.locks import only_writer


@dataclass(frozen=True)
class Repaired:
    """Result of repairing a bank's folder: files that killed writers left are `deleted`.

    Those that `faults`, a sentence each, keep from being listed are `removed` to `removed/`.
    `rebuilt` tells whether a new `bank.json` was written.
    """

    bank: Path
    entries: int
    deleted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    rebuilt: bool = False


def repair_bank(folder: Path | str) -> Repaired:
    """Delete what killed writers left, and list the entries that are whole.

    A bank whose files are as `bank.json` says keeps it. Where an entry's file is missing or
    damaged, `bank.json` is written without it, and without the later entries that build on it.
    Where `bank.json` itself is missing or damaged, its copy takes its place. Files that are no
    longer listed are moved to `removed/`.

    Raises:
        InputError: If there is no such folder, or another process writes to it.
        BankError: If the folder is no bank, a newer package wrote it, or no index can be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        read_index(folder)  # says so
    with only_writer(folder) as partial:
        refuse_linked_folders(folder)
        from_copy = False
        try:
            records, bank = read_index(folder)
        except FutureVersion:
            raise
        except BankError:
            records, bank = read_index(folder, name=COPY)
            from_copy = True
        repaired = _list_whole(folder, bank, records, from_copy=from_copy)
    return replace(repaired, deleted=(*partial, *repaired.deleted))


def _list_whole(
    folder: Path, bank: GraftBank, records: Sequence[Mapping[str, Any]], *, from_copy: bool
) -> Repaired:
    """Write `bank.json` with the entries that are whole, and move the files of others away."""
    whole: list[Entry] = []
    faults: list[str] = []
    number: dict[int, int] = {}
    for position, record in enumerate(records):
        entry = list_entry(record, folder, bank, position=position)
        try:
            _ = entry.owned
        except BankError as error:
            own = error.__cause__ if isinstance(error.__cause__, BankError) else error
            faults.append(f"entry {position}: {own}")
            continue
        under = entry.builds_on
        if under is None:
            under = range(position) if bank.mode == "prefix" else ()
        if any(place not in number for place in under):
            faults.append(f"entry {position} was trained on top of entries of which one is lost")
            continue
        if entry.builds_on is not None:
            entry = entry.renumber(
                label=entry.label, builds_on=tuple(number[place] for place in under)
            )
        number[position] = len(whole)
        whole.append(entry)
    needed = {name for position in number for name in list_files(records[position])}
    if not (faults or from_copy):
        write_copy(bank, records, folder)
        return Repaired(folder, len(whole), tuple(delete_unlisted(folder, needed)))
    with report_damage(str(folder)):
        repaired = bank.extend(whole)
    old = [name for record in records for name in list_files(record)]
    if from_copy:  # the copy may be of the time before the last change
        old = [*list_unlisted(folder, ()), *([INDEX] if (folder / INDEX).is_file() else [])]
    removed = [name for name in old if name not in needed and (folder / name).is_file()]
    for name in removed:
        target = folder / REMOVED / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / name, target)
        sync_folder(target.parent)
    write_entries(repaired, folder, kept=())
    return Repaired(
        folder, len(repaired), removed=tuple(removed), faults=tuple(faults), rebuilt=True
    )
