"""What a bank holds, read from its files alone: no model is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_graft.banks.bank_of_run import accept_bank, bank_folder
from cl_graft.experiments.folders import BANK, lock_bank
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.grafts.region import overlap_matrix
from cl_graft.storage import load_bank, load_graft
from cl_graft.storage.repair import Repaired, repair_bank

__all__ = [
    "InspectedEntry",
    "InspectedGraft",
    "Inspection",
    "inspect_bank",
    "inspect_graft",
    "repair_folder",
]


@dataclass(frozen=True)
class InspectedEntry:
    """One entry of a bank.

    Attributes:
        position: Its place in the bank.
        task: The task's name.
        label: The task label that it answers.
        answers: Whether it is the one that answers the label: a later entry replaces an earlier.
        label_names: The task's labels; empty for a regression.
        claimed: Coordinates of the region that localization chose.
        owned: Coordinates whose values it holds.
        density: Claimed share of the graftable coordinates.
        lost: Share of the claimed coordinates that earlier tasks own.
        bytes: Size of its files.
        head_bytes: Part of that: the task's head.
        recorded_rows: Rows of the recorded batch.
        metadata: What else was recorded: scores, localizer, metric…
    """

    position: int
    task: str
    label: int
    answers: bool
    label_names: tuple[str, ...]
    claimed: int
    owned: int
    density: float
    lost: float
    bytes: int
    head_bytes: int
    recorded_rows: int
    metadata: Mapping[str, object]


@dataclass(frozen=True)
class Inspection:
    """A bank at a glance.

    Attributes:
        bank: Its folder.
        model: The base's name or path.
        fingerprint: The base's fingerprint.
        dtype: The dtype of the values.
        mode: ``"prefix"`` or ``"isolated"``.
        base_metadata: What rebuilding the base needs.
        coordinates: Graftable coordinates of the base.
        owned: Coordinates that any entry owns.
        bytes: Size of all files.
        entries: One a learned task.
        overlap: ``overlap[i][j]`` = |γi ∩ γj| / |γj|, the paper's asymmetric overlap;
            None where γj is empty.
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
    overlap: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class InspectedGraft:
    """A single graft's file at a glance; fields as in `InspectedEntry` and `Inspection`."""

    path: Path
    task: str
    model: str
    fingerprint: str
    dtype: str
    coordinates: int
    total: int
    density: float
    bytes: int
    metadata: Mapping[str, object]


def inspect_bank(folder: Path | str) -> Inspection:
    """Read and check a bank's files, and describe it.

    Args:
        folder: A bank, or a run that holds one.

    Raises:
        InputError: If there is no bank there.
        BankError: If a file is damaged or foreign.
    """
    where = bank_folder(folder)
    bank = load_bank(where)
    index: dict[str, Any] = json.loads((where / "bank.json").read_text(encoding="utf-8"))
    sizes = [
        record["bytes"] + record.get("standalone", {}).get("bytes", 0)
        for record in index["entries"]
    ]
    entries = tuple(
        _facts(bank, position, entry, size)
        for position, (entry, size) in enumerate(zip(bank.entries, sizes, strict=True))
    )
    regions = [entry.region for entry in bank.entries]
    return Inspection(
        bank=where,
        model=bank.base.model,
        fingerprint=bank.base.fingerprint,
        dtype=bank.base.dtype,
        mode=bank.mode,
        base_metadata=bank.base.metadata,
        coordinates=bank.layout.total,
        owned=len(bank.owned()),
        bytes=sum(sizes) + sum(path.stat().st_size for path in where.glob("*.json")),
        entries=entries,
        overlap=tuple(tuple(row) for row in overlap_matrix(regions)),
    )


def repair_folder(folder: Path | str) -> Repaired:
    """Put the folder of a bank in order: see `cl_graft.storage.repair.repair_bank`.

    The results of its run name the bank from then on, as it is.

    Args:
        folder: A bank, or a run that holds one.

    Raises:
        InputError: If there is no such folder, or another process writes to it.
        BankError: If it holds no bank.
    """
    folder = Path(folder)
    where = folder / BANK if (folder / BANK).is_dir() else folder
    with lock_bank(where):
        repaired = repair_bank(where)
        accept_bank(where)
        return repaired


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
        coordinates=len(region),
        total=region.layout.total,
        density=region.density,
        bytes=Path(path).stat().st_size,
        metadata=stored.metadata,
    )


def _facts(bank: GraftBank, position: int, entry: Entry, size: int) -> InspectedEntry:
    names = entry.metadata.get("label_names", ())
    return InspectedEntry(
        position=position,
        task=entry.task,
        label=entry.label,
        answers=bank.find(label=entry.label) == position,
        label_names=tuple(str(name) for name in names) if isinstance(names, list | tuple) else (),
        claimed=entry.size,
        owned=len(entry.owned),
        density=entry.density,
        lost=entry.share_owned_before,
        bytes=size,
        head_bytes=sum(tensor.nbytes for tensor in entry.head.values()),
        recorded_rows=len(entry.recorded_batch.inputs) if entry.recorded_batch else 0,
        metadata={key: value for key, value in entry.metadata.items() if key != "label_names"},
    )
