"""A trial of a model that was just loaded: a short text alone, and beside a longer one."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cl_graft.errors import InputError, first_line
from cl_graft.models.text_generation import TextHead, decode_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from cl_graft.models.task_model import TaskModel


_ROUNDING, _ROUNDING_OF_HALF = 3e-4, 0.2
"""Shares of the largest value that rounding stays below: up to 2e-6 and 0.015 were seen."""

_TEXTS = ("a text", "a longer text, with which the first one shares a batch")


def try_model(model: TaskModel, tokenizer: PreTrainedTokenizerBase, *, dtype: torch.dtype) -> None:
    """Run a model on two texts; note whether prompts of several lengths must be decoded apart."""
    ids, segments = _encode(tokenizer)
    kind = getattr(model.text_config, "model_type", type(model.backbone).__name__)
    types = f"dtype {str(dtype).removeprefix('torch.')}"
    types += f" and precision {model.precision}" if model.precision != "fp32" else ""
    whole = dtype == torch.float32 and model.precision == "fp32"
    rounding = _ROUNDING if whole else _ROUNDING_OF_HALF
    try:
        alone, beside = _compare(model, ids, segments)
    except MemoryError:
        raise
    except Exception as error:  # whatever the code of an architecture raises
        if torch.accelerator.is_available():
            return
        raise InputError(
            f"{model.name!r} ({kind}) cannot compute a text with {types}: {first_line(error)}"
        ) from error
    if not bool(torch.stack([alone, beside]).isfinite().all()):
        raise InputError(
            f"{model.name!r} ({kind}) answers a text with NaN or infinities with {types}: are its "
            "weights whole, and is the type wide enough for its values?"
        )
    if (apart := _distance(alone, beside)) > rounding:
        raise InputError(
            f"{model.name!r} ({kind}) answers the same text differently beside a longer one "
            f"({apart:.0%} of the largest value): it reads padding, so its answers would depend on "
            "which texts share a batch; use a model with an attention mask"
        )
    if model.family == "causal_lm":
        model.decodes_by_length = _compare_decoded(model, ids, segments) > rounding


def _encode(tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    rows: list[list[int]] = [list(tokenizer(text)["input_ids"]) or [0] for text in _TEXTS]
    ids = torch.zeros(2, max(map(len, rows)), dtype=torch.long)
    segments = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)], segments[number, : len(row)] = torch.tensor(row), 1
    return ids, segments


@torch.no_grad()
def _compare(model: TaskModel, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    length = int((segments[0] != 0).sum())
    columns = torch.arange(length).repeat(2, 1)

    def compute(rows: int, width: int) -> Tensor:
        own, marks = ids[:rows, :width], segments[:rows, :width]
        if model.family == "encoder":
            return model.features(own, marks)[0]
        if model.family == "seq2seq_lm":
            return model.compute_decoder_logits(own, marks, own[:, :1])[0]
        return model.compute_logits(own, marks, columns[:rows])[0]

    return compute(1, length).float(), compute(2, ids.shape[1]).float()


def _distance(alone: Tensor, beside: Tensor) -> float:
    return float((alone - beside).abs().max() / alone.abs().max().clamp(min=1e-30))


def _compare_decoded(model: TaskModel, ids: Tensor, segments: Tensor) -> float:
    """Return how far padding in front of a prompt moves the next logit; ∞ for another token."""
    heads = [TextHead([0], 1)] * 2
    length = int((segments[0] != 0).sum())
    try:
        with torch.no_grad():
            alone, beside = (
                decode_rows(model, own, marks, heads[: len(own)], lambda _: nullcontext())[0]
                for own, marks in ((ids[:1, :length], segments[:1, :length]), (ids, segments))
            )
    except Exception:  # it writes no text, which its tasks are told when they ask for one
        return 0.0
    return _distance(alone[1:], beside[1:]) if alone[0] == beside[0] else math.inf
