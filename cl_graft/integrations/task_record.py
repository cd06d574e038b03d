"""What other tools must know of a task beside its weights, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cl_graft
from cl_graft.grafts.bank import Entry, GraftBank

__all__ = ["label_tokens", "task_record"]

_KEPT = ("label_names", "pair", "prompt", "max_length", "metric", "temperature", "activation")
"""Facts of an entry that answering its texts needs."""


def task_record(bank: GraftBank, position: int) -> dict[str, Any]:
    """Describe a task of a bank: its labels, how texts are posed, and the base it belongs to.

    Args:
        bank: The bank.
        position: The entry.
    """
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
            **_given(base.metadata, "revision", "weights_sha256", "precision"),
        },
        "written_by": f"cl_graft {cl_graft.__version__}",
    }
    if family == "encoder":
        record["pooling"] = base.metadata.get("pooling", "mean")
    elif tokens := label_tokens(entry):
        record["label_token_ids"] = tokens
    return record


def label_tokens(entry: Entry) -> list[list[int]]:
    """Return the token ids of every label of a prompted task; none for a trained head."""
    ids = entry.head.get("token_ids")
    if ids is None:
        return []
    if "lengths" not in entry.head:
        return [[token] for token in ids.tolist()]
    lengths = entry.head["lengths"].tolist()
    return [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]


def _given(metadata: Mapping[str, object], *keys: str) -> dict[str, object]:
    return {key: metadata[key] for key in keys if metadata.get(key) is not None}
