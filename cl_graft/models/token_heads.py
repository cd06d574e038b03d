"""Heads that answer at tokens: tags of words, and the span of an answer.

They take an encoder's last states of all tokens, where other heads take the pooled features of a
row. Logits are as wide as a row was encoded, whatever was trimmed of its padding; those of tokens
that have no answer are ``-1e4``, so that neither loss nor prediction sees them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.models.heads import linear_head, register_head
from cl_graft.runtime.seeding import derive

ABSENT = -1e4
"""Logit of what has no answer: its probability is exactly 0 in fp32."""

_SECOND = 2
"""Segment of a passage."""


class TokenHead(nn.Module):
    """A head of tokens.

    Attributes:
        has_classes: Whether the last axis of its logits are classes, so that more can stand beside
            them.
    """

    has_classes = True

    def forward(self, states: Tensor, segments: Tensor, length: int) -> Tensor:
        """Answer the tokens of rows."""
        raise NotImplementedError


class TaggingHead(TokenHead):
    """A logit a tag at every token; with intents, logits of these at the first token.

    Columns of the logits, (n, length, tags + intents), are the tags, then the intents. At the first
    token all but the intents are absent, and the intents are absent elsewhere.
    """

    def __init__(self, hidden: int, tags: int, intents: int = 0, *, seed: int) -> None:
        super().__init__()
        self.tags = linear_head(hidden, tags, seed=seed)
        own = derive(seed, "intents")
        self.intents = linear_head(hidden, intents, seed=own) if intents else None

    def forward(self, states: Tensor, segments: Tensor, length: int) -> Tensor:
        """Return logits of shape (n, length, tags + intents)."""
        logits = self.tags(states).masked_fill((segments == 0)[..., None], ABSENT)
        logits = F.pad(logits, (0, 0, 0, length - logits.shape[1]), value=ABSENT)
        if self.intents is None:
            return logits
        tags = logits.shape[-1]
        intents = self.intents(states[:, 0])
        logits = F.pad(logits[:, 1:], (0, intents.shape[-1]), value=ABSENT)
        first = F.pad(intents, (tags, 0), value=ABSENT)
        return torch.cat([first[:, None], logits], dim=1)


class SpanHead(TokenHead):
    """A logit for the start and one for the end of an answer at every token of the passage.

    The first token stands for "not in this window".
    """

    has_classes = False

    def __init__(self, hidden: int, *, seed: int) -> None:
        super().__init__()
        self.ends = linear_head(hidden, 2, seed=seed)

    def forward(self, states: Tensor, segments: Tensor, length: int) -> Tensor:
        """Return logits of shape (n, 2, length): of the starts, then of the ends."""
        answers = segments == _SECOND
        answers[:, 0] = True
        logits = self.ends(states).masked_fill(~answers[..., None], ABSENT)
        return F.pad(logits, (0, 0, 0, length - logits.shape[1]), value=ABSENT).transpose(1, 2)


@register_head("ends.weight")
def _make_span_head(state: Mapping[str, Tensor], hidden: int) -> nn.Module:
    return SpanHead(hidden, seed=0)


@register_head("tags.weight")
def _make_tagging_head(state: Mapping[str, Tensor], hidden: int) -> nn.Module:
    intents = len(state["intents.weight"]) if "intents.weight" in state else 0
    return TaggingHead(hidden, len(state["tags.weight"]), intents, seed=0)
