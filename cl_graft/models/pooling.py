"""Pooling: one feature vector a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import Tensor

__all__ = ["POOLINGS", "first_token", "mean_of_tokens"]


def mean_of_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average the states of the non-padding tokens, in fp32 (Reimers and Gurevych, 2019).

    https://arxiv.org/abs/1908.10084. All-MiniLM-L6-v2 was trained with this pooling.

    Args:
        hidden: States of shape (n, L, D).
        mask: Bool of shape (n, L), True where a token is no padding.

    Returns:
        Features of shape (n, D), fp32; zeros for a row of padding alone.
    """
    total = hidden.float().masked_fill(~mask[..., None], 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)


def first_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """Take the state of the first token ([CLS], <s>) of (n, L, D), as fp32 of shape (n, D)."""
    return hidden[:, 0].float()


POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {"mean": mean_of_tokens, "first": first_token}
)
