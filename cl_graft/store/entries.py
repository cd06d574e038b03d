"""The file of one entry: what a task owns, what it lost to earlier tasks, its head and canary."""

from __future__ import annotations

from cl_graft.bank import Entry, GraftBank
from cl_graft.errors import WrongArchitecture, WrongBase
from cl_graft.graft import Graft
from cl_graft.store.files import pack, unpack, valid
from cl_graft.store.metadata import check_task_metadata
from cl_graft.store.records import (
    canary_record,
    check_dtype,
    head_record,
    layout_sha256,
    part,
    read_canary,
    read_head,
    read_region,
    region_record,
)

__all__ = ["pack_entry", "unpack_entry"]

_FORMAT = "cl-graft-entry"
_METADATA = ("task", "label", "weights_sha256", "facts")


def pack_entry(entry: Entry, bank: GraftBank) -> bytes:
    """Return the bytes of an entry's file.

    Raises:
        ValueError: If its values do not have the dtype that the bank's base states, or its metadata
            are none that `unpack_entry` would read.
    """
    check_task_metadata(
        task=entry.task,
        label=entry.label,
        weights_sha256=entry.weights_sha256,
        facts=dict(entry.facts),
    )
    check_dtype(entry.owned, bank.base, task=entry.task)
    tensors = {"owned.values": entry.owned.values}
    head_record(entry.head, tensors)
    content: dict[str, object] = {
        "task": entry.task,
        "label": entry.label,
        "claimed": entry.size,
        "owned": region_record(entry.owned.region, "owned", tensors),
        "lost": region_record(entry.lost, "lost", tensors),
        "density": entry.density,
        "base_fingerprint": bank.base.fingerprint,
        "layout_sha256": layout_sha256(bank.layout),
        "weights_sha256": entry.weights_sha256,
        "facts": dict(entry.facts),
    }
    if entry.canary is not None:
        content["canary"] = canary_record(entry.canary, tensors)
    return pack(tensors, content, format=_FORMAT)


def unpack_entry(data: bytes, bank: GraftBank, *, name: str) -> Entry:
    """Read an entry of `bank` from the bytes of its file, called `name` in messages.

    They must have been compared with the SHA-256 that the bank's index states.

    Raises:
        BankError: Its subclasses say why the file is refused.
    """
    head, tensors = unpack(data, format=_FORMAT, name=name, known=True)
    with valid(name):
        if part(head, "layout_sha256", str) != layout_sha256(bank.layout):
            raise WrongArchitecture(f"{name} belongs to another architecture than its bank")
        if part(head, "base_fingerprint", str) != bank.base.fingerprint:
            raise WrongBase(f"{name} belongs to another base model than its bank")
        owned = read_region(part(head, "owned", int), "owned", tensors, bank.layout)
        lost = read_region(part(head, "lost", int), "lost", tensors, bank.layout)
        if (held := len(owned) + len(lost)) != head["claimed"]:
            raise ValueError(f"it claims {head['claimed']} coordinates and holds {held}")
        check_task_metadata(**{key: head[key] for key in _METADATA})
        entry = Entry(
            task=part(head, "task", str),
            label=part(head, "label", int),
            owned=Graft(owned, tensors["owned.values"]),
            lost=lost,
            head=read_head(tensors),
            weights_sha256=part(head, "weights_sha256", str),
            canary=read_canary(part(head, "canary", dict), tensors) if "canary" in head else None,
            facts=part(head, "facts", dict),
        )
        check_dtype(entry.owned, bank.base, task=entry.task)
        return entry
