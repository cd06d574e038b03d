"""An overlay: one safetensors file that any tool can lay over the checkpoint of the base.

Of every parameter that the graft touches it holds `NAME.index`, the sorted flat row-major numbers
of the elements that change, and `NAME.values`, what they become; `NAME` is the parameter's name in
the checkpoint. The task's head stands beside them as `head.*`. Values are absolute, as in a graft,
so the result has the graft's bits on whatever machine:

    for name in names:
        state[name].view(-1)[overlay[f"{name}.index"].long()] = overlay[f"{name}.values"]

A graft file (`cl_graft.storage.graft_file`) is smaller, as its index is packed, but is read by this
package alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cl_graft.grafts.bank import Entry
from cl_graft.grafts.graft import Graft
from cl_graft.storage.files import pack, read_file, replace_file, report_damage, unpack

__all__ = ["OVERLAY", "Overlay", "read_overlay", "write_overlay"]

OVERLAY = "cl-graft-overlay"
"""The format that the file's metadata names."""

_BACKBONE = "backbone."


@dataclass(frozen=True, eq=False)
class Overlay:
    """The content of an overlay.

    Attributes:
        changes: Flat numbers and values, by the parameter's name in the checkpoint.
        head: State of the task's head, names relative to the head.
        record: Description of the task, as `describe_task` makes it.
    """

    changes: Mapping[str, tuple[Tensor, Tensor]]
    head: Mapping[str, Tensor]
    record: Mapping[str, Any]


def write_overlay(graft: Graft, entry: Entry, record: Mapping[str, Any], path: Path | str) -> None:
    """Write an overlay, atomically.

    Args:
        graft: All values that answer the task.
        entry: Entry with the task's head.
        record: Description of the task, as `describe_task` makes it.
        path: The file.
    """
    path = Path(path)
    tensors: dict[str, Tensor] = {}
    sizes = dict(zip(graft.region.layout.names, graft.region.layout.sizes, strict=True))
    for full, inside, place in graft.region.by_parameter():
        name = full.removeprefix(_BACKBONE)
        tensors[f"{name}.index"] = inside.to(torch.int32 if sizes[full] < 2**31 else torch.int64)
        tensors[f"{name}.values"] = graft.values[place]
    tensors |= {f"head.{name}": tensor for name, tensor in entry.head.items()}
    replace_file(path, pack(tensors, record, format=OVERLAY))


def read_overlay(path: Path | str) -> Overlay:
    """Read what `write_overlay` wrote.

    Raises:
        BankError: Its subclasses say why the file is refused.
    """
    path = Path(path)
    name = str(path)
    record, tensors = unpack(read_file(path, format=OVERLAY), format=OVERLAY, name=name)
    with report_damage(name):
        head = {k.removeprefix("head."): t for k, t in tensors.items() if k.startswith("head.")}
        changes: dict[str, tuple[Tensor, Tensor]] = {}
        for key in tensors:
            parameter, _, kind = key.rpartition(".")
            if key.startswith("head.") or (kind == "values" and f"{parameter}.index" in tensors):
                continue
            if kind != "index" or not parameter:
                raise ValueError(f"{key!r} is none of NAME.index, NAME.values and head.NAME")
            index, values = tensors[key], tensors[f"{parameter}.values"]
            if index.shape != values.shape:
                raise ValueError(
                    f"{parameter} has {index.numel()} numbers, {values.numel()} values"
                )
            changes[parameter] = (index, values)
        return Overlay(changes, head, record)
