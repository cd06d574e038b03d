"""Files of grafts: of one graft with its base model, to share or to merge, and of a bank's entry.

An entry can be read only together with its bank. Its position, its task label, its sizes, the hash
of its weights and what it builds on stand in the bank's index alone, so its file stays as it is
when another task is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from cl_graft.errors import InputError, WrongArchitecture, WrongBase
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, Mode, check_builds_on
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout
from cl_graft.storage import serialization as parts
from cl_graft.storage.files import pack, read_file, replace_file, report_damage, unpack
from cl_graft.storage.metadata_schema import check_metadata
from cl_graft.storage.serialization import check_dtype, check_fingerprint, check_layout, part

GRAFT_FORMAT = "cl-graft-graft"
ENTRY_FORMAT = "cl-graft-entry"


@dataclass(frozen=True, eq=False)
class StoredGraft:
    """A graft with its base model and task.

    Attributes:
        graft: Coordinates and values.
        base: Identity of the base model.
        task: Name of the task.
        head: State of the task's head, names relative to the head; empty for prompts.
        metadata: Label names, scores and the like; JSON values only.
    """

    graft: Graft
    base: BaseIdentity
    task: str
    head: Mapping[str, Tensor] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)


def save_graft(stored: StoredGraft, path: Path | str) -> None:
    """Write one graft to a file, atomically; `load_graft` gives it back bit for bit."""
    replace_file(Path(path), pack_graft(stored))


def load_graft(
    path: Path | str, *, expect: str | None = None, layout: Layout | None = None
) -> StoredGraft:
    """Read what `save_graft` wrote.

    Args:
        path: The file.
        expect: Fingerprint of the base model it must belong to; None takes any.
        layout: The graftable parameters it must belong to; None takes any.

    Raises:
        InputError: If there is no such file.
        BankError: Its subclasses say why the file is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no graft file {path}")
    data = read_file(path, format=GRAFT_FORMAT)
    return unpack_graft(data, name=str(path), expect=expect, layout=layout)


def pack_graft(stored: StoredGraft) -> bytes:
    """Return the bytes of a graft file."""
    check_metadata("task", {"task": stored.task, "metadata": dict(stored.metadata)})
    check_dtype(stored.graft, stored.base, task=stored.task)
    tensors = {"graft.values": stored.graft.values}
    parts.head_record(stored.head, tensors)
    content = {
        "task": stored.task,
        "count": parts.region_record(stored.graft.region, "graft", tensors),
        "base": parts.base_record(stored.base),
        "layout": parts.layout_record(stored.graft.region.layout),
        "metadata": dict(stored.metadata),
    }
    return pack(tensors, content, format=GRAFT_FORMAT)


def unpack_graft(
    data: bytes,
    *,
    name: str,
    expect: str | None,
    layout: Layout | None,
    checksum: str | None = None,
) -> StoredGraft:
    """Read the bytes of a graft file; `checksum` as for `unpack`."""
    head, tensors = unpack(data, format=GRAFT_FORMAT, name=name, checksum=checksum)
    with report_damage(name):
        base = parts.read_base(part(head, "base", dict))
        stated = parts.read_layout(part(head, "layout", dict))
    check_layout(stated, layout, name=name)
    check_fingerprint(base, expect, name=name)
    with report_damage(name):
        region = parts.read_region(part(head, "count", int), "graft", tensors, layout or stated)
        graft, task = Graft(region, tensors["graft.values"]), head["task"]
        check_metadata("task", {"task": task, "metadata": head["metadata"]})
        check_dtype(graft, base, task=task)
        return StoredGraft(graft, base, task, parts.read_head(tensors), head["metadata"])


def pack_entry(entry: Entry, bank: GraftBank) -> bytes:
    """Return the bytes of an entry's file."""
    hashes = {"label": entry.label, "weights_sha256": entry.weights_sha256}
    check_metadata("task", {"task": entry.task, **hashes, "metadata": dict(entry.metadata)})
    check_dtype(entry.owned, bank.base, task=entry.task)
    tensors = {"owned.values": entry.owned.values}
    parts.head_record(entry.head, tensors)
    content: dict[str, object] = {
        "task": entry.task,
        "base_fingerprint": bank.base.fingerprint,
        "layout_sha256": parts.layout_sha256(bank.layout),
        "metadata": dict(entry.metadata),
    }
    seed = entry.metadata.get("region_seed")
    drawn = parts.drawn_record(entry.owned.region, seed, tensors) if isinstance(seed, int) else {}
    if drawn:
        content["drawn"] = drawn
    else:
        parts.region_record(entry.owned.region, "owned", tensors)
    parts.region_record(entry.owned_before, "owned_before", tensors)
    if entry.recorded_batch is not None:
        content["recorded"] = parts.recorded_batch_record(entry.recorded_batch, tensors)
    return pack(tensors, content, format=ENTRY_FORMAT)


def unpack_entry(
    data: bytes, bank: GraftBank, line: Mapping[str, Any], *, name: str, position: int
) -> Entry:
    """Read an entry from the bytes of its file and its line in the bank's index."""
    head, tensors = unpack(data, format=ENTRY_FORMAT, name=name, checksum=line["checksum"])
    with report_damage(name):
        if part(head, "layout_sha256", str) != parts.layout_sha256(bank.layout):
            raise WrongArchitecture(f"{name} belongs to another architecture than its bank")
        if part(head, "base_fingerprint", str) != bank.base.fingerprint:
            raise WrongBase(f"{name} belongs to another base model than its bank")
        if head["task"] != line["task"]:
            raise ValueError(f"it is of task {head['task']!r:.80}, not {line['task']!r}")
        check_metadata("task", {"task": line["task"], "metadata": head["metadata"]})
        rest, recorded = line["size"] - line["owned"], None
        if "drawn" in head:
            record = part(head, "drawn", dict)
            owned = parts.read_drawn(record, line["owned"], tensors, bank.layout, name)
        else:
            owned = parts.read_region(line["owned"], "owned", tensors, bank.layout)
        before = parts.read_region(rest, "owned_before", tensors, bank.layout)
        if "recorded" in head:
            recorded = parts.read_recorded_batch(head["recorded"], tensors)
        entry = Entry(
            task=line["task"],
            label=line["label"],
            owned=Graft(owned, tensors["owned.values"]),
            owned_before=before,
            head=parts.read_head(tensors),
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
    """Read what an entry builds on; None where it is not stated."""
    if "builds_on" not in stated:
        return None
    positions = part(stated, "builds_on", list)
    check_builds_on(positions, position)
    if mode == "isolated" or len(positions) == position:
        raise ValueError(f"it says that it builds on {positions!r:.80}, which no bank would write")
    return tuple(positions)
