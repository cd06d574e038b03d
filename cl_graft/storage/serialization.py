"""Regions, heads, recorded batches, layouts and base models as tensors and JSON, and back.

Each `…_record` function returns the JSON part of a thing and adds its tensors to a dictionary; the
function beside it reads them back and raises `ValueError`, `KeyError` or `TypeError` for what it
would not have written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cl_graft.errors import FutureVersion, WrongArchitecture, WrongBase
from cl_graft.grafts.bank import BaseIdentity, RecordedBatch
from cl_graft.grafts.drawn_order import RULE, find_coordinates, find_places
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.runtime.escaping import control_in
from cl_graft.storage.elias_fano import pack_indices, packed_size, unpack_indices
from cl_graft.storage.files import to_json
from cl_graft.storage.matrix_lines import count_coordinates, read_lines, split_lines, unfold_lines
from cl_graft.storage.metadata_schema import check_metadata

_LARGEST_BATCH = 2**23
"""Most elements of a recorded batch's inputs that a padded width may unfold to."""

DRAWN_BYTES = 240
"""Bytes of a drawn region's rule, seed and hash in the header of a file."""

_LOGITS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Types of the logits of a recorded batch."""


def region_record(region: Region, key: str, tensors: dict[str, Tensor]) -> int:
    """Return the number of coordinates; the packed index is tensor ``key.index``.

    Where that is smaller, whole columns and rows are in ``key.lines``, and the rest in the index.
    """
    lines, rest = split_lines(region)
    if len(lines):
        tensors[f"{key}.lines"] = lines
    tensors[f"{key}.index"] = pack_indices(rest, total=region.layout.total)
    return len(region)


def read_region(count: int, key: str, tensors: Mapping[str, Tensor], layout: Layout) -> Region:
    """Read a region of `layout` that `region_record` wrote, with values beside it or without."""
    packed, numbers = tensors[f"{key}.index"], tensors.get(f"{key}.lines")
    values = tensors.get(f"{key}.values")
    if values is not None and len(values) != count:
        raise ValueError(f"{count} coordinates need as many values, got {len(values)}")
    if numbers is None:
        return Region(layout, unpack_indices(packed, count=int(count), total=layout.total))
    lines = read_lines(numbers, layout)
    if (inside := count_coordinates(lines)) > count:
        raise ValueError(f"columns and rows hold {inside} coordinates, and {count} are stated")
    rest = unpack_indices(packed, count=count - inside, total=layout.total)
    index = torch.cat([*unfold_lines(lines), rest]).numpy()
    index.sort(kind="stable")  # which merges sorted runs
    if len(rest) and (index[1:] == index[:-1]).any():
        raise ValueError("coordinates of its columns and rows are listed a second time")
    return Region(layout, torch.from_numpy(index))


def drawn_record(region: Region, seed: int, tensors: dict[str, Tensor]) -> dict[str, object]:
    """Return how a region was drawn, or {} where an index is not longer.

    A drawn region is the first part of the order of a seed without some of its places, which tensor
    ``owned.passed_over`` holds, such as those whose coordinates earlier tasks own.
    """
    total = region.layout.total
    places = find_places(region.index, seed=seed, total=total)
    drawn = int(places.max()) + 1 if len(places) else 0
    if packed_size(drawn - len(places), drawn) + DRAWN_BYTES >= packed_size(len(region), total):
        return {}
    passed_over = np.delete(np.arange(drawn), places.numpy())
    tensors["owned.passed_over"] = pack_indices(torch.from_numpy(passed_over), total=drawn)
    return {"rule": RULE, "seed": seed, "places": drawn, "sha256": _index_sha256(region)}


def read_drawn(
    record: Mapping[str, Any], count: int, tensors: Mapping[str, Tensor], layout: Layout, name: str
) -> Region:
    """Read a region of `layout` that `drawn_record` described, in the file `name`."""
    if record["rule"] != RULE:
        raise FutureVersion(
            f"the region in {name} is drawn by the rule {record['rule']!r:.80}, this package draws "
            f"by {RULE!r}; read it with the version of cl_graft that wrote it"
        )
    seed, drawn = part(record, "seed", int), part(record, "places", int)
    if not count <= drawn <= layout.total or len(tensors["owned.values"]) != count:
        raise ValueError(f"{count} coordinates cannot be of {drawn} places, or lack values")
    if packed_size(drawn - count, drawn) >= packed_size(count, layout.total):
        raise ValueError(f"{count} coordinates of {drawn} places would be stored by an index")
    passed_over = unpack_indices(tensors["owned.passed_over"], count=drawn - count, total=drawn)
    places = torch.from_numpy(np.delete(np.arange(drawn), passed_over.numpy()))
    region = Region.of(layout, find_coordinates(places, seed=seed, total=layout.total))
    if _index_sha256(region) != record["sha256"]:
        raise FutureVersion(
            f"the region in {name} is not the one that this version of cl_graft draws from its "
            "seed; read it with the version of cl_graft that wrote it"
        )
    return region


def _index_sha256(region: Region) -> str:
    return hashlib.sha256(region.index.numpy().astype("<i8").tobytes()).hexdigest()


def recorded_batch_record(
    recorded_batch: RecordedBatch, tensors: dict[str, Tensor]
) -> dict[str, object]:
    """Return the environment of a recorded batch and how its inputs were packed.

    Encoded text (int64, (rows, 2, width): token ids; 0 for padding, else the segment + 1) is kept
    as two tensors of narrow integers without the columns that are padding in all rows.
    """
    record: dict[str, object] = {"environment": dict(recorded_batch.environment)}
    tensors["recorded.logits"] = recorded_batch.logits
    inputs = recorded_batch.inputs.cpu()
    if not _is_encoded_text(inputs):
        tensors["recorded.inputs"] = inputs
        return record
    tokens, segments = inputs[:, 0], inputs[:, 1]
    width = int(segments.any(0).nonzero().max()) + 1 if bool(segments.any()) else 0
    padding = int(tokens[0, -1])
    if bool((tokens[:, width:] != padding).any()) or inputs.numel() > _LARGEST_BATCH:
        width = inputs.shape[2]
    narrow = torch.uint16 if int(tokens.max()) < 2**16 else torch.int32
    tensors["recorded.tokens"] = tokens[:, :width].to(narrow)
    tensors["recorded.segments"] = segments[:, :width].to(torch.uint8)
    return {**record, "width": inputs.shape[2], "padding": padding}


def read_recorded_batch(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> RecordedBatch:
    """Read a batch that `recorded_batch_record` wrote."""
    if "recorded.inputs" in tensors:
        inputs = tensors["recorded.inputs"]
    else:
        tokens, segments = tensors["recorded.tokens"], tensors["recorded.segments"]
        rows, columns = tokens.shape
        width = int(record["width"])
        if width < columns or (width > columns and 2 * rows * width > _LARGEST_BATCH):
            raise ValueError(f"{columns} columns cannot be padded to {width}")
        inputs = torch.zeros(rows, 2, width, dtype=torch.int64)
        inputs[:, 0] = int(record["padding"])
        inputs[:, 0, :columns] = tokens.to(torch.int64)
        inputs[:, 1, :columns] = segments.to(torch.int64)
    environment = part(record, "environment", dict)
    check_metadata("environment", environment)
    logits = tensors["recorded.logits"]
    if logits.dtype not in _LOGITS:
        raise ValueError(f"the logits of its recorded batch are of {logits.dtype}")
    return RecordedBatch(inputs, logits, dict(environment))


def layout_record(layout: Layout) -> dict[str, object]:
    """Return names and shapes."""
    return {"names": list(layout.names), "shapes": [list(shape) for shape in layout.shapes]}


def read_layout(record: Mapping[str, Any]) -> Layout:
    """Read a layout that `layout_record` wrote."""
    names, shapes = part(record, "names", list), part(record, "shapes", list)
    if len(names) != len(shapes) or len(set(names)) != len(names):
        raise ValueError(
            f"a layout must have one shape for each of its names, which must differ, got "
            f"{len(names)} names and {len(shapes)} shapes"
        )
    strange = [name for name in names if not isinstance(name, str) or control_in(name)]
    if strange:
        raise ValueError(
            f"a layout's names must be texts without control characters, got {strange[0]!r:.80}"
        )
    if not all(type(size) is int and size >= 0 for shape in shapes for size in shape):
        raise ValueError("a layout's shapes must hold integers from 0")
    total = sum(math.prod(shape) for shape in shapes)  # torch's own product wraps around
    if not (total > 0 or not names) or total > 2**62:
        raise ValueError(f"a layout of parameters must have 1 to 2**62 coordinates, got {total}")
    return Layout(tuple(names), tuple(tuple(shape) for shape in shapes))


@lru_cache(maxsize=8)
def layout_sha256(layout: Layout) -> str:
    """Return the SHA-256 over names and shapes."""
    return hashlib.sha256(to_json(layout_record(layout)).encode()).hexdigest()


def base_record(base: BaseIdentity) -> dict[str, object]:
    """Return a base model's identity as JSON."""
    record = {key: getattr(base, key) for key in ("fingerprint", "model", "dtype")}
    record["metadata"] = dict(base.metadata)
    check_metadata("base", record)
    return record


def read_base(record: Mapping[str, Any]) -> BaseIdentity:
    """Read an identity that `base_record` wrote."""
    check_metadata("base", record)
    return BaseIdentity(*(record[key] for key in ("fingerprint", "model", "dtype", "metadata")))


def check_layout(layout: Layout, expected: Layout | None, *, name: str) -> None:
    """Refuse a file of another architecture."""
    if expected is None or layout == expected:
        return
    sizes = [f"{len(o.names)} parameters with {o.total} coordinates" for o in (layout, expected)]
    here = dict(zip(expected.names, expected.shapes, strict=True))
    pairs = zip(layout.names, layout.shapes, strict=True)
    other = next(((name, shape) for name, shape in pairs if here.get(name) != shape), None)
    detail = "names or their order differ"
    if other:
        there = here.get(other[0])
        detail = f"{other[0]} has shape {other[1]} there and "
        detail += f"{there} here" if there is not None else "does not exist here"
    raise WrongArchitecture(
        f"{name} belongs to a model of {sizes[0]}, this model has {sizes[1]}: {detail}"
    )


def check_fingerprint(base: BaseIdentity, expected: str | None, *, name: str) -> None:
    """Refuse a file of another base model."""
    if expected is not None and base.fingerprint != expected:
        raise WrongBase(
            f"{name} belongs to another base model: its base {base.model!r} has fingerprint "
            f"{base.fingerprint[:12]}…, this model has {expected[:12]}…; other weights, another "
            "dtype or another tokenizer cause this"
        )


def part(record: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return an element of a JSON object that must have a certain type."""
    value = record[key]
    if not isinstance(value, kind):
        raise TypeError(f"{key} must be {kind.__name__}, got {value!r}")
    return value


def check_dtype(graft: Graft, base: BaseIdentity, *, task: str) -> None:
    """Refuse values in another dtype than the base model states."""
    if str(graft.values.dtype) != f"torch.{base.dtype}":
        raise ValueError(
            f"the graft values of {task!r} must be {base.dtype} as the base model is, "
            f"got {graft.values.dtype}"
        )


def head_record(head: Mapping[str, Tensor], tensors: dict[str, Tensor]) -> None:
    """Add the state of a task's head to `tensors`."""
    tensors |= {f"head.{name}": tensor for name, tensor in head.items()}


def read_head(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the head's tensors, names relative to the head."""
    prefix = "head."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _is_encoded_text(inputs: Tensor) -> bool:
    is_text = inputs.dtype == torch.int64 and inputs.dim() == 3 and inputs.shape[1] == 2
    if not is_text or not inputs.numel():
        return False
    low, high = inputs.amin((0, 2)), inputs.amax((0, 2))
    return bool((low >= 0).all()) and int(high[0]) < 2**31 and int(high[1]) < 2**8
