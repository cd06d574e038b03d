"""Token ids of prompts and answers of text to text, and texts from token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cl_graft.errors import InputError
from cl_graft.kinds.messages import (
    SYSTEM,
    chat_end,
    fill_chat,
    find_forbidden_in_chats,
    tokenize_chat,
)
from cl_graft.kinds.prompt_encoding import (
    CutRule,
    check_prompt,
    encode_prompts,
    fill_template,
    find_forbidden_ids,
    find_frame,
    fit_tokens,
    name_row,
    require_fast,
    tokenize_after,
)
from cl_graft.kinds.prompts import Piece, Prompt, ending_space

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from cl_graft.kinds.text_task import TextTask


def encode_asked(
    rows: Sequence[Any],
    tokenizer: Tokenizer,
    family: Any,
    prompt: Prompt | None,
    room: int,
    *,
    cut: str,
) -> tuple[list[list[int]], set[int]]:
    """Return the token ids of the prompt of each row, and the numbers of rows that were cut."""
    if not rows:
        return [], set()
    rule = CutRule(whole=frozenset({1}), from_start=cut == "left")
    if prompt is not None:
        found, shortened = encode_prompts(
            rows,
            tokenizer,
            family,
            check_prompt(prompt, family),
            room,
            cut=rule,
            keeps_end=family == "causal_lm",
        )
        return [ids for ids, _ in found], shortened
    require_fast(tokenizer, "chat messages need")
    begin, end = find_frame(tokenizer)
    begin = [] if family == "causal_lm" else begin  # a chat template writes its own begin
    end = [] if family == "causal_lm" else end
    filled = [fill_chat(tokenizer, row.messages) for row in rows]
    asked: list[list[int]] = []
    shortened = set[int]()
    left = room - len(begin) - len(end)
    for number, tokens in enumerate(tokenize_chat(tokenizer, filled)):
        talk = len([one for one in rows[number].messages if one.role != SYSTEM]) > 1
        kept = fit_tokens([tokens], left, replace(rule, from_start=talk or rule.from_start))
        if kept is None:
            raise InputError(
                "the chat template and the system message leave no room for the other messages in "
                f"{room} tokens ({name_row(rows[number], number)}); raise max_length"
            )
        if len(tokens.ids) > left:
            shortened.add(number)
        asked.append([*begin, *kept[0], *end])
    return asked, shortened


def encode_answers(
    rows: Sequence[Any], tokenizer: Tokenizer, family: str, prompt: Prompt | None, longest: int
) -> tuple[list[list[int]], set[int]]:
    """Return the token ids of the first right answer of each row, and the numbers of those cut.

    An answer ends with the token of the end; one that is cut does not, as it is not at its end.
    """
    end = _find_end(tokenizer, prompt)
    answers: list[list[int]] = []
    cut = set[int]()
    for number, ids in enumerate(_tokenize_answers(rows, tokenizer, family, prompt)):
        if len(ids) + 1 > longest:
            cut.add(number)
        answers.append([*ids, end][:longest])
    return answers, cut


def measure_answers(task: TextTask, tokenizer: Tokenizer, family: Any, max_length: int) -> int:
    """Return the tokens of the longest answer, its end included.

    That of the settings, or of the training rows, but at most half of `max_length`.
    """
    longest = task.decoding.longest_answer
    if longest is not None and longest >= max_length:
        raise InputError(
            f"decoding: longest_answer {longest} leaves no room for a prompt in the {max_length} "
            "tokens of max_length"
        )
    if longest is not None:
        return longest
    prompt = task.own_kind.find_prompt(task, family)
    found = _tokenize_answers(task.train, tokenizer, family, prompt)
    return min(max(len(ids) for ids in found) + 1, max_length // 2)


def find_stops(tokenizer: Tokenizer, prompt: Prompt | None, stop: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the tokens that end an answer: the end, and stop texts of one token."""
    stops = [_find_end(tokenizer, prompt)]
    for text in stop:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1:
            stops.append(int(ids[0]))
    return tuple(dict.fromkeys(stops))


def decode_answer(ids: Sequence[int], tokenizer: Any, stop: Sequence[str]) -> str:
    """Return the text of an answer's token ids, up to the first text that ends it."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    for end in stop:
        text = text.partition(end)[0]
    return text.strip()


def _find_end(tokenizer: Tokenizer, prompt: Prompt | None) -> int:
    """Return the token that ends an answer."""
    if prompt is None:
        ends = chat_end(tokenizer)[1]
        if ends:
            return ends[0]
    end = tokenizer.eos_token_id
    if not isinstance(end, int):
        raise InputError(
            f"{type(tokenizer).__name__} has no token that ends a text (eos_token), so an answer "
            "would never end"
        )
    return end


def _tokenize_answers(
    rows: Sequence[Any], tokenizer: Tokenizer, family: str, prompt: Prompt | None
) -> list[list[int]]:
    """Return the token ids of first right answers, as they stand behind their prompts.

    Behind a template an answer begins with a blank, but where the prompt ends with a line break.
    """
    find_forbidden = find_forbidden_ids if prompt else find_forbidden_in_chats
    forbidden = find_forbidden(tokenizer) | {_find_end(tokenizer, prompt)}
    last = prompt.pieces[-1] if prompt else Piece(chat_end(tokenizer)[0], "")
    lead = "" if last.field else last.literal.rstrip()
    found: list[list[int]] = []
    for row in rows:
        end = last.literal
        if prompt and last.field and family == "causal_lm":
            end = fill_template(prompt.pieces, [row], keeps_end=True)[0].text
        blank = not ending_space(end) if prompt else end.endswith(" ")
        after = (lead or "a") if family == "causal_lm" and blank else ""
        ids = tokenize_after(tokenizer, after, row.targets[0].strip())
        found.append([token for token in ids if token not in forbidden])
    return found
