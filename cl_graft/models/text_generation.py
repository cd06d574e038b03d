"""Answers that are written: free text, given or decoded, and the scores of label strings.

A row that is learned holds its answer as segment 2, after a prompt of segment 1; one without an
answer is decoded. The outputs of both are token ids, then a value for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.models.heads import LabelStrings

if TYPE_CHECKING:
    from cl_graft.models.task_model import Carry, TaskModel


ANSWER = 2
"""Segment of an answer."""

NO_TOKEN = -1
"""Id behind the end of an answer."""

MOST_TOKENS = 8192
"""Tokens of the longest answer that may be asked for."""

MOST_BEAMS = 64


class TextHead(nn.Module):
    """How far and in which way an answer is decoded; nothing to train.

    Attributes:
        stops: Buffer of shape (s,): ids of tokens that end an answer, s >= 1.
        limits: Buffer of shape (2,): tokens of the longest answer, and beams; 1 beam is greedy.
    """

    has_classes = False
    stops: Tensor
    limits: Tensor

    def __init__(self, stops: Sequence[int], longest: int, beams: int = 1) -> None:
        if not stops or not 1 <= longest <= MOST_TOKENS or not 1 <= beams <= MOST_BEAMS:
            raise ValueError(
                f"expected a token that ends answers, 1 to {MOST_TOKENS:,} tokens and 1 to "
                f"{MOST_BEAMS} beams; got {list(stops)}, {longest} and {beams}"
            )
        super().__init__()
        self.register_buffer("stops", torch.tensor(list(stops), dtype=torch.long))
        self.register_buffer("limits", torch.tensor([longest, beams], dtype=torch.long))

    @staticmethod
    def of(state: Mapping[str, Tensor]) -> TextHead:
        """Return the head whose tensors an entry keeps."""
        longest, beams = state["limits"].tolist()
        return TextHead([int(token) for token in state["stops"].tolist()], longest, beams)

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""
        return int(self.limits[0])

    @property
    def beams(self) -> int:
        """Number of beams."""
        return int(self.limits[1])


def is_text_head(state: Mapping[str, Tensor]) -> bool:
    """Say whether tensors by name are those of a `TextHead`."""
    return {"stops", "limits"} <= state.keys()


def answer_logits(model: TaskModel, ids: Tensor, segments: Tensor) -> Tensor:
    """Return the logits of the tokens of answers, (n, P, V), P tokens being the longest answer."""
    columns, behind = _find_answers(segments)
    if model.family == "causal_lm":
        return model.compute_logits(ids, segments, columns - 1)
    answers = ids.gather(1, columns).masked_fill(behind, _padding_id(model))
    return model.compute_decoder_logits(*_cut_prompts(ids, segments), shift_right(model, answers))


def score_answers(model: TaskModel, ids: Tensor, segments: Tensor, *, width: int) -> Tensor:
    """Return the likeliest tokens in given answers, and the log-probabilities of those given.

    The shape is (n, 2 · width), with -1 and 0 behind an answer. All batches of a stream have one
    width, so that their outputs can be joined.
    """
    columns, behind = _find_answers(segments)
    given = ids.gather(1, columns).masked_fill(behind, NO_TOKEN)
    logits = answer_logits(model, ids, segments).float()
    losses = F.cross_entropy(
        logits.flatten(0, 1), given.flatten(), ignore_index=NO_TOKEN, reduction="none"
    ).view_as(given)
    likeliest = logits.argmax(-1).masked_fill(behind, NO_TOKEN).float()
    more = (0, width - given.shape[1])
    return torch.cat([F.pad(likeliest, more, value=NO_TOKEN), F.pad(-losses, more)], dim=1)


def _find_answers(segments: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns of the answers' tokens, (n, P), and which of them are behind the end."""
    lengths, prompts = (segments == ANSWER).sum(1), (segments == 1).sum(1)
    if not bool((lengths > 0).all()) or not bool((prompts > 0).all()):
        raise ValueError("a batch to learn from needs a prompt and an answer in each row")
    steps = torch.arange(int(lengths.max()), device=segments.device)
    columns = (prompts[:, None] + steps).clamp(max=segments.shape[1] - 1)
    return columns, steps >= lengths[:, None]


def _cut_prompts(ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    within = segments == 1
    length = int(within.sum(1).max())
    return ids[:, :length].masked_fill(~within[:, :length], 0), within[:, :length].long()


def shift_right(model: TaskModel, answers: Tensor) -> Tensor:
    """Return what a decoder reads to write answers, (n, P): its start token, then the answer."""
    start = _start_id(model)
    return F.pad(answers[:, :-1], (1, 0), value=0 if start is None else start)


def decode_rows(
    model: TaskModel, ids: Tensor, segments: Tensor, heads: Sequence[TextHead], carry: Carry
) -> Tensor:
    """Decode the answer of each row, by greedy or beam search of transformers' `generate`.

    Returns fp32 of shape (n, 2 · the longest answer of any head): token ids, -1 from an answer's
    end on; then for each its logit, with several beams the score of the whole answer, 0 behind it.
    """
    longest = max(head.longest for head in heads)
    decoded = torch.zeros(len(ids), 2 * longest, device=ids.device)
    decoded[:, :longest] = NO_TOKEN
    lengths = (segments == 1).sum(1).tolist() if model.decodes_by_length else [0] * len(ids)
    ways = [
        (head.beams, tuple(head.stops.tolist()) if head.beams > 1 else (), length)
        for head, length in zip(heads, lengths, strict=True)
    ]
    for way in sorted(set(ways)):
        rows = [row for row, own_way in enumerate(ways) if own_way == way]
        group, beams = [heads[row] for row in rows], way[0]
        with carry([row for row in rows for _ in range(beams)]):
            tokens, values = _generate(model, ids[rows], segments[rows], group)
        width = tokens.shape[1]
        decoded[rows, :width] = tokens.float()
        decoded[rows, longest : longest + width] = values
    return decoded


def split_generated(outputs: Tensor) -> list[list[int]]:
    """Return the token ids of each answer from what `decode_rows` returned."""
    tokens = outputs[:, : outputs.shape[1] // 2].long().tolist()
    return [[token for token in row if token != NO_TOKEN] for row in tokens]


def compare_generated(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows' tokens differ, (n,), and the values of both, (2, n, G).

    Both are what `decode_rows` returned, of shape (n, 2G); token ids are names without a distance.
    """
    tokens, values = torch.stack([first, second]).chunk(2, dim=-1)
    return (tokens[0] != tokens[1]).any(1), values


def _generate(
    model: TaskModel, ids: Tensor, segments: Tensor, heads: Sequence[TextHead]
) -> tuple[Tensor, Tensor]:
    """Return token ids, (n, w), and their values, (n, w), of rows with the same number of beams."""
    from transformers import GenerationConfig  # slow to import, and loaded with any backbone

    backbone = cast(Any, model.backbone)
    prompts, marks = _cut_prompts(ids, segments)
    decoder_only = model.family == "causal_lm"
    if decoder_only:  # padding goes in front
        length = prompts.shape[1]
        back = (marks.sum(1, keepdim=True) + torch.arange(length, device=ids.device)) % length
        prompts, marks = prompts.gather(1, back), marks.gather(1, back)
    beams, longest = heads[0].beams, max(head.longest for head in heads)
    scores = _ChosenLogits()
    ends = _RowEnds(heads, start=prompts.shape[1] if decoder_only else 1)
    settings = GenerationConfig(
        max_new_tokens=longest,
        num_beams=beams,
        do_sample=False,
        use_cache=True,
        pad_token_id=_padding_id(model),
        eos_token_id=heads[0].stops.tolist() if beams > 1 else None,
        decoder_start_token_id=None if decoder_only else _start_id(model),
        return_dict_in_generate=True,
        output_scores=beams > 1,
    )
    # What the checkpoint says of decoding (sampling, penalties, forced tokens) would fill in.
    own_settings, backbone.generation_config = backbone.generation_config, settings
    try:
        with model.enter_precision(ids):
            made = backbone.generate(
                input_ids=prompts,
                attention_mask=marks,
                generation_config=settings,
                logits_processor=[scores] if beams == 1 else [],
                stopping_criteria=[ends] if beams == 1 else [],
            )
    finally:
        backbone.generation_config = own_settings
    tokens = made.sequences[:, prompts.shape[1] if decoder_only else 1 :]
    if beams == 1:
        values = torch.stack(scores.values, dim=1)[:, : tokens.shape[1]]
    else:
        values = made.sequences_scores[:, None].float().expand(tokens.shape)
    gone = ends.find_end(tokens)
    return tokens.masked_fill(gone, NO_TOKEN), values.masked_fill(gone, 0.0)


class _ChosenLogits:
    """Keeps the logit of the token that greedy search takes at each step."""

    def __init__(self) -> None:
        self.values: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.values.append(scores.float().amax(-1))
        return scores


class _RowEnds:
    """Ends each row at a token, or a length, of its own head."""

    def __init__(self, heads: Sequence[TextHead], *, start: int) -> None:
        self._stops = [head.stops for head in heads]
        self._longest = torch.tensor([head.longest for head in heads])
        self._start = start
        self._done = torch.zeros(len(heads), dtype=torch.bool)

    def __call__(self, input_ids: Tensor, scores: object, **settings: object) -> Tensor:
        written = input_ids.shape[1] - self._start
        self._done |= self._is_stop(input_ids[:, -1:])[:, 0].cpu() | (self._longest <= written)
        return self._done.to(input_ids.device)

    def find_end(self, tokens: Tensor) -> Tensor:
        """Return which tokens, (n, w), are the end of an answer or behind it."""
        steps = torch.arange(tokens.shape[1])
        long = steps >= self._longest[:, None]
        return (self._is_stop(tokens).cumsum(1) > 0) | long.to(tokens.device)

    def _is_stop(self, tokens: Tensor) -> Tensor:
        return torch.stack(
            [torch.isin(row, stops) for row, stops in zip(tokens, self._stops, strict=True)]
        )


def _padding_id(model: TaskModel) -> int:
    token = getattr(model.text_config, "pad_token_id", None)
    return token if isinstance(token, int) and token >= 0 else 0


def _start_id(model: TaskModel) -> int | None:
    return getattr(cast(Any, model.backbone.config), "decoder_start_token_id", None)


def score_labels(model: TaskModel, ids: Tensor, segments: Tensor, strings: LabelStrings) -> Tensor:
    """Return the log-probability of each label's string after each prompt, (n, K)."""
    ends = _find_ends(segments)
    if strings.token_ids.shape[1] == 1:
        return _score_one_token(_next_logits(model, ids, segments, ends), strings)
    if model.family == "seq2seq_lm":
        written = shift_right(model, strings.token_ids).repeat(len(ids), 1)
        return _score_strings(model.compute_decoder_logits(ids, segments, written), strings)
    whole, marks, where = _append_labels(ids, segments, strings.token_ids, strings.within)
    return _score_strings(model.compute_logits(whole, marks, where - 1), strings)


def score_labels_by_row(
    model: TaskModel, ids: Tensor, segments: Tensor, heads: Sequence[LabelStrings], carry: Carry
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
        logits_of_labels = share[:, : strings.token_ids.shape[1]]
        answers |= zip(rows, _score_strings(logits_of_labels, strings), strict=True)
    return [answers[n] for n in each]


def _find_ends(segments: Tensor) -> Tensor:
    ends = (segments != 0).sum(1)
    if bool((ends == 0).any()):
        raise ValueError("a prompt without tokens: no position to read labels at")
    return ends


def _next_logits(model: TaskModel, ids: Tensor, segments: Tensor, ends: Tensor) -> Tensor:
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
