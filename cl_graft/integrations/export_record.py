"""The parts of an export that do not depend on its format: the task's record, counts and head.

`task.json` describes the task. An encoder's head for which transformers has no class is written
beside the weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

import cl_graft
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.models.text_generation import TextHead, is_text_head

_KEPT = (
    "kind",
    "label_names",
    "intent_names",
    "pair",
    "prompt",
    "decoding",
    "chat",
    "max_length",
    "longest_answer",
    "metric",
    "temperature",
    "activation",
)
"""Metadata of an entry that answering its texts needs."""

_OF_BASE = ("revision", "weights_sha256", "precision")
"""Metadata of the base that loading it needs."""


def format_counts(counts: Mapping[str, int]) -> str:
    """Write numbers of coordinates in words, as ``"LayerNorm.bias 12, word embeddings 1,024"``.

    Examples:
        >>> format_counts({"LayerNorm.bias": 12, "word embeddings": 1024})
        'LayerNorm.bias 12, word embeddings 1,024'
    """
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items())


def describe_task(bank: GraftBank, position: int) -> dict[str, Any]:
    """Describe a task of a bank: its labels, how the model reads texts, and the base."""
    entry, base, graft = bank.entries[position], bank.base, bank.answer(position)
    family = base.metadata.get("family")
    record: dict[str, Any] = {
        "task": entry.task,
        "family": family,
        **{key: entry.metadata[key] for key in _KEPT if entry.metadata.get(key) is not None},
        "coordinates": len(graft),
        "density": graft.region.density,
        "base": {
            "model": base.model,
            "dtype": base.dtype,
            "fingerprint": base.fingerprint,
            **{key: base.metadata[key] for key in _OF_BASE if base.metadata.get(key) is not None},
        },
        "written_by": f"cl_graft {cl_graft.__version__}",
    }
    if family == "encoder":
        record["pooling"] = base.metadata.get("pooling", "mean")
    elif is_text_head(entry.head):
        head = TextHead.of(entry.head)
        stops = head.stops.tolist()
        record |= {"stop_token_ids": stops, "longest": head.longest, "beams": head.beams}
    elif tokens := _label_tokens(entry):
        record["label_token_ids"] = tokens
    return record


def _label_tokens(entry: Entry) -> list[list[int]]:
    """Return the token ids of every label of a prompted task; none for a trained head."""
    ids = entry.head.get("token_ids")
    if ids is None:
        return []
    if "lengths" not in entry.head:
        return [[token] for token in ids.tolist()]
    lengths = entry.head["lengths"].tolist()
    return [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]


def save_head(entry: Entry, into: Path) -> None:
    """Write an encoder's head as `head.safetensors` into a folder."""
    head = {name: tensor.contiguous() for name, tensor in entry.head.items()}
    save_file(head, into / "head.safetensors", metadata={"format": "pt"})


def skips_pooler(backbone: object) -> bool:
    """Tell whether the class makes a pooler, which no head uses here, unless told not to."""
    return "add_pooling_layer" in inspect.signature(type(backbone).__init__).parameters
