"""The file of one graft with its base model, head and metadata, to share or to merge.

It records its own base, so it needs no bank, unlike the file of an entry (`entry_file`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.grafts.bank import BaseIdentity
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout
from cl_graft.storage.files import pack, read_file, replace_file, report_damage, unpack
from cl_graft.storage.metadata_schema import check_task_metadata
from cl_graft.storage.serialization import (
    base_record,
    check_dtype,
    check_fingerprint,
    check_layout,
    head_record,
    layout_record,
    part,
    read_base,
    read_head,
    read_layout,
    read_region,
    region_record,
)

GRAFT_FORMAT = "cl-graft-graft"


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
    """Write one graft to a file, atomically; `load_graft` gives it back bit for bit.

    Raises:
        ValueError: If the values do not have the dtype that the base states, or the metadata
            do not fit the schema.
    """
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
    """Return the bytes of a graft file.

    Raises:
        ValueError: If the values do not have the dtype that the base states, or the metadata
            do not fit the schema.
    """
    check_task_metadata(task=stored.task, metadata=dict(stored.metadata))
    check_dtype(stored.graft, stored.base, task=stored.task)
    tensors = {"graft.values": stored.graft.values}
    head_record(stored.head, tensors)
    content = {
        "task": stored.task,
        "count": region_record(stored.graft.region, "graft", tensors),
        "base": base_record(stored.base),
        "layout": layout_record(stored.graft.region.layout),
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
        base = read_base(part(head, "base", dict))
        found = read_layout(part(head, "layout", dict))
    check_layout(found, layout, name=name)
    check_fingerprint(base, expect, name=name)
    with report_damage(name):
        region = read_region(part(head, "count", int), "graft", tensors, layout or found)
        graft = Graft(region, tensors["graft.values"])
        check_task_metadata(task=head["task"], metadata=head["metadata"])
        task = head["task"]
        check_dtype(graft, base, task=task)
        return StoredGraft(graft, base, task, read_head(tensors), head["metadata"])
