"""The lines of Python that fill a prompt as this package does, for the README of an export.

A text that is too long loses its end, the longest of two first; the template is never cut, and a
special token that a text spells out stays plain characters. It is the encoding of
`cl_graft.data.encoding`, for one row and without this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from cl_graft.data import Prompt
from cl_graft.data.encoding import Family, template_halves
from cl_graft.data.prompts import Piece
from cl_graft.runtime.escaping import for_python

__all__ = ["asking_code"]

_ASKING = """\
probe = tokenizer("a", return_special_tokens_mask=True)
marks = probe.special_tokens_mask  # what the tokenizer puts around a text
begin = probe.input_ids[: marks.index(0)]
end = probe.input_ids[len(marks) - marks[::-1].index(0) :]
names = ["bos", "eos", "cls", "sep", "mask", "pad"]
others = [getattr(tokenizer, f"{name}_token_id") for name in names]
special = set(tokenizer.all_special_ids)
if tokenizer.unk_token_id not in others:
    special.discard(tokenizer.unk_token_id)


def filled(field, text, pair):
    value = (pair if field.startswith("text_pair") else text).strip()
    if field.endswith("-") and value and unicodedata.category(value[-1]).startswith("P"):
        value = value[:-1]  # its last character, where that is punctuation
    return value[:1].lower() + value[1:] if field.rstrip("-").endswith("_lower") else value


def tokens(half, text, pair):  # each with its owner: 0 and 1 are the texts, -1 is the template
    whole, owners, found = "", [], []
    for literal, field in half:
        value = filled(field, text, pair) if field else ""
        whole += literal + value
        owners += [-2 if character.isspace() else -1 for character in literal]
        owners += [int(field.startswith("text_pair"))] * len(value)
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    batch = tokenizer(whole, return_offsets_mapping=True, **options)
    for token, (start, stop) in zip(batch.input_ids, batch.offset_mapping):
        covered = owners[start:stop] or owners[max(start - 1, 0) : start + 1]
        texts = [owner for owner in covered if owner >= 0]
        if token not in special:
            found.append((token, texts[0] if texts and -1 not in covered else -1))
    return found


def ask(text, pair=None):  # what is too long is cut off the ends of the texts, the longest first
    halves = [tokens(half, text, pair) for half in template]
    left = [sum(owner == number for half in halves for _, owner in half) for number in (0, 1)]
    for _ in range(len(begin) + sum(map(len, halves)) + len(middle) + len(end) - max_length):
        left[0 if left[0] >= left[1] else 1] -= 1
    ids = list(begin)
    for number, half in enumerate(halves):
        ids += middle if number else []
        for token, owner in half:
            if owner >= 0:
                left[owner] -= 1
            if owner < 0 or left[owner] >= 0:
                ids.append(token)
    return ids + end"""


def asking_code(prompt: Prompt, *, family: str, max_length: int) -> list[str]:
    """Write the lines that define `ask(text, pair)`, which returns token ids.

    They need `tokenizer`, and `unicodedata` to be imported.

    Args:
        prompt: The prompt.
        family: ``"masked_lm"`` or ``"causal_lm"``.
        max_length: Tokens a row, special ones included.
    """
    halves = ", ".join(map(_half, template_halves(prompt, cast(Family, family))))
    where = "before the mask, and behind it" if prompt.masked else "what is asked"
    code = _ASKING
    if not prompt.masked:  # the label's string follows, so nothing ends the row
        line = next(line for line in code.splitlines() if line.startswith("end = "))
        code = code.replace(line, "end = []")
    return [
        f"max_length = {for_python(max_length)}",
        f"template = [{halves}]  # {where}",
        f"middle = {'[tokenizer.mask_token_id]' if prompt.masked else '[]'}",
        *code.splitlines(),
    ]


def _half(pieces: Sequence[Piece]) -> str:
    rows = (f"({for_python(piece.literal)}, {for_python(piece.field)})" for piece in pieces)
    return f"[{', '.join(rows)}]"
