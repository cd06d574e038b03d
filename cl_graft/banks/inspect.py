"""The content of a bank, read from its files; no model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.grafts.bank import Entry
from cl_graft.kinds import find_kind
from cl_graft.storage import load_graft
from cl_graft.storage.bank_folder import count_entry_bytes, open_stored_bank


@dataclass(frozen=True)
class InspectedEntry:
    """One entry of a bank; sizes are coordinates or bytes, shares in [0, 1].

    `answers` is False where a later entry answers the label. `answer` says what the task answers,
    `owned_before` is the share of the region that the entries that it builds on own, and
    `builds_on` is None where it is what the mode says. `metadata` are scores, localizer, metric and
    all else.
    """

    position: int
    task: str
    label: int
    answers: bool
    kind: str
    answer: str
    label_names: tuple[str, ...]
    region_size: int
    owned: int
    density: float
    owned_before: float
    bytes: int
    head_bytes: int
    recorded_rows: int
    builds_on: tuple[int, ...] | None
    metadata: Mapping[str, object]


@dataclass(frozen=True)
class Inspection:
    """The content of a bank.

    Attributes:
        bank: Folder of the bank.
        model: Name or path of the base.
        fingerprint: Fingerprint of the base.
        dtype: Dtype of the values.
        mode: ``"prefix"`` or ``"isolated"``.
        base_metadata: Settings that rebuilding the base needs.
        coordinates: Graftable coordinates of the base.
        owned: Coordinates that any entry owns.
        bytes: Size of all files.
        entries: One a learned task.
    """

    bank: Path
    model: str
    fingerprint: str
    dtype: str
    mode: str
    base_metadata: Mapping[str, object]
    coordinates: int
    owned: int
    bytes: int
    entries: tuple[InspectedEntry, ...]


@dataclass(frozen=True)
class InspectedGraft:
    """The content of a graft file; fields as in `InspectedEntry` and `Inspection`."""

    path: Path
    task: str
    model: str
    fingerprint: str
    dtype: str
    region_size: int
    coordinates: int
    density: float
    bytes: int
    metadata: Mapping[str, object]


def inspect_bank(folder: Path | str) -> Inspection:
    """Read and check the files of a bank, or of a run that holds one, and describe the bank.

    Raises:
        InputError: If there is no bank there.
        BankError: If a file is damaged or foreign.
    """
    where = find_bank_folder(folder)
    bank = open_stored_bank(where)
    sizes = [count_entry_bytes(entry.stored.line) for entry in bank.entries if entry.stored]
    latest = {entry.label: position for position, entry in enumerate(bank.entries)}
    entries = tuple(
        _inspect_entry(position, entry, size, answers=latest[entry.label] == position)
        for position, (entry, size) in enumerate(zip(bank.entries, sizes, strict=True))
    )
    return Inspection(
        bank=where,
        model=bank.base.model,
        fingerprint=bank.base.fingerprint,
        dtype=bank.base.dtype,
        mode=bank.mode,
        base_metadata=bank.base.metadata,
        coordinates=bank.layout.total,
        owned=bank.count_owned(),
        bytes=sum(sizes) + sum(path.stat().st_size for path in where.glob("*.json")),
        entries=entries,
    )


def inspect_graft(path: Path | str) -> InspectedGraft:
    """Read and check the file of a single graft, and describe it.

    Raises:
        InputError: If there is no such file.
        BankError: If it is damaged or foreign.
    """
    stored = load_graft(path)
    region = stored.graft.region
    return InspectedGraft(
        path=Path(path),
        task=stored.task,
        model=stored.base.model,
        fingerprint=stored.base.fingerprint,
        dtype=stored.base.dtype,
        region_size=len(region),
        coordinates=region.layout.total,
        density=region.density,
        bytes=Path(path).stat().st_size,
        metadata=stored.metadata,
    )


def _inspect_entry(position: int, entry: Entry, size: int, *, answers: bool) -> InspectedEntry:
    names = entry.metadata.get("label_names", ())
    kind = find_kind(entry.metadata)
    return InspectedEntry(
        position=position,
        task=entry.task,
        label=entry.label,
        answers=answers,
        kind=kind.name,
        answer=kind.describe_entry(entry.metadata),
        label_names=tuple(str(name) for name in names) if isinstance(names, list | tuple) else (),
        region_size=entry.size,
        owned=entry.owned_size,
        density=entry.density,
        owned_before=entry.share_owned_before,
        bytes=size,
        head_bytes=sum(tensor.nbytes for tensor in entry.head.values()),
        recorded_rows=len(entry.recorded_batch.inputs) if entry.recorded_batch else 0,
        builds_on=entry.builds_on,
        metadata={key: value for key, value in entry.metadata.items() if key != "label_names"},
    )
