"""The file of one entry: owned coordinates and values, head, recorded batch and metadata.

An entry can be read only together with its bank, a graft file (`graft_file`) alone. Its place in
the bank, its task label and what it builds on stand in the bank's index alone, so that its file
stays as it is when another task is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_graft.errors import WrongArchitecture, WrongBase
from cl_graft.grafts.bank import Entry, GraftBank, Mode, check_builds_on
from cl_graft.grafts.graft import Graft
from cl_graft.storage.files import BANK_VERSION, pack, read_start, report_damage, unpack
from cl_graft.storage.metadata_schema import check_task_metadata
from cl_graft.storage.serialization import (
    check_dtype,
    head_record,
    layout_sha256,
    part,
    read_head,
    read_recorded_batch,
    read_region,
    recorded_batch_record,
    region_record,
)

__all__ = ["ENTRY_FORMAT", "has_place", "pack_entry", "read_builds_on", "unpack_entry"]

ENTRY_FORMAT = "cl-graft-entry"

_OF_THE_LINE = ("label", "builds_on")


def pack_entry(entry: Entry, bank: GraftBank) -> bytes:
    """Return the bytes of an entry's file.

    Args:
        entry: The entry.
        bank: Bank of the entry.

    Raises:
        ValueError: If its values do not have the dtype that the bank's base states, or its metadata
            do not fit the schema.
    """
    check_task_metadata(
        task=entry.task,
        label=entry.label,
        weights_sha256=entry.weights_sha256,
        metadata=dict(entry.metadata),
    )
    check_dtype(entry.owned, bank.base, task=entry.task)
    tensors = {"owned.values": entry.owned.values}
    head_record(entry.head, tensors)
    content: dict[str, object] = {
        "task": entry.task,
        "claimed": entry.size,
        "owned": region_record(entry.owned.region, "owned", tensors),
        "lost": region_record(entry.owned_before, "lost", tensors),
        "density": entry.density,
        "base_fingerprint": bank.base.fingerprint,
        "layout_sha256": layout_sha256(bank.layout),
        "weights_sha256": entry.weights_sha256,
        "facts": dict(entry.metadata),
    }
    if entry.recorded_batch is not None:
        content["canary"] = recorded_batch_record(entry.recorded_batch, tensors)
    return pack(tensors, content, format=ENTRY_FORMAT, version=BANK_VERSION)


def unpack_entry(
    data: bytes, bank: GraftBank, line: Mapping[str, Any], *, name: str, position: int
) -> Entry:
    """Read an entry of `bank` from the bytes of its file.

    Args:
        data: The bytes; they must have been compared with the SHA-256 that `bank.json` states.
        bank: The bank; its entries are not used.
        line: The entry's line in the bank's index.
        name: Name of the file in messages.
        position: The entry's place in the bank.

    Raises:
        BankError: Its subclasses say why the file is refused.
    """
    head, tensors = unpack(data, format=ENTRY_FORMAT, name=name, known=True)
    with report_damage(name):
        if part(head, "layout_sha256", str) != layout_sha256(bank.layout):
            raise WrongArchitecture(f"{name} belongs to another architecture than its bank")
        if part(head, "base_fingerprint", str) != bank.base.fingerprint:
            raise WrongBase(f"{name} belongs to another base model than its bank")
        if head["version"] >= BANK_VERSION:
            # An earlier version keeps here what the line says as well.
            place, stated = position, {key: line[key] for key in _OF_THE_LINE if key in line}
        else:
            place = part(head, "position", int) if head["version"] > 2 else position
            stated = head
        # In isolated mode entries do not depend on each other, so an earlier one may be missing.
        if place != position and bank.mode == "prefix":
            raise ValueError(f"it is entry {place}, and is listed as entry {position}")
        owned = read_region(part(head, "owned", int), "owned", tensors, bank.layout)
        lost = read_region(part(head, "lost", int), "lost", tensors, bank.layout)
        if (held := len(owned) + len(lost)) != head["claimed"]:
            raise ValueError(f"it claims {head['claimed']!r:.40} coordinates and holds {held}")
        check_task_metadata(
            task=head["task"],
            label=stated["label"],
            weights_sha256=head["weights_sha256"],
            metadata=head["facts"],
        )
        entry = Entry(
            task=head["task"],
            label=stated["label"],
            owned=Graft(owned, tensors["owned.values"]),
            owned_before=lost,
            head=read_head(tensors),
            weights_sha256=head["weights_sha256"],
            recorded_batch=read_recorded_batch(part(head, "canary", dict), tensors)
            if "canary" in head
            else None,
            metadata=head["facts"],
            builds_on=read_builds_on(stated, bank.mode, position=place),
        )
        check_dtype(entry.owned, bank.base, task=entry.task)
        return entry


def read_builds_on(
    stated: Mapping[str, Any], mode: Mode, *, position: int
) -> tuple[int, ...] | None:
    """Read what an entry builds on; None where it is not stated.

    Raises:
        ValueError: If no bank of this mode would say so.
        TypeError: If it is no list.
    """
    if "builds_on" not in stated:
        return None
    positions = part(stated, "builds_on", list)
    check_builds_on(positions, position)
    if mode == "isolated" or len(positions) == position:
        raise ValueError(f"it says that it builds on {positions!r:.80}, which no bank would write")
    return tuple(positions)


def has_place(path: Path | str) -> bool:
    """Tell whether an entry's file is of an early version, which holds its place in the bank."""
    return read_start(Path(path), format=ENTRY_FORMAT)["version"] < BANK_VERSION
