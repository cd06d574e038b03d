"""Chat messages in OpenAI's form: read from data, and turned into prompts by a chat template.

https://platform.openai.com/docs/api-reference/chat. The template is the model's own; what a text
spells out (``<|im_end|>``) never becomes a special token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cl_graft.errors import InputError, brief, first_line, nearest
from cl_graft.kinds.text_encoding import (
    TEMPLATE,
    Filled,
    Tokens,
    find_forbidden_ids,
    find_special_tokens,
    tokenize_filled,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_ROLES = (SYSTEM, USER, ASSISTANT)
_CALLS = ("tool_calls", "function_call")
_OTHER_NAMES = {"human": USER, "gpt": ASSISTANT}
"""Names of ShareGPT's files."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a chat; its role is ``"system"``, ``"user"`` or ``"assistant"``."""

    role: str
    content: str


def read_messages(value: object, origin: str) -> list[Message]:
    """Read the messages of a record, the last of which is the answer."""
    messages = _read_list(value, origin)
    if [message.role for message in messages[-2:]] != [USER, ASSISTANT]:
        raise InputError(
            f"{origin}: messages must end with a message of the user and the assistant's "
            f"answer to it, got {', '.join(message.role for message in messages)}"
        )
    return messages


def read_chat(value: object, origin: str) -> tuple[Message, ...]:
    """Read messages that are to be answered; an answer that they end with is left out."""
    messages = _read_list(value, origin)
    asked = messages[:-1] if messages[-1].role == ASSISTANT else messages
    if not asked or asked[-1].role != USER:
        raise InputError(
            f"{origin}: messages to answer must end with one of the user, got "
            f"{', '.join(message.role for message in messages)}"
        )
    return tuple(asked)


def _read_list(value: object, origin: str) -> list[Message]:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):  # it is no JSON
            value = json.loads(value)
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{origin}: messages must be a list of {{'role', 'content'}}, got {brief(value)}"
        )
    messages: list[Message] = []
    for number, item in enumerate(value, start=1):
        where = f"{origin}: message {number}"
        if not isinstance(item, Mapping):
            raise InputError(f"{where} must be {{'role', 'content'}}, got {brief(item)}")
        role = item.get("role", item.get("from"))
        content = _join_parts(item.get("content", item.get("value")))
        role = _OTHER_NAMES.get(str(role), role)
        if role not in _ROLES:
            raise InputError(f"{where} has the role {role!r}; {nearest(str(role), _ROLES)}")
        if called := next((name for name in _CALLS if item.get(name)), None):
            raise InputError(f"{where} ({role}) holds {called}, which are not learned or answered")
        if not isinstance(content, str) or not content.strip():
            raise InputError(f"{where} ({role}) must hold a text, got {brief(content)}")
        if role == SYSTEM and number > 1:
            raise InputError(f"{where} is a system message; it must be the first")
        messages.append(Message(str(role), content))
    return messages


def _join_parts(content: object) -> object:
    """Return the text of a content that is a list of parts of text, as OpenAI's form allows."""
    parts: list[Any] = content if isinstance(content, list) else []
    texts = [
        text
        for part in parts
        if isinstance(part, Mapping) and isinstance(text := part.get("text"), str)
    ]
    if texts and len(texts) == len(parts):
        return "".join(texts)
    return content


def fill_chat(tokenizer: Tokenizer, messages: Sequence[Message]) -> Filled:
    """Return the prompt that a chat template makes of messages, up to where the answer begins.

    Characters of messages belong to text 0, those of a system message to text 1. Where the template
    changes messages, all belongs to the template, so nothing is cut.
    """
    whole = _render(tokenizer, messages)
    marks = [f"\ue000{number}\ue001" for number in range(len(messages))]
    marked = _render(
        tokenizer,
        [Message(message.role, mark) for message, mark in zip(messages, marks, strict=True)],
    )
    owners: list[tuple[int, int]] = []
    parts: list[str] = []
    for mark, message in zip(marks, messages, strict=True):
        before, mark_found, marked = marked.partition(mark)
        if not mark_found:
            break
        text = message.content if f"{before}{message.content}" in whole else message.content.strip()
        parts += [before, text]
        owners += [(TEMPLATE, len(before)), (int(message.role == SYSTEM), len(text))]
    parts.append(marked)
    owners.append((TEMPLATE, len(marked)))
    if "".join(parts) != whole:
        spelled = _list_marks(tokenizer)
        if mark := next((m for m in spelled if any(m in x.content for x in messages)), None):
            raise InputError(
                f"a message spells out {mark!r}, a token of the chat template, which changes the "
                "messages, so that the text cannot be told from the template; leave it out"
            )
        return Filled(whole, ((TEMPLATE, len(whole)),))
    return Filled(whole, tuple(owners))


def tokenize_chat(tokenizer: Tokenizer, filled: Sequence[Filled]) -> list[Tokens]:
    """Tokenize filled chat templates, whose special tokens are tokens; those of texts are not."""
    marks, forbidden = _list_marks(tokenizer), find_forbidden_in_chats(tokenizer)
    tokens: list[Tokens] = []
    for chat in filled:
        pieces = _split(chat)
        if not any(mark in text for owner, text in pieces if owner >= 0 for mark in marks):
            tokens += tokenize_filled(tokenizer, [chat], frozenset(), specials=True)
            continue
        ids: list[int] = []
        owners: list[int] = []
        for owner, text in pieces:
            part = Filled(text, ((owner, len(text)),))
            refused = forbidden if owner >= 0 else frozenset[int]()
            part_tokens = tokenize_filled(tokenizer, [part], refused, specials=owner < 0)[0]
            ids += part_tokens.ids
            owners += [owner] * len(part_tokens.ids)
        tokens.append(Tokens(ids, owners))
    return tokens


def find_forbidden_in_chats(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that no text of a chat may bring in: special ones, and parting tokens."""
    return find_forbidden_ids(tokenizer) | set(_find_parting_tokens(tokenizer))


def _list_marks(tokenizer: Tokenizer) -> list[str]:
    return [*find_special_tokens(tokenizer).values(), *_find_parting_tokens(tokenizer).values()]


def _find_parting_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the added tokens by id that a chat template writes between messages, special or not.

    Where a prompt begins and where it ends a template may write a text of its own, such as
    ``<think>``, so what stands there counts only as the very first token before a system message.
    """
    special = find_special_tokens(tokenizer)
    added = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items()}
    if added.keys() <= special.keys():
        return {}

    def read(text: str) -> list[int]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return [int(token) for token in ids if token not in special]

    first, *others = (Message(role, "\ue000") for role in (USER, ASSISTANT, USER))
    tokens = read(_render(tokenizer, [first, *others], answered=True).partition("\ue000")[2])
    with suppress(InputError):  # some templates know no system message
        system = _render(tokenizer, [Message(SYSTEM, "\ue001"), first])
        tokens += read(system.partition("\ue001")[0])[:1]
    return {number: added[number] for number in tokens if number in added}


def chat_end(tokenizer: Tokenizer) -> tuple[str, tuple[int, ...]]:
    """Return what a chat template puts before an answer, and the tokens that end one."""
    asked = [Message(USER, "x")]
    before = _render(tokenizer, asked)
    whole = _render(tokenizer, [*asked, Message(ASSISTANT, "\ue000")], answered=True)
    lead, _, tail = whole.removeprefix(before).partition("\ue000")
    ids = list(tokenizer(tail, add_special_tokens=False)["input_ids"])
    marks = {*find_special_tokens(tokenizer), *tokenizer.added_tokens_decoder}
    ends = [token for token in ids if token in marks][:1]
    if not whole.startswith(before):
        lead = ""
    end = ends or [tokenizer.eos_token_id]
    return lead, tuple(int(token) for token in end if token is not None)


def _render(tokenizer: Tokenizer, messages: Sequence[Message], *, answered: bool = False) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            "the model has no chat template, which makes a prompt of messages; use a chat "
            "model, or data with the columns 'input' and 'target'"
        )
    asked: Any = [{"role": message.role, "content": message.content} for message in messages]
    try:
        made = tokenizer.apply_chat_template(
            asked, tokenize=False, add_generation_prompt=not answered
        )
    except Exception as error:
        raise InputError(
            f"the model's chat template refuses the messages: {first_line(error)}"
        ) from error
    return str(made)


def _split(filled: Filled) -> list[tuple[int, str]]:
    pieces, start = [], 0
    for owner, length in filled.owners:
        pieces.append((owner, filled.text[start : start + length]))
        start += length
    return [(owner, text) for owner, text in pieces if text]
