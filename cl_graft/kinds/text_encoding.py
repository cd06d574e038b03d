"""The encoding of rows: one LongTensor (2, L) a row, for encoders, masked and causal prompts.

Row 0 holds token ids, row 1 the segment: 0 padding (on the right), 1 first, 2 second. Special
tokens that a text spells out are tokenized as plain characters. A prompt is tokenized as whole
strings (around its mask); what is too long is cut from the texts, the longest first, by the
characters that each token covers, and never from the template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.kinds.prompts import (
    Family,
    Piece,
    Prompt,
    ending_space,
    fill_field,
    find_text,
    is_of_second,
)
from cl_graft.kinds.rows import EncodedRows, Row

if TYPE_CHECKING:
    # transformers takes seconds to import, and a tokenizer is always handed in.
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from cl_graft.kinds.text_task import TextTask


_FIRST, _SECOND = 1, 2
Ids = tuple[list[int], list[int]]
"""Token ids and segments of a row."""

TEMPLATE, _SPACE = -1, -2


@dataclass(frozen=True, eq=False)
class Encoding:
    """How rows become the inputs of a model.

    Attributes:
        tokenizer: A tokenizer of transformers.
        family: Family of the model, one of `Kind.families`.
        prompt: The task's prompt for the family; None for encoders.
        max_length: Tokens an input, special ones included.
        first: Number of the first input, where targets hold the numbers of inputs.
        task: The task; None for texts that are to be answered, whose targets mean nothing.
    """

    tokenizer: Tokenizer
    family: Any
    prompt: Prompt | None
    max_length: int
    first: int = 0
    task: TextTask | None = None


def encode(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    *,
    family: Family,
    prompt: Prompt | None = None,
    max_length: int,
) -> Tensor:
    """Encode rows for a model family, int64 of shape (rows, 2, max_length); see `encode_for`."""
    encoding = Encoding(tokenizer, family, prompt, max_length)
    return encode_for(rows, encoding, torch.zeros(len(rows))).inputs


def encode_for(rows: Sequence[Row], encoding: Encoding, targets: Tensor) -> EncodedRows:
    """Encode texts or pairs of texts with their targets, (n,) or (n, P), and count those cut.

    An encoder gets its texts as the tokenizer joins them, cut longest first; segment 2 stands
    where the tokenizer gives token type 1 (BERT, MiniLM, ELECTRA), and nowhere for families
    without types. A prompt is one sequence of segment 1 throughout, pairs included, as in LM-BFF.
    It stands between the tokenizer's own begin and end tokens; a causal prompt gets no end token,
    as the label's string follows. Where the tokenizer has no padding token, padding is id 0.
    """
    tokenizer, max_length = encoding.tokenizer, encoding.max_length
    require_tokenizer(tokenizer)
    if encoding.family == "encoder":
        encoded, cut = _encode_texts(rows, tokenizer, max_length)
    else:
        encoded, shortened = encode_prompts(rows, encoding)
        cut = len(shortened)
    inputs = pad_inputs(encoded, tokenizer, max_length)
    return EncodedRows(inputs, targets, torch.arange(len(rows)), cut)


def pad_inputs(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], tokenizer: Tokenizer, max_length: int
) -> Tensor:
    """Stack token ids and segments of rows to inputs of shape (rows, 2, max_length), int64."""
    padding: Any = tokenizer.pad_token_id or 0
    lengths = torch.tensor([len(ids) for ids, _ in rows], dtype=torch.int64)
    within = torch.arange(max_length) < lengths[:, None]
    out = torch.zeros(len(rows), 2, max_length, dtype=torch.int64)
    out[:, 0] = padding
    for channel, values in enumerate(zip(*rows, strict=True)):
        out[:, channel][within] = torch.tensor(list(chain.from_iterable(values)))
    return out


def _encode_texts(
    rows: Sequence[Row], tokenizer: Tokenizer, max_length: int
) -> tuple[list[Ids], int]:
    if not rows:
        return [], 0
    pair = rows[0].text_pair is not None
    batch: Any = tokenizer(
        [row.text for row in rows],
        [row.text_pair or "" for row in rows] if pair else None,
        truncation="longest_first",
        max_length=max_length,
        split_special_tokens=True,
    )
    ids = batch["input_ids"]
    if max(map(len, ids)) > max_length:  # nothing was cut, as that would not have helped
        raise InputError(f"max_length {max_length} leaves no room beside a row's special tokens")
    types = batch.get("token_type_ids") or [[0] * len(row) for row in ids]
    encoded = [
        (row_ids, [_SECOND if kind else _FIRST for kind in row_types])
        for row_ids, row_types in zip(ids, types, strict=True)
    ]
    # A slow tokenizer does not say what it cut off; of its rows those that are full are counted.
    known = batch.encodings
    full = (
        [bool(e.overflowing) for e in known] if known else [len(row) == max_length for row in ids]
    )
    return encoded, sum(full)


@dataclass(frozen=True, slots=True)
class CutRule:
    """What is cut of a long prompt: tokens off texts, the longest first, at their end or start.

    `whole` are the numbers of the texts that are never cut.
    """

    whole: frozenset[int] = frozenset()
    from_start: bool = False


def require_tokenizer(tokenizer: object) -> None:
    """Make sure that something is a tokenizer, and not its name or the whole of `load_model`."""
    if not callable(tokenizer) or not hasattr(tokenizer, "pad_token_id"):
        raise InputError(
            "the tokenizer must be one of transformers, such as load_model(name).tokenizer; got "
            f"{tokenizer!r:.80}"
        )


def require_fast(tokenizer: Tokenizer, needs: str) -> None:
    """Make sure that a tokenizer knows the characters of each token."""
    if not tokenizer.is_fast:
        raise InputError(
            f"{needs} a fast tokenizer, which knows the characters of each token; "
            f"{type(tokenizer).__name__} is none"
        )


def label_token_ids(
    tokenizer: Tokenizer, prompt: Prompt, label_names: Sequence[str], *, family: Family
) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of each label's word, in the order of `label_names`.

    A word is tokenized as it stands after a space: after the template's end for a causal prompt,
    and always for a masked one (LM-BFF looks up " great" even where the mask comes first). Where
    the tokens of a label begin those of another one, the token that ends a text follows: without it
    "calendar" is at least as likely as "calendar update" after every prompt.
    """
    checked = check_prompt(prompt, family)
    lead = "a"
    if family == "causal_lm":
        lead = checked.pieces[-1].literal.rstrip() or "a"
    elif family == "seq2seq_lm":
        lead = ""
    answers: dict[tuple[int, ...], str] = {}
    for name, word in zip(label_names, checked.words_for(label_names), strict=True):
        ids = tokenize_after(tokenizer, lead, word.strip())
        if family == "masked_lm" and (len(ids) != 1 or ids[0] == tokenizer.unk_token_id):
            pieces = tokenizer.convert_ids_to_tokens(list(ids))
            raise InputError(
                f"the word {word!r} of label {name!r} must be one token of this tokenizer, "
                f"but it becomes {pieces}; choose another word"
            )
        if ids in answers:
            raise InputError(
                f"the words of labels {answers[ids]!r} and {name!r} become the same tokens "
                f"{tokenizer.convert_ids_to_tokens(list(ids))}; choose other words"
            )
        answers[ids] = name
    return tuple(_end_prefixes(tokenizer, answers))


def _end_prefixes(
    tokenizer: Tokenizer, answers: Mapping[tuple[int, ...], str]
) -> Iterator[tuple[int, ...]]:
    """Put the token that ends a text behind the label tokens with which those of others begin."""
    longer = {ids[:count]: name for ids, name in answers.items() for count in range(1, len(ids))}
    end = tokenizer.eos_token_id
    for ids, name in answers.items():
        if ids not in longer:
            yield ids
        elif not isinstance(end, int):
            raise InputError(
                f"the word of label {longer[ids]!r} begins with that of {name!r}, and "
                f"{type(tokenizer).__name__} has no token that ends a text (eos_token) to tell "
                "them apart; choose other words"
            )
        else:
            yield (*ids, end)


def encode_prompts(
    rows: Sequence[Row], encoding: Encoding, *, cut: CutRule | None = None, keeps_end: bool = False
) -> tuple[list[Ids], set[int]]:
    """Fill a template with rows; returns the numbers of those that were cut, too."""
    tokenizer, family, max_length = encoding.tokenizer, encoding.family, encoding.max_length
    prompt = check_prompt(encoding.prompt, family)
    if not rows:
        return [], set()
    require_fast(tokenizer, "prompts need")
    begin, end = find_frame(tokenizer)
    middle: list[Any] = []
    if family == "causal_lm":
        end = []
    elif family == "seq2seq_lm":
        pass
    elif tokenizer.mask_token_id is None:
        raise InputError(f"{type(tokenizer).__name__} has no mask token, so it cannot be prompted")
    else:
        middle = [tokenizer.mask_token_id]
    halves = [fill_template(half, rows, keeps_end) for half in split_template(prompt, family)]
    forbidden = find_forbidden_ids(tokenizer)
    tokens = [tokenize_filled(tokenizer, half, forbidden) for half in halves]
    room = max_length - len(begin) - len(middle) - len(end)
    encoded: list[Ids] = []
    shortened = set[int]()
    for number, parts in enumerate(zip(*tokens, strict=True)):
        if sum(len(part.ids) for part in parts) > room:
            shortened.add(number)
        fitted = fit_tokens(parts, room, cut or CutRule())
        if fitted is None:
            raise InputError(
                f"the prompt {prompt.template!r:.100} leaves no room for the text in {max_length} "
                f"tokens ({name_row(rows[number], number)})"
            )
        ids = [*begin, *fitted[0], *middle, *(i for part in fitted[1:] for i in part), *end]
        encoded.append((ids, [_FIRST] * len(ids)))
    return encoded, shortened


def name_row(row: Row, number: int) -> str:
    """Return file and line of a row where it keeps them, or its number in [0, rows), plus 1."""
    return getattr(row, "origin", "") or f"row {number + 1}"


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled part of a template, and the owner of each run of characters with its length.

    Owners are TEMPLATE, _SPACE (a blank of the template) or the number of the text (0 or 1).
    """

    text: str
    owners: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids, and the owner of each."""

    ids: list[int]
    owners: list[int]


def check_prompt(prompt: Prompt | None, family: Family) -> Prompt:
    """Return a prompt that fits a family."""
    if family == "encoder":
        raise InputError("an encoder takes no prompt; its labels are answered by a head")
    if prompt is None:
        raise InputError(f"family {family!r} needs a prompt, and this task has none for it")
    if prompt.masked != (family == "masked_lm"):
        raise InputError(
            f"the prompt {prompt.template!r} {'holds' if prompt.masked else 'lacks'} {{mask}}, "
            f"which does not fit family {family!r}"
        )
    return prompt


def split_template(prompt: Prompt, family: Family) -> list[tuple[Piece, ...]]:
    """Cut a template at its mask, and drop the blanks before the mask or the template's end.

    The token that follows brings its own space: the mask of RoBERTa-type tokenizers takes it in,
    and a label's word is a token with a leading space.
    """
    pieces = list(prompt.pieces)
    if family != "masked_lm":
        return [_strip_end(pieces)]
    at = next(index for index, piece in enumerate(pieces) if piece.field == "mask")
    before = _strip_end([*pieces[:at], Piece(pieces[at].literal, "")])
    return [before, tuple(pieces[at + 1 :])]


def _strip_end(pieces: list[Piece]) -> tuple[Piece, ...]:
    if pieces and not pieces[-1].field:
        pieces = [*pieces[:-1], Piece(pieces[-1].literal.rstrip(" "), "")]
    return tuple(pieces)


def fill_template(pieces: Sequence[Piece], rows: Sequence[Row], keeps_end: bool) -> list[Filled]:
    """Fill a part of a template with rows."""
    filled = []
    for row in rows:
        parts: list[str] = []
        owners: list[tuple[int, int]] = []
        for piece in pieces:
            parts.append(piece.literal)
            owners += [(_SPACE if char.isspace() else TEMPLATE, 1) for char in piece.literal]
            if piece.field:
                value = fill_field(piece.field, row.text, row.text_pair)
                if keeps_end and piece is pieces[-1]:
                    value += ending_space(find_text(piece.field, row.text, row.text_pair))
                parts.append(value)
                owners.append((int(is_of_second(piece.field)), len(value)))
        text = "".join(parts)
        filled.append(Filled(text.rstrip(" ") if keeps_end else text, tuple(owners)))
    return filled


def tokenize_filled(
    tokenizer: Tokenizer,
    filled: Sequence[Filled],
    forbidden: frozenset[int],
    *,
    specials: bool = False,
) -> list[Tokens]:
    """Tokenize filled templates."""
    batch: Any = tokenizer(
        [part.text for part in filled],
        add_special_tokens=False,
        split_special_tokens=not specials,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    tokens = []
    for part, ids, offsets in zip(filled, batch["input_ids"], batch["offset_mapping"], strict=True):
        by_character = [owner for owner, length in part.owners for _ in range(length)]
        # Byte-level tokenizers trim blanks off offsets, so a token of blanks covers nothing: it
        # belongs to what it stands in.
        owners = [
            _find_owner(by_character[start:stop] or by_character[max(start - 1, 0) : start + 1])
            for start, stop in offsets
        ]
        allowed = [index for index, token in enumerate(ids) if token not in forbidden]
        tokens.append(Tokens([ids[i] for i in allowed], [owners[i] for i in allowed]))
    return tokens


def _find_owner(characters: Sequence[int]) -> int:
    """Say to what a token belongs: the template if it holds a mark of it, else the text."""
    if TEMPLATE in characters:
        return TEMPLATE
    return next((owner for owner in characters if owner >= 0), TEMPLATE)


def fit_tokens(parts: Sequence[Tokens], room: int, rule: CutRule) -> list[list[int]] | None:
    """Cut tokens off texts until `room` holds the rest; None where no text would be left."""
    excess = sum(len(part.ids) for part in parts) - room
    if excess <= 0:
        return [part.ids for part in parts]
    lengths = [sum(part.owners.count(text) for part in parts) for text in (0, 1)]
    before = [0 if text in rule.whole else lengths[text] for text in (0, 1)]
    if sum(before) <= excess:
        return None
    after = list(before)
    for _ in range(excess):
        after[0 if after[0] >= after[1] else 1] -= 1
    gone = [length - rest for length, rest in zip(before, after, strict=True)]
    cut: list[list[int]] = []
    seen = [0, 0]
    for part in parts:
        ids = []
        for token, owner in zip(part.ids, part.owners, strict=True):
            if owner >= 0:
                seen[owner] += 1
                first, last = gone[owner], lengths[owner] - gone[owner]
                if seen[owner] <= first if rule.from_start else seen[owner] > last:
                    continue
            ids.append(token)
        cut.append(ids)
    return cut


def find_frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer itself puts before and after a sequence."""
    probe: Any = tokenizer("a", return_special_tokens_mask=True)
    ids, special = list(probe["input_ids"]), list(probe["special_tokens_mask"])
    first = special.index(0)
    last = len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]


def find_special_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the special tokens by id: those with a name, and those added without (Phi-3)."""
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    added = tokenizer.added_tokens_decoder.items()
    return {**dict(named), **{number: str(token) for number, token in added if token.special}}


def find_forbidden_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the special ids that no text may bring in; the unknown token is none of them."""
    ids = set(find_special_tokens(tokenizer))
    names = ("bos", "eos", "cls", "sep", "mask", "pad")
    if tokenizer.unk_token_id not in [getattr(tokenizer, f"{name}_token_id") for name in names]:
        ids.discard(tokenizer.unk_token_id)
    return frozenset(ids)


def tokenize_after(tokenizer: Tokenizer, lead: str, word: str) -> tuple[int, ...]:
    """Tokenize `word` as it stands after `lead` and a space; alone where there is no lead."""

    def ids(text: str) -> list[int]:
        encoded: Any = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return list(encoded["input_ids"])

    if not lead:
        return tuple(ids(word))

    before, both = ids(lead), ids(f"{lead} {word}")
    if both[: len(before)] == before:
        return tuple(both[len(before) :])
    return tuple(ids(f" {word}"))
