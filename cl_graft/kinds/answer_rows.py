"""Rows of text to text: read from records, encoded, and how their answers are decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cl_graft.errors import InputError, brief
from cl_graft.kinds import messages, text_encoding
from cl_graft.kinds.messages import Message
from cl_graft.kinds.prompts import Piece, Prompt, ending_space
from cl_graft.kinds.rows import ColumnError, Row, read_text_value
from cl_graft.kinds.text_encoding import Encoding
from cl_graft.models.text_generation import MOST_BEAMS, MOST_TOKENS
from cl_graft.runtime.settings import settings_class

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from cl_graft.kinds.text_task import TextTask


@dataclass(frozen=True, slots=True)
class AnswerRow(Row):
    """An input and its right answers.

    Attributes:
        text: The input; of chat messages the last one before the answer.
        text_pair: The instruction; None where the data have none.
        label: 0.
        targets: Right answers; the first one trains.
        group: Name of what rows are scored together, such as a dialogue and a turn; may be empty.
        messages: Chat messages before the answer; empty where a template makes the prompt.
        cut: Side of the text that is cut where a row of no task is too long.
        place: File and line of the row, for messages; no part of its content.
    """

    targets: tuple[str, ...] = ()
    group: str = ""
    messages: tuple[Message, ...] = ()
    cut: str = "right"
    place: str = field(default="", compare=False)

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        messages = [[one.role, one.content] for one in self.messages]
        return [self.text, self.text_pair, list(self.targets), self.group, messages]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The texts, and all messages before the answer."""
        return (self.text, self.text_pair, self.messages)


def read_answer_row(values: Mapping[str, object], place: str) -> AnswerRow:
    """Read a row: an input and its answers, or messages that end with the answer."""
    group = _read_group(values)
    if "messages" in values:
        *asked, answer = messages.read_messages(values["messages"], place)
        targets = (answer.content,)
        return AnswerRow(
            asked[-1].content, None, 0, targets, group, messages=tuple(asked), place=place
        )
    pair = None
    if "instruction" in values:
        pair = read_text_value(values, "instruction", place, empty=True)
    alone = bool(pair and pair.strip())  # an instruction may be all that is asked
    text = read_text_value(values, "input", place, empty=alone)
    return AnswerRow(text, pair, 0, _read_targets(values.get("target"), place), group, place=place)


def _read_group(values: Mapping[str, object]) -> str:
    """Return the name of a dialogue's turn; empty where a row lacks one of the two."""
    parts = [values.get(name) for name in ("dialogue", "turn")]
    if any(part is None or not str(part).strip() for part in parts):
        return ""
    return "/".join(map(str, parts))


def _read_targets(value: object, place: str) -> tuple[str, ...]:
    found: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not found:
        raise ColumnError(place, "target", "holds no answer")
    for number, one in enumerate(found, start=1):
        which = f"right answer {number} of {len(found)}" if len(found) > 1 else "the answer"
        if not isinstance(one, str) or not one.strip():
            what = "empty" if one is None or not str(one).strip() else f"no text: {brief(one)}"
            raise ColumnError(place, "target", f"is {what}", f"{which} in ")
    return tuple(found)


@settings_class
class Decoding:
    """How a task of text to text is answered."""

    beams: int = Field(
        default=1, ge=1, le=MOST_BEAMS, description="Beams of beam search; 1 is greedy search."
    )
    longest_answer: int | None = Field(
        default=None,
        ge=1,
        le=MOST_TOKENS,
        description="Tokens of the longest answer, its end included; they are a part of "
        "`max_length`. None means that of the longest training answer, but at most half of "
        "`max_length`.",
    )
    cut: Literal["left", "right"] = Field(
        default="right", description="Side of a text that is cut where a prompt is too long."
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)


def encode_asked(
    rows: Sequence[Any], encoding: Encoding, *, cut: str
) -> tuple[list[list[int]], set[int]]:
    """Return the token ids of the prompt of each row, and the numbers of rows that were cut."""
    if not rows:
        return [], set()
    tokenizer, family = encoding.tokenizer, encoding.family
    rule = text_encoding.CutRule(whole=frozenset({1}), from_start=cut == "left")
    if encoding.prompt is not None:
        filled, shortened = text_encoding.encode_prompts(
            rows, encoding, cut=rule, keeps_end=family == "causal_lm"
        )
        return [ids for ids, _ in filled], shortened
    text_encoding.require_fast(tokenizer, "chat messages need")
    begin, end = text_encoding.find_frame(tokenizer)
    begin = [] if family == "causal_lm" else begin  # a chat template writes its own begin
    end = [] if family == "causal_lm" else end
    chats = [messages.fill_chat(tokenizer, row.messages) for row in rows]
    asked: list[list[int]] = []
    shortened = set[int]()
    left = encoding.max_length - len(begin) - len(end)
    for number, tokens in enumerate(messages.tokenize_chat(tokenizer, chats)):
        talk = len([one for one in rows[number].messages if one.role != messages.SYSTEM]) > 1
        kept = text_encoding.fit_tokens(
            [tokens], left, replace(rule, from_start=talk or rule.from_start)
        )
        if kept is None:
            raise InputError(
                "the chat template and the system message leave no room for the other messages in "
                f"{encoding.max_length} tokens "
                f"({text_encoding.name_row(rows[number], number)}); raise max_length"
            )
        if len(tokens.ids) > left:
            shortened.add(number)
        asked.append([*begin, *kept[0], *end])
    return asked, shortened


def encode_answers(
    rows: Sequence[Any], encoding: Encoding, longest: int
) -> tuple[list[list[int]], set[int]]:
    """Return the token ids of each row's first right answer, and the numbers of rows cut.

    An answer ends with the token of the end; one that is cut does not.
    """
    end = find_end(encoding.tokenizer, encoding.prompt)
    answers: list[list[int]] = []
    cut = set[int]()
    for number, ids in enumerate(_tokenize_answers(rows, encoding)):
        if len(ids) + 1 > longest:
            cut.add(number)
        answers.append([*ids, end][:longest])
    return answers, cut


def measure_answers(task: TextTask, encoding: Encoding) -> int:
    """Return the tokens of the longest answer with its end, by the settings or training rows.

    It is at most half of `max_length`.
    """
    longest, max_length = task.decoding.longest_answer, encoding.max_length
    if longest is not None and longest >= max_length:
        raise InputError(
            f"decoding: longest_answer {longest} leaves no room for a prompt in the {max_length} "
            "tokens of max_length"
        )
    if longest is not None:
        return longest
    return min(max(map(len, _tokenize_answers(task.train, encoding))) + 1, max_length // 2)


def find_end(tokenizer: Tokenizer, prompt: Prompt | None) -> int:
    """Return the id of the token that ends an answer."""
    if prompt is None:
        ends = messages.chat_end(tokenizer)[1]
        if ends:
            return ends[0]
    end = tokenizer.eos_token_id
    if not isinstance(end, int):
        raise InputError(
            f"{type(tokenizer).__name__} has no token that ends a text (eos_token), so an answer "
            "would never end"
        )
    return end


def _tokenize_answers(rows: Sequence[Any], encoding: Encoding) -> list[list[int]]:
    """Return the token ids of first right answers, as they stand behind their prompts.

    Behind a template an answer begins with a blank, but where the prompt ends with a line break.
    """
    tokenizer, family, prompt = encoding.tokenizer, encoding.family, encoding.prompt
    find_forbidden = (
        text_encoding.find_forbidden_ids if prompt else messages.find_forbidden_in_chats
    )
    forbidden = find_forbidden(tokenizer) | {find_end(tokenizer, prompt)}
    last = prompt.pieces[-1] if prompt else Piece(messages.chat_end(tokenizer)[0], "")
    lead = "" if last.field else last.literal.rstrip()
    found: list[list[int]] = []
    for row in rows:
        end = last.literal
        if prompt and last.field and family == "causal_lm":
            end = text_encoding.fill_template(prompt.pieces, [row], keeps_end=True)[0].text
        blank = not ending_space(end) if prompt else end.endswith(" ")
        after = (lead or "a") if family == "causal_lm" and blank else ""
        ids = text_encoding.tokenize_after(tokenizer, after, row.targets[0].strip())
        found.append([token for token in ids if token not in forbidden])
    return found
