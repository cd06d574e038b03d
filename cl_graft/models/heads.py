"""Pooling and heads: from a model's last states to features, and from these to a logit a class.

An encoder has a trained head for every task: a linear one on pooled features unless it was
imported, or one on the states of all tokens, for tags and for spans. Prompted language models have
none to train: their heads only know which tokens stand for the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.errors import InputError, find
from cl_graft.runtime.seeding import derive, generator

if TYPE_CHECKING:
    from cl_graft.models.task_model import TaskModel


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}
)
"""Activations between the layers of a `PooledHead`, by name."""

ABSENT = -1e4
"""Logit of what has no answer: its probability is exactly 0 in fp32."""

_SECOND = 2
"""Segment of a passage."""


def mean_of_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average the states of the non-padding tokens, in fp32, as all-MiniLM-L6-v2 was trained."""
    total = hidden.float().masked_fill(~mask[..., None], 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)


def first_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """Take the state of the first token ([CLS], <s>) of (n, L, D), as fp32 of shape (n, D)."""
    return hidden[:, 0].float()


POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {"mean": mean_of_tokens, "first": first_token}
)
"""Poolings by name."""


def linear_head(hidden: int, classes: int, *, seed: int) -> nn.Linear:
    """Make a linear head in fp32: weights from N(0, 0.02²) drawn from `seed`, biases zero.

    Args:
        hidden: Size of the features.
        classes: Number of logits; 1 for regression.
        seed: Seed of the weights; the global generator is not touched.

    Examples:
        >>> linear_head(8, 3, seed=0).weight.shape
        torch.Size([3, 8])
    """
    if hidden < 1 or classes < 1:
        raise ValueError(f"hidden and classes must be at least 1, got {hidden} and {classes}")
    empty = nn.utils.skip_init(nn.Linear, hidden, classes, dtype=torch.float32)
    head = cast(nn.Linear, empty)
    nn.init.normal_(head.weight, 0.0, 0.02, generator=generator(seed, "head"))
    nn.init.zeros_(head.bias)
    return head


HeadMaker = Callable[[Mapping[str, Tensor], int], nn.Module]
"""Function of a head's tensors by name, and the size of the states, that makes such a head."""

HEADS: dict[str, HeadMaker] = {}
"""Makers of heads of encoders, by the name of a tensor that only such heads have."""


def register_head(tensor: str) -> Callable[[HeadMaker], HeadMaker]:
    """Register how a head is made again from what an entry keeps; used as a decorator.

    The function gets tensors that may come from a file of somebody else, and returns a head with
    tensors of the shapes that such a head must have; its values are put in afterwards.
    """

    def register(make: HeadMaker) -> HeadMaker:
        if tensor in HEADS:
            raise ValueError(f"a head with the tensor {tensor!r} is registered already")
        HEADS[tensor] = make
        return make

    return register


class PooledHead(nn.Module):
    """A dense layer, an activation and a linear layer, as in classifiers of transformers."""

    def __init__(self, dense: nn.Linear, out: nn.Linear, *, activation: str) -> None:
        super().__init__()
        self.dense = dense
        self.out = out
        self.activation = activation
        self._activate = find(ACTIVATIONS, activation, missing="no activation of a head")

    def forward(self, features: Tensor) -> Tensor:
        """Answer features, (n, D), with logits, (n, K)."""
        return self.out(self._activate(self.dense(features)))


class LabelWords(nn.Module):
    """One vocabulary token for each label, a buffer of shape (K,); nothing to train."""

    token_ids: Tensor

    def __init__(self, token_ids: Sequence[int]) -> None:
        _check_labels([(token,) for token in token_ids])
        super().__init__()
        self.register_buffer("token_ids", torch.tensor(list(token_ids), dtype=torch.long))

    def forward(self, vocabulary_logits: Tensor) -> Tensor:
        """Pick the labels' columns, (n, K), from logits over the vocabulary, (n, V)."""
        return vocabulary_logits.index_select(1, self.token_ids)


class LabelStrings(nn.Module):
    """A string of one or more tokens for each label; nothing to train.

    Attributes:
        token_ids: Buffer of shape (K, m), where m is the length of the longest string; 0 after the
            end of a shorter one.
        lengths: Buffer of shape (K,): tokens in each string, in [1, m].
    """

    token_ids: Tensor
    lengths: Tensor

    def __init__(self, strings: Sequence[Sequence[int]]) -> None:
        _check_labels(strings)
        super().__init__()
        lengths = [len(string) for string in strings]
        padded = [[*string, *[0] * (max(lengths) - len(string))] for string in strings]
        self.register_buffer("token_ids", torch.tensor(padded, dtype=torch.long))
        self.register_buffer("lengths", torch.tensor(lengths, dtype=torch.long))

    @property
    def within(self) -> Tensor:
        """Mask of the strings' own tokens in `token_ids`: bool of shape (K, m)."""
        places = torch.arange(self.token_ids.shape[1], device=self.lengths.device)
        return places < self.lengths[:, None]

    def forward(self, log_probabilities: Tensor) -> Tensor:
        """Sum the log-probabilities of each string's tokens, (n, K, m), to scores, (n, K)."""
        return log_probabilities.masked_fill(~self.within, 0.0).sum(-1)


def make_head(
    model: TaskModel,
    *,
    classes: int,
    label_token_ids: Sequence[Sequence[int]] | None = None,
    seed: int,
) -> nn.Module:
    """Make the head that a task with `classes` classes needs on a model of this family.

    Args:
        model: The model; the head is not added to it.
        classes: Number of classes; 1 for regression (encoders only).
        label_token_ids: Every label's tokens, in the order of the labels; not for encoders.
        seed: Seed of the initial weights of an encoder's head.

    Raises:
        InputError: If the labels' tokens are missing, too few or too many, not in the model's
            vocabulary, or not one token each on a masked LM.
    """
    if model.family == "encoder":
        return linear_head(model.hidden_size, classes, seed=seed)
    if label_token_ids is None or len(label_token_ids) != classes:
        came = "none" if label_token_ids is None else f"those of {len(label_token_ids)}"
        raise InputError(
            f"a {model.family} needs the tokens of each of the {classes} labels, got {came}"
            + (": regression needs an encoder" if classes == 1 else "")
        )
    vocabulary = model.text_config.vocab_size
    outside = [t for tokens in label_token_ids for t in tokens if not 0 <= t < vocabulary]
    if outside:
        raise InputError(
            f"label tokens {outside} are not in the model's vocabulary of {vocabulary}: "
            "was the tokenizer of another model used?"
        )
    if model.family != "masked_lm":
        return LabelStrings(label_token_ids)
    longer = {k: len(tokens) for k, tokens in enumerate(label_token_ids) if len(tokens) != 1}
    if longer:
        raise InputError(f"a masked LM's label words are one token each, got (by label) {longer}")
    return LabelWords([tokens[0] for tokens in label_token_ids])


class TokenHead(nn.Module):
    """A head of tokens; `has_classes` says whether the last axis of its logits are classes."""

    has_classes = True

    def forward(self, states: Tensor, segments: Tensor, length: int) -> Tensor:
        """Answer the tokens of rows with logits.

        Args:
            states: Last states, (n, l, D), of the type of the head's parameters.
            segments: 0 for padding, 1 and 2 for the segments, (n, l).
            length: Tokens of a row as it was encoded, at least l; logits are as wide.
        """
        raise NotImplementedError


class TaggingHead(TokenHead):
    """A logit a tag at every token; with intents, logits of these at the first token.

    Columns of the logits, (n, length, tags + intents), are the tags, then the intents. At the first
    token all but the intents are absent, and the intents are absent elsewhere.
    """

    def __init__(self, hidden: int, tags: int, intents: int = 0, *, seed: int) -> None:
        super().__init__()
        self.tags = linear_head(hidden, tags, seed=seed)
        intent_seed = derive(seed, "intents")
        self.intents = linear_head(hidden, intents, seed=intent_seed) if intents else None

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


def _check_labels(strings: Sequence[Sequence[int]]) -> None:
    if not strings or not all(strings):
        raise ValueError(
            f"every label needs at least one token, got {[len(string) for string in strings]} "
            "tokens a label"
        )
    first: dict[tuple[int, ...], int] = {}
    for label, string in enumerate(strings):
        same = first.setdefault(tuple(string), label)
        if same != label:
            raise ValueError(f"labels {same} and {label} have the same tokens {list(string)}")
