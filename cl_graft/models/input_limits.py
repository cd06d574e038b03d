"""The limits of a model's inputs, beyond which it ends in an IndexError that names nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from cl_graft.models.task_model import TaskModel


def longest_row(model: TaskModel) -> int | None:
    """Return how many tokens a model can read; None if its config sets no limit (XLNet's is -1)."""
    positions = getattr(model.text_config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    for name, module in model.backbone.named_modules():
        if isinstance(module, nn.Embedding) and "position" in name:
            # RoBERTa's positions start after the one of padding.
            return positions - (0 if module.padding_idx is None else module.padding_idx + 1)
    return positions


def check_vocabulary(
    tokenizer: PreTrainedTokenizerBase, backbone: PreTrainedModel, *, name: str
) -> None:
    """Refuse a tokenizer that gives ids for which a model has no embedding."""
    known = _count_embeddings(backbone)
    highest = max(tokenizer.get_vocab().values(), default=0)
    if known is not None and highest >= known:
        raise InputError(
            f"{name!r}: its tokenizer gives ids up to {highest:,}, and its model has embeddings "
            f"for {known:,}: is the tokenizer that of another model, or were tokens added without "
            "resize_token_embeddings?"
        )


def check_batch(inputs: Tensor, model: TaskModel) -> None:
    """Refuse a batch that a model cannot read."""
    if inputs.dtype != torch.int64 or inputs.dim() != 3 or inputs.shape[1] != 2:
        raise ValueError(
            f"a batch is int64 of shape (rows, 2, tokens), got {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}"
        )
    if not inputs.numel():
        raise ValueError(f"a batch of shape {tuple(inputs.shape)} holds nothing")
    ids, segments = inputs.unbind(1)
    used = int((segments != 0).any(0).nonzero().max()) + 1 if bool(segments.any()) else 0
    longest, known = longest_row(model), _count_embeddings(cast("PreTrainedModel", model.backbone))
    if not used or (longest is not None and used > longest):
        raise ValueError(f"a batch of {used} tokens a row, expected 1 to {longest}")
    if known is not None and not bool(((ids >= 0) & (ids < known)).all()):
        raise ValueError(f"a batch holds token ids that are not in [0, {known})")
    if not bool(((segments >= 0) & (segments <= 2)).all()):
        raise ValueError("a batch's segments are 0, 1 and 2")
    if model.family == "masked_lm":
        masks = ((ids == model.mask_token_id) & (segments != 0)).sum(1)
        if not bool((masks == 1).all()):
            raise ValueError(f"a batch's rows hold {masks.tolist()[:10]} mask tokens, expected 1")


def _count_embeddings(backbone: PreTrainedModel) -> int | None:
    """Return how many token ids have an embedding; None where a model has no table of them."""
    try:
        table: Any = backbone.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    weight = getattr(table, "weight", None)
    return len(weight) if isinstance(weight, Tensor) else None
