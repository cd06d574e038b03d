"""The file of one entry: owned coordinates and values, head, recorded batch and metadata.

An entry can be read only together with its bank, a graft file (`graft_file`) alone. Its place in
the bank, its task label, its sizes, the hash of its weights and what it builds on stand in the
bank's index alone, so that its file stays as it is when another task is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.errors import WrongArchitecture, WrongBase
from cl_graft.grafts.bank import Entry, GraftBank, Mode, check_builds_on
from cl_graft.grafts.graft import Graft
from cl_graft.storage.files import pack, report_damage, unpack
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

ENTRY_FORMAT = "cl-graft-entry"


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
        "base_fingerprint": bank.base.fingerprint,
        "layout_sha256": layout_sha256(bank.layout),
        "metadata": dict(entry.metadata),
    }
    region_record(entry.owned.region, "owned", tensors)
    region_record(entry.owned_before, "owned_before", tensors)
    if entry.recorded_batch is not None:
        content["recorded"] = recorded_batch_record(entry.recorded_batch, tensors)
    return pack(tensors, content, format=ENTRY_FORMAT)


def unpack_entry(
    data: bytes, bank: GraftBank, line: Mapping[str, Any], *, name: str, position: int
) -> Entry:
    """Read an entry of `bank` from the bytes of its file.

    Args:
        data: The bytes.
        bank: The bank; its entries are not used.
        line: The entry's line in the bank's index.
        name: Name of the file in messages.
        position: The entry's place in the bank.

    Raises:
        BankError: Its subclasses say why the file is refused.
    """
    head, tensors = unpack(data, format=ENTRY_FORMAT, name=name, checksum=line["checksum"])
    with report_damage(name):
        if part(head, "layout_sha256", str) != layout_sha256(bank.layout):
            raise WrongArchitecture(f"{name} belongs to another architecture than its bank")
        if part(head, "base_fingerprint", str) != bank.base.fingerprint:
            raise WrongBase(f"{name} belongs to another base model than its bank")
        if head["task"] != line["task"]:
            raise ValueError(f"it is of task {head['task']!r:.80}, not {line['task']!r}")
        check_task_metadata(task=line["task"], metadata=head["metadata"])
        owned = read_region(line["owned"], "owned", tensors, bank.layout)
        before = read_region(line["size"] - line["owned"], "owned_before", tensors, bank.layout)
        recorded = read_recorded_batch(head["recorded"], tensors) if "recorded" in head else None
        entry = Entry(
            task=line["task"],
            label=line["label"],
            owned=Graft(owned, tensors["owned.values"]),
            owned_before=before,
            head=read_head(tensors),
            weights_sha256=line["weights_sha256"],
            recorded_batch=recorded,
            metadata=head["metadata"],
            builds_on=read_builds_on(line, bank.mode, position=position),
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
