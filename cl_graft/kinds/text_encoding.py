"""The encoding of rows: one LongTensor (2, L) a row, for encoders, masked and causal prompts.

Row 0 holds token ids, row 1 the segment: 0 padding, 1 first, 2 second. Padding is on the right.

Special tokens that a text spells out (`[SEP]`, `<mask>`) are tokenized as the plain characters they
are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.kinds.prompt_encoding import (
    Ids,
    check_prompt,
    encode_prompts,
    require_tokenizer,
)
from cl_graft.kinds.prompts import Family, Prompt
from cl_graft.kinds.rows import Row

if TYPE_CHECKING:
    # transformers takes seconds to import, and a tokenizer is always handed in.
    from transformers import PreTrainedTokenizerBase as Tokenizer


_FIRST, _SECOND = 1, 2


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
    """
    require_tokenizer(tokenizer)
    if family == "encoder":
        encoded, cut = _encode_texts(rows, tokenizer, max_length)
    else:
        checked = check_prompt(prompt, family)
        encoded, shortened = encode_prompts(rows, tokenizer, family, checked, max_length)
        cut = len(shortened)
    return Encoded(pad_inputs(encoded, tokenizer, max_length), cut)


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


def _encode_texts(
    rows: Sequence[Row], tokenizer: "Tokenizer", max_length: int
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
