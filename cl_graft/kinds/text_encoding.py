"""The encoding of rows: one LongTensor (2, L) a row, for encoders, masked and causal prompts.

Row 0 holds token ids, row 1 the segment: 0 padding, 1 first, 2 second. Padding is on the right.

A prompt is tokenized as whole strings (around its mask), so that the ids are those of the tokenizer
on the filled template; what is too long is then cut from the ends of the texts, the longest first,
by the characters that each token covers. Nothing of the template is ever cut. Special tokens that a
text spells out (`[SEP]`, `<mask>`) are tokenized as the plain characters they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.kinds.prompts import Piece, Prompt, fill_field
from cl_graft.kinds.rows import Row

if TYPE_CHECKING:
    # transformers takes seconds to import, and a tokenizer is always handed in.
    from transformers import PreTrainedTokenizerBase as Tokenizer

__all__ = [
    "Encoded",
    "Family",
    "encode",
    "encode_rows",
    "label_token_ids",
    "pad_inputs",
    "require_fast",
    "split_template",
]

Family = Literal["encoder", "masked_lm", "causal_lm"]

_FIRST, _SECOND = 1, 2
_TEMPLATE, _SPACE = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Encoded rows.

    Attributes:
        inputs: int64 of shape (rows, 2, max_length).
        cut: Number of rows that were longer than that, and were cut.
    """

    inputs: Tensor
    cut: int


def encode(
    rows: Sequence[Row],
    tokenizer: "Tokenizer",
    *,
    family: Family,
    prompt: Prompt | None = None,
    max_length: int,
) -> Tensor:
    """Encode rows for a model family; arguments and errors as for `encode_rows`.

    Returns:
        int64 of shape (len(rows), 2, max_length).
    """
    return encode_rows(rows, tokenizer, family=family, prompt=prompt, max_length=max_length).inputs


def encode_rows(
    rows: Sequence[Row],
    tokenizer: "Tokenizer",
    *,
    family: Family,
    prompt: Prompt | None = None,
    max_length: int,
) -> Encoded:
    """Encode rows for a model family, and count those that had to be cut.

    An encoder gets its texts as the tokenizer joins them, cut longest first; segment 2 stands
    where the tokenizer gives token type 1 (BERT, MiniLM, ELECTRA), and nowhere for families
    without types. A prompt is one sequence of segment 1 throughout, pairs included, as in LM-BFF.
    It stands between the tokenizer's own begin and end tokens; a causal prompt gets no end token,
    as the label's string follows. Where the tokenizer has no padding token, padding is id 0.

    Args:
        rows: The rows.
        tokenizer: A fast tokenizer of transformers.
        family: "encoder" takes no prompt, the other two need one.
        prompt: The template; for "masked_lm" with a mask, for "causal_lm" without.
        max_length: Tokens a row, special ones included.

    Raises:
        InputError: If the prompt does not fit the family or the rows, or fills `max_length` alone.
    """
    if family == "encoder":
        encoded, cut = _encode_texts(rows, tokenizer, max_length)
    else:
        prompt = _check_prompt(prompt, family)
        encoded, cut = _encode_prompts(rows, tokenizer, family, prompt, max_length)
    return Encoded(pad_inputs(encoded, tokenizer, max_length), cut)


def require_fast(tokenizer: "Tokenizer", needs: str) -> None:
    """Make sure that a tokenizer knows the characters of each token.

    Args:
        tokenizer: The tokenizer.
        needs: What needs it, with its verb.

    Raises:
        InputError: If it is a slow one.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"{needs} a fast tokenizer, which knows the characters of each token; "
            f"{type(tokenizer).__name__} is none"
        )


def pad_inputs(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], tokenizer: "Tokenizer", max_length: int
) -> Tensor:
    """Stack token ids and segments of rows to inputs of shape (rows, 2, max_length), int64."""
    padding: Any = tokenizer.pad_token_id or 0
    lengths = torch.tensor([len(ids) for ids, _ in rows], dtype=torch.int64)
    within = torch.arange(max_length) < lengths[:, None]
    out = torch.zeros(len(rows), 2, max_length, dtype=torch.int64)
    out[:, 0] = padding
    for place, values in enumerate(zip(*rows, strict=True)):
        out[:, place][within] = torch.tensor(list(chain.from_iterable(values)))
    return out


def label_token_ids(
    tokenizer: "Tokenizer", prompt: Prompt, label_names: Sequence[str], *, family: Family
) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of each label's word, in the order of `label_names`.

    A word is tokenized as it stands after a space: after the template's end for a causal prompt,
    and always for a masked one (LM-BFF looks up " great" even where the mask comes first).

    Raises:
        InputError: If a word of a masked prompt is not exactly one known token, or two labels come
            to the same tokens.
    """
    checked = _check_prompt(prompt, family)
    lead = "a"
    if family == "causal_lm":
        lead = checked.pieces[-1].literal.rstrip() or "a"
    answers: dict[tuple[int, ...], str] = {}
    for name, word in zip(label_names, checked.words_for(label_names), strict=True):
        ids = _tokenize_after(tokenizer, lead, word.strip())
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
    return tuple(answers)


_Ids = tuple[list[int], list[int]]


def _encode_texts(
    rows: Sequence[Row], tokenizer: "Tokenizer", max_length: int
) -> tuple[list[_Ids], int]:
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


def _encode_prompts(
    rows: Sequence[Row], tokenizer: "Tokenizer", family: Family, prompt: Prompt, max_length: int
) -> tuple[list[_Ids], int]:
    if not rows:
        return [], 0
    require_fast(tokenizer, "prompts need")
    begin, end = _find_frame(tokenizer)
    middle: list[Any] = []
    if family == "causal_lm":
        end = []
    elif tokenizer.mask_token_id is None:
        raise InputError(f"{type(tokenizer).__name__} has no mask token, so it cannot be prompted")
    else:
        middle = [tokenizer.mask_token_id]
    halves = [_fill(half, rows) for half in split_template(prompt, family)]
    forbidden = _find_forbidden_ids(tokenizer)
    tokens = [_tokenize(tokenizer, half, forbidden) for half in halves]
    room = max_length - len(begin) - len(middle) - len(end)
    encoded: list[_Ids] = []
    cut = 0
    for parts in zip(*tokens, strict=True):
        cut += sum(len(part.ids) for part in parts) > room
        kept = _fit(parts, room, prompt, max_length)
        ids = [*begin, *kept[0], *middle, *(i for part in kept[1:] for i in part), *end]
        encoded.append((ids, [_FIRST] * len(ids)))
    return encoded, cut


@dataclass(frozen=True, slots=True)
class _Filled:
    """A filled part of a template, and the owner of each character.

    Owners are _TEMPLATE, _SPACE (blank of the template) or the number of the text (0 or 1).
    """

    text: str
    owners: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Tokens:
    ids: list[int]
    owners: list[int]


def _check_prompt(prompt: Prompt | None, family: Family) -> Prompt:
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
    if family == "causal_lm":
        return [_strip_end(pieces)]
    at = next(index for index, piece in enumerate(pieces) if piece.field == "mask")
    before = _strip_end([*pieces[:at], Piece(pieces[at].literal, "")])
    return [before, tuple(pieces[at + 1 :])]


def _strip_end(pieces: list[Piece]) -> tuple[Piece, ...]:
    if pieces and not pieces[-1].field:
        pieces = [*pieces[:-1], Piece(pieces[-1].literal.rstrip(" "), "")]
    return tuple(pieces)


def _fill(pieces: Sequence[Piece], rows: Sequence[Row]) -> list[_Filled]:
    filled = []
    for row in rows:
        parts: list[str] = []
        owners: list[tuple[int, int]] = []
        for piece in pieces:
            parts.append(piece.literal)
            owners += [(_SPACE if char.isspace() else _TEMPLATE, 1) for char in piece.literal]
            if piece.field:
                value = fill_field(piece.field, row.text, row.text_pair)
                parts.append(value)
                owners.append((int(piece.field.startswith("text_pair")), len(value)))
        filled.append(_Filled("".join(parts), tuple(owners)))
    return filled


def _tokenize(
    tokenizer: "Tokenizer", filled: Sequence[_Filled], forbidden: frozenset[int]
) -> list[_Tokens]:
    batch: Any = tokenizer(
        [part.text for part in filled],
        add_special_tokens=False,
        split_special_tokens=True,
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
        kept = [index for index, token in enumerate(ids) if token not in forbidden]
        tokens.append(_Tokens([ids[i] for i in kept], [owners[i] for i in kept]))
    return tokens


def _find_owner(characters: Sequence[int]) -> int:
    """Say to what a token belongs: the template if it holds a mark of it, else the text."""
    if _TEMPLATE in characters:
        return _TEMPLATE
    return next((owner for owner in characters if owner >= 0), _TEMPLATE)


def _fit(parts: Sequence[_Tokens], room: int, prompt: Prompt, max_length: int) -> list[list[int]]:
    """Cut tokens off the ends of the texts, the longest first, until `room` holds the rest."""
    excess = sum(len(part.ids) for part in parts) - room
    if excess <= 0:
        return [part.ids for part in parts]
    lengths = [sum(part.owners.count(text) for part in parts) for text in (0, 1)]
    if sum(lengths) <= excess:
        raise InputError(
            f"the prompt {prompt.template!r} leaves no room for the text in {max_length} tokens"
        )
    keep = list(lengths)
    for _ in range(excess):
        keep[0 if keep[0] >= keep[1] else 1] -= 1
    kept: list[list[int]] = []
    seen = [0, 0]
    for part in parts:
        ids = []
        for token, owner in zip(part.ids, part.owners, strict=True):
            if owner >= 0:
                seen[owner] += 1
                if seen[owner] > keep[owner]:
                    continue
            ids.append(token)
        kept.append(ids)
    return kept


def _find_frame(tokenizer: "Tokenizer") -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer itself puts before and after a sequence."""
    probe: Any = tokenizer("a", return_special_tokens_mask=True)
    ids, special = list(probe["input_ids"]), list(probe["special_tokens_mask"])
    first = special.index(0)
    last = len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]


def _find_forbidden_ids(tokenizer: "Tokenizer") -> frozenset[int]:
    """Return the special ids that no text may bring in, even through the vocabulary.

    The unknown token is the one special token that a text rightly becomes.
    """
    ids = set(tokenizer.all_special_ids)
    others = [
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
        tokenizer.pad_token_id,
    ]
    if tokenizer.unk_token_id not in others:
        ids.discard(tokenizer.unk_token_id)
    return frozenset(ids)


def _tokenize_after(tokenizer: "Tokenizer", lead: str, word: str) -> tuple[int, ...]:
    """Tokenize `word` as it stands after `lead` and a space."""

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    before, both = ids(lead), ids(f"{lead} {word}")
    if both[: len(before)] == before:
        return tuple(both[len(before) :])
    return tuple(ids(f" {word}"))
