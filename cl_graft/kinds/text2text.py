"""Text to text: a free answer to an input, an instruction with its input, or chat messages.

A row that is learned holds the answer behind its prompt, as segment 2; targets, (n, L), are the
tokens of the answer, −100 behind them, and in the last column the number of the row, by which the
scorer finds the right answers. Dev and test rows hold the prompt alone, and are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from cl_graft.errors import InputError, brief
from cl_graft.kinds import messages, text_encoding
from cl_graft.kinds.kind import Drafts, Kind, MadeRows, Metadata, register_kind
from cl_graft.kinds.messages import SYSTEM, USER, Message
from cl_graft.kinds.prompts import Family, Piece, Prompt, ending_space
from cl_graft.kinds.rows import Answer, ColumnError, EncodedRows, Row, read_text_value
from cl_graft.kinds.text_encoding import Encoding, pad_inputs
from cl_graft.metrics.task_score import METRICS, NO_TARGET, Scorer
from cl_graft.metrics.text_scores import find_number
from cl_graft.models import TaskModel
from cl_graft.models.text_generation import (
    ANSWER,
    MOST_BEAMS,
    MOST_TOKENS,
    TextHead,
    split_generated,
)
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
        origin: File and line of the row, for messages; no part of its content.
    """

    targets: tuple[str, ...] = ()
    group: str = ""
    messages: tuple[Message, ...] = ()
    cut: str = "right"
    origin: str = field(default="", compare=False)

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        messages = [[message.role, message.content] for message in self.messages]
        return [self.text, self.text_pair, list(self.targets), self.group, messages]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The texts, and all messages before the answer."""
        return (self.text, self.text_pair, self.messages)


def _read_targets(value: object, origin: str) -> tuple[str, ...]:
    answers: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not answers:
        raise ColumnError(origin, "target", "holds no answer")
    for number, text in enumerate(answers, start=1):
        which = f"right answer {number} of {len(answers)}" if len(answers) > 1 else "the answer"
        if not isinstance(text, str) or not text.strip():
            what = "empty" if text is None or not str(text).strip() else f"no text: {brief(text)}"
            raise ColumnError(origin, "target", f"is {what}", f"{which} in ")
    return tuple(answers)


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
        talk = sum(each.role != messages.SYSTEM for each in rows[number].messages) > 1
        fitted = text_encoding.fit_tokens(
            [tokens], left, replace(rule, from_start=talk or rule.from_start)
        )
        if fitted is None:
            raise InputError(
                "the chat template and the system message leave no room for the other messages in "
                f"{encoding.max_length} tokens "
                f"({text_encoding.name_row(rows[number], number)}); raise max_length"
            )
        if len(tokens.ids) > left:
            shortened.add(number)
        asked.append([*begin, *fitted[0], *end])
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
    answers: list[list[int]] = []
    for row in rows:
        end = last.literal
        if prompt and last.field and family == "causal_lm":
            end = text_encoding.fill_template(prompt.pieces, [row], keeps_end=True)[0].text
        blank = not ending_space(end) if prompt else end.endswith(" ")
        after = (lead or "a") if family == "causal_lm" and blank else ""
        ids = text_encoding.tokenize_after(tokenizer, after, row.targets[0].strip())
        answers.append([token for token in ids if token not in forbidden])
    return answers


@register_kind
class Text2Text(Kind):
    """Free text that answers an input."""

    name = "text2text"
    title = "text to text"
    metrics = (
        "rouge_l",
        "text_match",
        "exact_match",
        "answer_f1",
        "bleu",
        "chrf",
        "number_match",
        "joint_goal_accuracy",
    )
    families = ("causal_lm", "seq2seq_lm")
    class_axis = False
    head_tensor = "stops"
    columns: ClassVar = {
        "input": ("input", "prompt", "source"),
        "target": ("target", "targets", "output", "response", "completion", "answer"),
    }
    target_column = "target"
    optional: ClassVar = {
        "instruction": ("instruction", "definition"),
        "dialogue": ("dialogue",),
        "turn": ("turn",),
    }
    other_columns: ClassVar = ({"messages": ("messages", "conversation", "conversations")},)

    def check(self, task: TextTask) -> None:
        """Check that every row has an answer, that rows are alike, and settings fit them."""
        if task.label_names:
            raise InputError(
                f"task {task.name!r} answers with free text, so it has no label names; got "
                f"{list(task.label_names)}"
            )
        first = task.train[0]
        chat = isinstance(first, AnswerRow) and bool(first.messages)
        if chat and task.causal_prompt is not None:
            raise InputError(
                f"task {task.name!r} holds chat messages, of which the model's own chat template "
                f"makes prompts; the template {task.causal_prompt.template!r} would drop all but "
                "the last one"
            )
        template = "" if task.causal_prompt is None else task.causal_prompt.template
        if first.text_pair is None and (task.causal_prompt and task.causal_prompt.uses_pair):
            raise InputError(
                f"task {task.name!r}: the template {template!r:.100} asks for an instruction, and "
                "no row has one: name it with instruction, or leave it out of the template"
            )
        grouped, counted = METRICS.find(task.metric).of_groups, task.metric == "number_match"
        for origin, row in task.placed_rows():
            if not isinstance(row, AnswerRow) or not row.targets:
                raise InputError(f"{origin} has no answer")
            if bool(row.messages) != chat:
                raise InputError(f"{origin}: either all rows are chat messages, or none is")
            if grouped and not row.group:
                raise InputError(
                    f"{origin} lacks a dialogue and turn (columns 'dialogue' and 'turn'), of "
                    f"which {task.metric!r} needs every slot"
                )
            if counted and all(find_number(text) is None for text in row.targets):
                raise InputError(
                    f"{origin} has the answer {row.targets[0]!r:.60}, which holds no number for "
                    "'number_match' to compare"
                )

    def reported_metrics(self, task: TextTask) -> tuple[str, ...]:
        """Return ROUGE-L and exact match."""
        return ("rouge_l", "exact_match")

    def describe_entry(self, metadata: Metadata) -> str:
        """Return what an entry answers."""
        return "free text"

    def count_outputs(self, task: TextTask) -> int:
        """Return 1: outputs have no axis of classes."""
        return 1

    def read(self, values: Mapping[str, object], origin: str) -> object:
        """Return the row: an input and its answers, or messages that end with the answer."""
        turn = [values.get(name) for name in ("dialogue", "turn")]
        whole = all(part is not None and str(part).strip() for part in turn)
        group = "/".join(map(str, turn)) if whole else ""
        if "messages" in values:
            *asked, answer = messages.read_messages(values["messages"], origin)
            targets = (answer.content,)
            return AnswerRow(
                asked[-1].content, None, 0, targets, group, messages=tuple(asked), origin=origin
            )
        pair = None
        if "instruction" in values:
            pair = read_text_value(values, "instruction", origin, empty=True)
        alone = bool(pair and pair.strip())  # an instruction may be all that is asked
        text = read_text_value(values, "input", origin, empty=alone)
        targets = _read_targets(values.get("target"), origin)
        return AnswerRow(text, pair, 0, targets, group, origin=origin)

    def make_rows(self, drafts: Drafts, declared: Mapping[str, Sequence[str]]) -> MadeRows:
        """Return the rows as read; where some have an instruction, that of the others is empty."""
        if any(row.text_pair is not None for of_split in drafts.values() for row, _ in of_split):
            drafts = {
                split: [(replace(row, text_pair=row.text_pair or ""), at) for row, at in pairs]
                for split, pairs in drafts.items()
            }
        return super().make_rows(drafts, declared)

    def choose_tried(self, rows: Sequence[Any], count: int) -> tuple[Any, ...]:
        """Return the first rows, and those of the longest instructions and answers."""

        def measure_whole(row: AnswerRow) -> int:
            system = sum(len(message.content) for message in row.messages if message.role == SYSTEM)
            return system + len(row.text_pair or "")

        whole = sorted(rows, key=measure_whole, reverse=True)[:count]
        answers = sorted(rows, key=lambda row: len(row.targets[0]), reverse=True)[:count]
        return tuple(dict.fromkeys([*rows[:count], *whole, *answers]))

    def default_prompts(self, rows: Sequence[Row]) -> tuple[Prompt | None, Prompt | None]:
        """Return the template of rows without one: instruction, input, and a word to answer at."""
        first = rows[0]
        if isinstance(first, AnswerRow) and first.messages:
            return None, None
        before = "" if first.text_pair is None else "{instruction}\n"
        return None, Prompt(f"{before}{{input}}\nAnswer:", {})

    def find_prompt(self, task: TextTask, family: Family) -> Prompt | None:
        """Return the task's template; an instruction that all rows share is put in."""
        prompt = task.causal_prompt
        if prompt is None or family not in self.families:
            return None
        shared = {row.text_pair for rows in task.splits.values() for row in rows}
        if not prompt.uses_pair or len(shared) > 1:
            return prompt
        text = (shared.pop() or "").strip().replace("{", "{{").replace("}", "}}")
        template = prompt.template
        for name in ("{instruction}", "{text_pair}"):
            template = template.replace(name, text)
        return Prompt(template, {})

    def label_tokens(
        self, task: TextTask, tokenizer: Tokenizer, *, family: Family, max_length: int
    ) -> tuple[tuple[int, ...], ...]:
        """Return the token that ends an answer; and those of the longest answer, and beams."""
        prompt = self.find_prompt(task, family)
        stops = (find_end(tokenizer, prompt),)
        encoding = Encoding(tokenizer, family, prompt, max_length)
        return stops, (measure_answers(task, encoding), task.decoding.beams)

    def count_reserved(self, head: Mapping[str, Tensor]) -> int:
        """Return the tokens of the longest answer."""
        return int(head["limits"][0])

    def encode(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode prompts that are to be answered; of a task they leave room for its answers."""
        room, side = encoding.max_length, rows[0].cut if rows else "right"
        if (task := encoding.task) is not None:
            room -= measure_answers(task, encoding)
            side = task.decoding.cut
        asked, cut = encode_asked(rows, replace(encoding, max_length=room), cut=side)
        return _pack(asked, [[]] * len(rows), encoding, len(cut))

    def encode_training(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode prompts with their first right answer, which ends with the token of the end."""
        if (task := encoding.task) is None:
            raise ValueError("rows that train belong to a task, got none")
        longest = measure_answers(task, encoding)
        room = replace(encoding, max_length=encoding.max_length - longest)
        asked, cut = encode_asked(rows, room, cut=task.decoding.cut)
        answers, shortened = encode_answers(rows, encoding, longest)
        return _pack(asked, answers, encoding, len(cut | shortened))

    def make_prompted_head(
        self, model: TaskModel, task: TextTask, label_tokens: Sequence[Sequence[int]] | None
    ) -> nn.Module:
        """Make the head that says how far and in which way answers are decoded."""
        if label_tokens is None:
            raise InputError(f"task {task.name!r} needs the tokens that end an answer, got none")
        stops, (longest, beams) = label_tokens
        return TextHead(stops, longest, beams)

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Refuse an encoder, which writes no text."""
        raise InputError(
            f"task {task.name!r} is answered with text, and an encoder writes none: use a model of "
            f"the family {' or '.join(self.families)}"
        )

    def scorer(self, task: TextTask, encoded: Mapping[str, EncodedRows]) -> Scorer:
        """Return what decodes token ids and compares texts."""
        rows = chain.from_iterable(task.splits.values())
        texts = tuple(row for row in rows if isinstance(row, AnswerRow))
        tokenizer = encoded["train"].tokenizer
        return _TextScorer(task.metric, texts, tokenizer)

    def metadata(self, task: TextTask) -> dict[str, Any]:
        """Return how answers are decoded, and a chat's system message."""
        prompt = self.find_prompt(task, "causal_lm")
        asks_pair = prompt is not None and prompt.uses_pair
        metadata: dict[str, Any] = {"decoding": asdict(task.decoding), "pair": asks_pair}
        if isinstance(task.train[0], AnswerRow) and task.train[0].messages:
            first = {row.messages[0] for row in task.train if isinstance(row, AnswerRow)}
            shared = first.pop() if len(first) == 1 else None
            system = shared.content if shared and shared.role == SYSTEM else None
            metadata["chat"] = {"system": system}
        return metadata

    def row(self, text: str, pair: str | None, metadata: Metadata) -> AnswerRow:
        """Return the row of an input, with an instruction as second text."""
        if metadata.get("chat") is not None:
            return make_chat_row((Message(USER, text),), metadata)
        return AnswerRow(text, pair, 0, cut=_find_cut(metadata))

    def answer(
        self, outputs: Tensor, encoded: EncodedRows, rows: Sequence[Row], metadata: Metadata
    ) -> list[Answer]:
        """Return the decoded texts."""
        return [Answer(text, {}) for text in _decode(outputs, encoded.tokenizer)]


def make_chat_row(messages: tuple[Message, ...], metadata: Metadata) -> AnswerRow:
    """Return the row of chat messages that an entry is to answer.

    Where all chats of a task began with the same system message, it is put before messages that
    have none.
    """
    system = metadata["chat"].get("system")
    if system and messages[0].role != SYSTEM:
        messages = (Message(SYSTEM, system), *messages)
    return AnswerRow(messages[-1].content, None, 0, messages=messages, cut=_find_cut(metadata))


def _find_cut(metadata: Metadata) -> str:
    """Return the side of the text that an entry cuts where a row is too long."""
    return Decoding(**(metadata.get("decoding") or {})).cut


@dataclass(frozen=True, eq=False)
class _TextScorer:
    """Score of decoded answers to the rows of all splits."""

    name: str
    rows: tuple[AnswerRow, ...]
    tokenizer: Tokenizer

    def read(self, outputs: Tensor) -> list[str]:
        """Return the answers that outputs hold; of given ones the likeliest token at each place."""
        return _decode(outputs, self.tokenizer)

    def compare(
        self, outputs: Tensor, targets: Tensor, *, most: int | None = None
    ) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return input, decoded answer and right answers of each row, or the `most` first ones."""
        rows = [self.rows[number] for number in targets[:most, -1].tolist()]
        answers = self.read(outputs[:most])
        return [(row.text, said, row.targets) for row, said in zip(rows, answers, strict=True)]

    def references(self, targets: Tensor) -> object:
        """Return the right answers and the group of each row."""
        rows = [self.rows[number] for number in targets[:, -1].tolist()]
        return [[list(row.targets), row.group] for row in rows]

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the score; the last column of `targets`, (n, L), names the rows."""
        rows = [self.rows[number] for number in targets[:, -1].tolist()]
        metric = METRICS.find(self.name)
        more = [[row.group for row in rows]] if metric.of_groups else []
        return metric.compute(self.read(outputs), [list(row.targets) for row in rows], *more)


def _decode(outputs: Tensor, tokenizer: Any) -> list[str]:
    decoded = (tokenizer.decode(ids, skip_special_tokens=True) for ids in split_generated(outputs))
    return [text.strip() for text in decoded]


def _pack(
    asked: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], encoding: Encoding, cut: int
) -> EncodedRows:
    tokenizer, max_length = encoding.tokenizer, encoding.max_length
    encoded = [
        ([*prompt, *answer], [1] * len(prompt) + [ANSWER] * len(answer))
        for prompt, answer in zip(asked, answers, strict=True)
    ]
    targets = torch.full((len(encoded), max_length), NO_TARGET, dtype=torch.int64)
    for number, answer in enumerate(answers):
        targets[number, : len(answer)] = torch.tensor(answer, dtype=torch.int64)
    targets[:, -1] = torch.arange(encoding.first, encoding.first + len(encoded))
    inputs = pad_inputs(encoded, tokenizer, max_length)
    return EncodedRows(inputs, targets, torch.arange(len(encoded)), cut, tokenizer=tokenizer)
