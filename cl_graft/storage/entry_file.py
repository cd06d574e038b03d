"""The file of one entry: owned coordinates and values, head, recorded batch and metadata.

An entry can be read only together with its bank, a graft file (`graft_file`) alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.errors import WrongArchitecture, WrongBase
from cl_graft.grafts.bank import Entry, GraftBank, check_builds_on
from cl_graft.grafts.graft import Graft
from cl_graft.storage.files import BUILDS_ON_VERSION, pack, report_damage, unpack
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

__all__ = ["ENTRY_FORMAT", "pack_entry", "read_place", "unpack_entry"]

ENTRY_FORMAT = "cl-graft-entry"


def pack_entry(
    entry: Entry, bank: GraftBank, *, position: int, standalone: str | None = None
) -> bytes:
    """Return the bytes of an entry's file.

    Args:
        entry: The entry.
        bank: Bank of the entry.
        position: Place of the entry in the bank.
        standalone: SHA-256 of the file of its standalone graft, if it has one.

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
        "label": entry.label,
        "position": position,
        "claimed": entry.size,
        "owned": region_record(entry.owned.region, "owned", tensors),
        "lost": region_record(entry.owned_before, "lost", tensors),
        "density": entry.density,
        "base_fingerprint": bank.base.fingerprint,
        "layout_sha256": layout_sha256(bank.layout),
        "weights_sha256": entry.weights_sha256,
        "facts": dict(entry.metadata),
    }
    if standalone is not None:
        content["standalone_sha256"] = standalone
    if entry.recorded_batch is not None:
        content["canary"] = recorded_batch_record(entry.recorded_batch, tensors)
    if entry.builds_on is None:
        return pack(tensors, content, format=ENTRY_FORMAT)
    content["builds_on"] = list(entry.builds_on)
    return pack(tensors, content, format=ENTRY_FORMAT, version=BUILDS_ON_VERSION)


def unpack_entry(data: bytes, bank: GraftBank, *, name: str, position: int) -> Entry:
    """Read an entry of `bank` from the bytes of its file.

    Args:
        data: The bytes; they must have been compared with the SHA-256 that `bank.json` states.
        bank: The bank; its entries are not used.
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
        place = part(head, "position", int) if head["version"] > 2 else position
        # In isolated mode entries do not depend on each other, so an earlier one may be missing.
        if place != position and bank.mode == "prefix":
            raise ValueError(f"it is entry {place}, and is listed as entry {position}")
        owned = read_region(part(head, "owned", int), "owned", tensors, bank.layout)
        lost = read_region(part(head, "lost", int), "lost", tensors, bank.layout)
        if (held := len(owned) + len(lost)) != head["claimed"]:
            raise ValueError(f"it claims {head['claimed']!r:.40} coordinates and holds {held}")
        check_task_metadata(
            task=head["task"],
            label=head["label"],
            weights_sha256=head["weights_sha256"],
            metadata=head["facts"],
        )
        entry = Entry(
            task=head["task"],
            label=head["label"],
            owned=Graft(owned, tensors["owned.values"]),
            owned_before=lost,
            head=read_head(tensors),
            weights_sha256=head["weights_sha256"],
            recorded_batch=read_recorded_batch(part(head, "canary", dict), tensors)
            if "canary" in head
            else None,
            metadata=head["facts"],
            builds_on=_read_builds_on(head, bank, position=place),
        )
        check_dtype(entry.owned, bank.base, task=entry.task)
        return entry


def _read_builds_on(
    head: Mapping[str, Any], bank: GraftBank, *, position: int
) -> tuple[int, ...] | None:
    """Read what an entry builds on; None where it does not say so."""
    if "builds_on" not in head:
        return None
    positions = part(head, "builds_on", list)
    check_builds_on(positions, position)
    if head["version"] < BUILDS_ON_VERSION or bank.mode == "isolated" or len(positions) == position:
        raise ValueError(f"it says that it builds on {positions!r:.80}, which no bank would write")
    return tuple(positions)


def read_place(data: bytes, *, name: str) -> tuple[int, str | None] | None:
    """Read from an entry's file its place in its bank and the SHA-256 of its standalone graft.

    Args:
        data: The file's bytes, which are compared with their checksum.
        name: Name of the file in messages.

    Returns:
        None before version 3, which kept neither.

    Raises:
        BankError: Its subclasses say why the file is refused.
    """
    head, _ = unpack(data, format=ENTRY_FORMAT, name=name)
    if head["version"] < 3:
        return None
    with report_damage(name):
        standalone = part(head, "standalone_sha256", str) if "standalone_sha256" in head else None
        return part(head, "position", int), standalone
