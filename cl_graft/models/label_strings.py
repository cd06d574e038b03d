"""Scores of label strings: their log-probabilities after a prompt, from a causal model's logits."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_graft.models.heads import LabelStrings

__all__ = ["append_labels", "score_one_token", "score_strings"]


def score_one_token(logits: Tensor, strings: LabelStrings) -> Tensor:
    """Return each one-token label's log-probability, (n, K), from a prompt's logits, (n, 1, V)."""
    spoken = logits.float().log_softmax(-1)[:, 0, strings.token_ids[:, 0]]
    return strings(spoken[..., None])


def append_labels(
    ids: Tensor, segments: Tensor, tokens: Tensor, within: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Write each label's tokens, (K, m), behind each prompt.

    Returns:
        Token ids and segments of n · K rows, and the columns of the labels' tokens, (n · K, m).
    """
    n = len(ids)
    labels, longest = tokens.shape
    places = (segments != 0).sum(1)[:, None] + torch.arange(longest, device=ids.device)
    where = places[:, None].expand(n, labels, longest)

    def append(prompts: Tensor, tail: Tensor) -> Tensor:
        wide = F.pad(prompts, (0, longest))[:, None].repeat(1, labels, 1)
        return wide.scatter(2, where, tail.expand(n, labels, longest)).flatten(0, 1)

    return append(ids, tokens), append(segments, within.long()), where.flatten(0, 1)


def score_strings(logits: Tensor, strings: LabelStrings) -> Tensor:
    """Return each label's log-probability, (n, K), from logits at its tokens, (n · K, m, V)."""
    labels, longest = strings.token_ids.shape
    spoken = logits.float().log_softmax(-1).view(-1, labels, longest, logits.shape[-1])
    targets = strings.token_ids.expand(len(spoken), labels, longest)[..., None]
    return strings(spoken.gather(-1, targets)[..., 0])
