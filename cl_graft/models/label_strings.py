"""Scores of label strings: the log-probability that a model gives each of them after a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_graft.models.heads import LabelStrings
from cl_graft.models.text_generation import shift_right

if TYPE_CHECKING:
    from cl_graft.models.task_model import Carry, TaskModel


def score_labels(model: TaskModel, ids: Tensor, segments: Tensor, strings: LabelStrings) -> Tensor:
    """Return the log-probability of each label's string after each prompt, (n, K).

    Where every string is one token, the prompt's last position answers for all labels at once.
    """
    ends = _find_ends(segments)
    if strings.token_ids.shape[1] == 1:
        return _score_one_token(_next_logits(model, ids, segments, ends), strings)
    if model.family == "seq2seq_lm":
        written = shift_right(model, strings.token_ids).repeat(len(ids), 1)
        return _score_strings(model.compute_decoder_logits(ids, segments, written), strings)
    whole, marks, where = _append_labels(ids, segments, strings.token_ids, strings.within)
    return _score_strings(model.compute_logits(whole, marks, where - 1), strings)


def score_labels_by_row(
    model: TaskModel,
    ids: Tensor,
    segments: Tensor,
    heads: Sequence[LabelStrings],
    carry: Carry,
) -> list[Tensor]:
    """Return what `score_labels` does of rows with different labels."""
    ends = _find_ends(segments)
    each = range(len(ids))
    groups = {id(head): (head, [n for n in each if heads[n] is head]) for head in heads}
    longest = max(strings.token_ids.shape[1] for strings, _ in groups.values())
    answers: dict[int, Tensor] = {}
    if longest == 1:
        with carry(list(each)):
            logits = _next_logits(model, ids, segments, ends)
        for strings, rows in groups.values():
            answers |= zip(rows, _score_one_token(logits[rows], strings), strict=True)
        return [answers[n] for n in each]
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    sources: list[int] = []
    for strings, rows in groups.values():
        more = (0, longest - strings.token_ids.shape[1])
        tokens, within = F.pad(strings.token_ids, more), F.pad(strings.within, more)
        parts.append(_append_labels(ids[rows], segments[rows], tokens, within))
        sources += [row for row in rows for _ in range(len(tokens))]
    whole, marks, where = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    with carry(sources):
        if model.family == "seq2seq_lm":
            written = shift_right(model, whole.gather(1, where))
            prompts = ids[sources], segments[sources]
            logits = model.compute_decoder_logits(*prompts, written)
        else:
            logits = model.compute_logits(whole, marks, where - 1)
    shares = logits.split([len(part) for part, *_ in parts])
    for (strings, rows), share in zip(groups.values(), shares, strict=True):
        own = share[:, : strings.token_ids.shape[1]]
        answers |= zip(rows, _score_strings(own, strings), strict=True)
    return [answers[n] for n in each]


def _find_ends(segments: Tensor) -> Tensor:
    """Return the number of tokens of each prompt, (n,)."""
    ends = (segments != 0).sum(1)
    if bool((ends == 0).any()):
        raise ValueError("a prompt without tokens: no position to read labels at")
    return ends


def _next_logits(model: TaskModel, ids: Tensor, segments: Tensor, ends: Tensor) -> Tensor:
    """Return the logits of the token after each prompt, (n, 1, V)."""
    if model.family == "seq2seq_lm":
        return model.compute_decoder_logits(ids, segments, shift_right(model, ids[:, :1]))
    return model.compute_logits(ids, segments, ends[:, None] - 1)


def _score_one_token(logits: Tensor, strings: LabelStrings) -> Tensor:
    """Return each one-token label's log-probability, (n, K), from a prompt's logits, (n, 1, V)."""
    spoken = logits.float().log_softmax(-1)[:, 0, strings.token_ids[:, 0]]
    return strings(spoken[..., None])


def _append_labels(
    ids: Tensor, segments: Tensor, tokens: Tensor, within: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Write each label's tokens, (K, m), behind each prompt."""
    n = len(ids)
    labels, longest = tokens.shape
    places = (segments != 0).sum(1)[:, None] + torch.arange(longest, device=ids.device)
    where = places[:, None].expand(n, labels, longest)

    def append(prompts: Tensor, tail: Tensor) -> Tensor:
        wide = F.pad(prompts, (0, longest))[:, None].repeat(1, labels, 1)
        return wide.scatter(2, where, tail.expand(n, labels, longest)).flatten(0, 1)

    return append(ids, tokens), append(segments, within.long()), where.flatten(0, 1)


def _score_strings(logits: Tensor, strings: LabelStrings) -> Tensor:
    """Return each label's log-probability, (n, K), from logits at its tokens, (n · K, m, V)."""
    labels, longest = strings.token_ids.shape
    spoken = logits.float().log_softmax(-1).view(-1, labels, longest, logits.shape[-1])
    targets = strings.token_ids.expand(len(spoken), labels, longest)[..., None]
    return strings(spoken.gather(-1, targets)[..., 0])
