"""Files of composable-sft: sparse differences of a whole fine-tuning, and the task's head.

`pytorch_diff.bin` (Ansell et al., 2022, https://arxiv.org/abs/2110.07560; Lottery Ticket Sparse
Fine-Tuning) is a pickle. It is read with torch's restricted unpickler, which makes tensors, numbers
and containers and calls nothing else; a file that asks for more is refused.

Of each parameter it holds `size`, `index_steps` (differences between successive flat numbers, which
count the *first* dimension fastest) and `values`, which are added to the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cl_graft.errors import InputError, first_line

__all__ = ["SPARSE_TUNING", "SparseTuning", "read_sparse_tuning"]

SPARSE_TUNING = "pytorch_diff.bin"
"""The file's name."""

_SCALAR: Any = np.int64(0).__reduce__()[0]
_NUMPY = [
    # The first number of a list of steps is one of numpy's: these names make it, and nothing else.
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    np.dtype,
    np.dtypes.Int64DType,
]


@dataclass(frozen=True, eq=False)
class SparseTuning:
    """The content of a file.

    Attributes:
        changes: Flat row-major numbers (int64) and differences, by the parameter's name.
        head: Values of the task's head, by the parameter's name.
    """

    changes: Mapping[str, tuple[Tensor, Tensor]]
    head: Mapping[str, Tensor]


def read_sparse_tuning(path: Path | str) -> SparseTuning:
    """Read a file of composable-sft.

    Raises:
        InputError: If it is none, is damaged, or holds more than numbers.
    """
    path = Path(path)
    try:
        with torch.serialization.safe_globals(_NUMPY):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises whatever it stumbles on
        raise InputError(
            f"{path} is no file of composable-sft that can be read safely: {first_line(error)}"
        ) from error
    body = found.get("body") if isinstance(found, dict) else None
    if not isinstance(body, dict) or not body:
        raise InputError(
            f"{path} is no file of composable-sft: expected a dictionary with a 'body' of "
            "differences by parameter"
        )
    head = found.get("head") or {}
    try:
        _check_tensors([body, head])
        changes = {str(name): _decode(record) for name, record in body.items()}
        return SparseTuning(changes, {str(name): tensor.detach() for name, tensor in head.items()})
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RuntimeError,
    ) as error:
        raise InputError(f"{path} is damaged or of another version: {error!r}") from error


def _check_tensors(found: Any) -> None:
    """Refuse tensors that are no plain numbers, or more of them than the file holds.

    A tensor may show one number of the file as often as it likes, which costs the file nothing.

    Raises:
        ValueError: If there is one.
    """
    if isinstance(found, Tensor) and found.layout == torch.sparse_coo:
        found = [found._indices(), found._values()]
    if isinstance(found, Tensor):
        if found.layout != torch.strided or found.is_meta or found.is_quantized:
            raise ValueError(f"a tensor of {found.layout} on {found.device}, expected numbers")
        if found.nbytes > found.untyped_storage().nbytes():
            raise ValueError(
                f"a tensor of shape {tuple(found.shape)} that shows numbers repeatedly"
            )
    elif isinstance(found, Mapping):
        _check_tensors([*found.values()])
    elif isinstance(found, list | tuple):
        for part in found:
            if not isinstance(part, int):
                _check_tensors(part)


def _decode(record: Any) -> tuple[Tensor, Tensor]:
    """Return row-major numbers, sorted, and the differences there."""
    if isinstance(record, Tensor):
        # Repeated places would be added up, and nobody could tell.
        size, places, values = record.shape, record._indices(), record._values()
    else:
        size, values = torch.Size(record["size"]), record["values"]
        total, held = size.numel(), record["index_steps"]
        if len(held) > total:
            raise ValueError(f"{len(held)} numbers for {total} elements")
        steps = torch.tensor([index(step) for step in held], dtype=torch.int64)
        numbers = steps.cumsum(0)
        if values.shape != numbers.shape or (numbers.numel() and not _inside(steps, total)):
            raise ValueError(
                f"{numbers.numel()} numbers and {tuple(values.shape)} values for {total} elements"
            )
        rest, columns = numbers, list[Tensor]()
        for length in size:
            columns.append(rest % length)
            rest = rest // length
        places = torch.stack(columns)
    flat = torch.zeros(places.shape[1], dtype=torch.int64)
    for length, column in zip(size, places, strict=True):
        if column.numel() and not 0 <= int(column.min()) <= int(column.max()) < length:
            raise ValueError(f"places beyond a shape of {tuple(size)}")
        flat = flat * length + column
    flat, order = flat.sort()
    if values.shape != flat.shape:
        raise ValueError(f"{flat.numel()} numbers and values of shape {tuple(values.shape)}")
    return flat, values[order]


def _inside(steps: Tensor, total: int) -> bool:
    """Tell whether numbers begin at 0 or above, increase, and stay below `total`."""
    return int(steps[0]) >= 0 and bool((steps[1:] > 0).all()) and int(steps.sum()) < total
