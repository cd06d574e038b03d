"""Tagging: a BIO tag for each word of a text, with or without an intent of the whole.

Targets have shape (n, L): the number of a word's tag at its first token, −100 at all other tokens.
The first token of the row (``[CLS]``) has the number of the intent behind those of the tags. Tags
are numbered as `cl_graft.metrics.span_scores` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from cl_graft.errors import DamagedFile, InputError, brief, join_names, nearest
from cl_graft.kinds.kind import Drafts, Kind, MadeRows, Metadata, register_kind
from cl_graft.kinds.rows import Answer, ColumnError, Confusions, EncodedRows, Row, Span, count_rows
from cl_graft.kinds.text_encoding import Encoding, pad_inputs, require_fast
from cl_graft.kinds.text_task import TextTask
from cl_graft.metrics.span_scores import count_spans, list_tags
from cl_graft.metrics.task_score import NO_TARGET
from cl_graft.models import TaskModel
from cl_graft.models.heads import TaggingHead

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


@dataclass(frozen=True, slots=True)
class TaggedRow(Row):
    """A text with a tag for each of its words.

    Attributes:
        text: The words, joined by blanks.
        text_pair: None.
        label: Number of the intent; 0 where rows have none.
        tags: Number of each word's tag, see `cl_graft.metrics.span_scores`.
    """

    tags: tuple[int, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words."""
        return self.text.split(" ")

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        return [self.text, self.label, list(self.tags)]


@register_kind
class Tagging(Kind):
    """A BIO tag for each word, such as names in a text, or the slots of a command."""

    name = "tagging"
    head_tensor = "tags.weight"
    metrics = ("span_f1", "frame_accuracy", "intent_accuracy")
    dense_lr = 0.4
    columns: ClassVar = {"tokens": ("tokens", "words"), "tags": ("tags", "ner_tags", "slots")}
    target_column = "tags"
    optional: ClassVar = {"label": ("label", "intent")}

    def check(self, task: TextTask) -> None:
        """Check label names, tags and intents."""
        types = [name[2:] for name in task.label_names[1::2]]
        if task.label_names == ("O",):
            raise InputError(
                f"task {task.name!r} has no span type: the tags of its training rows are all 'O'"
            )
        if not types or task.label_names != list_tags(types) or len(set(types)) != len(types):
            raise InputError(
                f"task {task.name!r}: the label names of a tagging task are 'O', then B- and I- of "
                f"each span type, got {join_names(task.label_names)}"
            )
        tags, intents = len(task.label_names), len(task.intent_names)
        if len(set(task.intent_names)) < intents:
            raise InputError(
                f"task {task.name!r} needs different names of intents, got "
                f"{join_names(task.intent_names)}"
            )
        if task.metric == "intent_accuracy" and not intents:
            raise InputError(f"task {task.name!r} has no intents, so no intent_accuracy")
        for origin, row in task.placed_rows():
            if not isinstance(row, TaggedRow) or len(row.words) != len(row.tags):
                count = len(row.tags) if isinstance(row, TaggedRow) else 0
                raise InputError(f"{origin} has {len(row.text.split())} words and {count} tags")
            if not all(0 <= tag < tags for tag in row.tags):
                raise InputError(f"{origin} has tags {row.tags}, expected 0 to {tags - 1}")
            if not 0 <= row.label < max(1, intents):
                raise InputError(f"{origin} has intent {row.label}, expected 0 to {intents - 1}")

    def reported_metrics(self, task: TextTask) -> tuple[str, ...]:
        """Return span F1, and the metrics of intents where there are intents."""
        return self.metrics if task.intent_names else ("span_f1",)

    def describe(self, task: TextTask) -> str:
        """Return the numbers of span types and intents."""
        return _describe(task.label_names, task.intent_names)

    def describe_entry(self, metadata: Metadata) -> str:
        """Return the numbers of span types and intents."""
        return _describe(metadata.get("label_names") or (), metadata.get("intent_names") or ())

    def count_outputs(self, task: TextTask) -> int:
        """Return the number of tags and intents."""
        return len(task.label_names) + len(task.intent_names)

    def read(self, values: Mapping[str, object], origin: str) -> object:
        """Return words, names of tags, and the name of the intent or None."""
        words = _read_list(values, "tokens", origin)
        tags = [tag.strip() for tag in _read_list(values, "tags", origin)]
        if len(words) != len(tags):
            raise InputError(
                f"{origin}: words and tags differ in number, {len(words)} and {len(tags)}; each "
                "word needs one tag"
            )
        if not words:
            raise InputError(f"{origin}: there are no words")
        for word in words:
            if not word or any(character.isspace() for character in word):
                raise InputError(f"{origin}: the word {word[:40]!r} is empty or holds a blank")
        _check_tags(tags, origin)
        intent = values.get("label")
        if "label" in values and not (isinstance(intent, str) and intent.strip()):
            raise InputError(f"{origin}: the intent must be a name, got {intent!r}")
        return words, tags, intent.strip() if isinstance(intent, str) else None

    def make_rows(self, drafts: Drafts, declared: Mapping[str, Sequence[str]]) -> MadeRows:
        """Number tags and intents; names that were not declared are those of the training rows."""
        train = [draft for draft, _ in drafts["train"]]
        seen = {tag[2:] for _, tags, _ in train for tag in tags if tag != "O"}
        types = list(declared.get("span_types") or sorted(seen))
        intents = sorted({intent for _, _, intent in train if intent is not None})
        if declared.get("label_names") and not intents:
            raise InputError(
                f"label names {join_names(declared['label_names'])} are those of intents here, and "
                "the training rows have none; types of spans are declared as span_types"
            )
        intents = list(declared.get("label_names") or intents)
        names = list_tags(types)
        numbers = {name: number for number, name in enumerate(names)}
        places = {name: number for number, name in enumerate(intents)}
        rows: dict[str, list[Row | InputError]] = {}
        for split, of_split in drafts.items():
            rows[split] = [_make_row(draft, origin, numbers, places) for draft, origin in of_split]
        return rows, {"label_names": names, "intent_names": tuple(intents)}

    def encode(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode the words as one text; `places` hold the column of each word's first token."""
        max_length, task = encoding.max_length, encoding.task
        texts = [row.text for row in rows]
        inputs, offsets, cut = _encode_words(texts, encoding.tokenizer, max_length)
        places = tuple(
            find_columns(row.words, spans) for row, spans in zip(rows, offsets, strict=True)
        )
        targets = torch.full((len(rows), max_length), NO_TARGET, dtype=torch.int64)
        for number, (row, columns) in enumerate(zip(rows, places, strict=True)):
            for column, tag in zip(columns, row.tags, strict=False):
                if column >= 0:
                    targets[number, column] = tag
            if task is not None and task.intent_names:
                targets[number, 0] = len(task.label_names) + row.label
        return EncodedRows(inputs, targets, torch.arange(len(rows)), cut, places)

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make a linear head on the tokens, and one on the first token for the intents."""
        tags, intents = len(task.label_names), len(task.intent_names)
        return TaggingHead(model.hidden_size, tags, intents, seed=seed)

    def confusions(
        self, task: TextTask, outputs: Tensor, targets: Tensor, numbers: Tensor
    ) -> list[Confusions]:
        """Count the spans, and the rows by their intents where there are any."""
        tags = len(task.label_names)
        types = tuple(name.removeprefix("B-") for name in task.label_names[1::2])
        confusions: list[Confusions] = []
        if spans := count_spans(outputs[..., :tags], targets, types=len(types)):
            confusions.append(Confusions((*types, "no span"), spans, "spans"))
        if task.intent_names:
            intents, right = outputs[:, 0, tags:], targets[:, 0] - tags
            confusions.append(
                count_rows(task.intent_names, intents, right, numbers, part="intents")
            )
        return confusions

    def metadata(self, task: TextTask) -> dict[str, Any]:
        """Return the names of the intents, where there are any."""
        return {"intent_names": list(task.intent_names)} if task.intent_names else {}

    def row(self, text: str, pair: str | None, metadata: Metadata) -> Row:
        """Return the row of a text, whose words are parted by blanks."""
        if pair is not None:
            raise InputError("a tagging task takes one text, got two")
        return TaggedRow(" ".join(text.split()), None, 0)

    def answer(
        self, outputs: Tensor, encoded: EncodedRows, rows: Sequence[Row], metadata: Metadata
    ) -> list[Answer]:
        """Return the tags, the spans that they make, and the intent with its probability."""
        tags = [str(name) for name in metadata.get("label_names") or []]
        intents = [str(name) for name in metadata.get("intent_names") or []]
        if len(tags) + len(intents) != outputs.shape[-1]:
            raise DamagedFile(
                f"it names {len(tags)} tags and {len(intents)} intents, and has "
                f"{outputs.shape[-1]} logits"
            )
        answers = []
        for row, logits, columns in zip(rows, outputs, encoded.places or [], strict=True):
            best = logits[:, : len(tags)].argmax(-1).tolist()
            row_tags = tuple(tags[best[column]] if column >= 0 else "O" for column in columns)
            shares = logits[0, len(tags) :].double().softmax(-1).tolist()
            label = intents[max(range(len(shares)), key=shares.__getitem__)] if intents else ""
            probabilities = dict(zip(intents, shares, strict=True))
            spans = find_spans(row.text, row_tags)
            answers.append(Answer(label, probabilities, spans=spans, tags=row_tags))
        return answers


def _describe(tags: Sequence[str], intents: Sequence[str]) -> str:
    types = f"{len(tags) // 2} span type{'s' if len(tags) > 3 else ''}"
    return f"{types}, {len(intents)} intent{'s' if len(intents) > 1 else ''}" if intents else types


def find_spans(text: str, tags: Sequence[str]) -> tuple[Span, ...]:
    """Return the spans that the tags of a text's words make, words being parted by one blank.

    An I tag after another type, or after O, begins a span, as in CoNLL's script.
    """
    from seqeval.metrics.sequence_labeling import get_entities

    ends = [0, *accumulate(len(word) + 1 for word in text.split(" "))]
    return tuple(
        Span(ends[first], ends[last + 1] - 1, str(name), text[ends[first] : ends[last + 1] - 1])
        for name, first, last in get_entities(list(tags))
    )


def find_columns(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the column of each word's first token; −1 where it has none, or was cut off."""
    columns: dict[int, int] = {}
    for column, (start, stop) in reversed(list(enumerate(offsets))):
        columns |= dict.fromkeys(range(start, stop), column)
    starts = accumulate((len(word) + 1 for word in words[:-1]), initial=0)
    return tuple(
        next((columns[at] for at in range(start, start + len(word)) if at in columns), -1)
        for start, word in zip(starts, words, strict=True)
    )


def _encode_words(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int
) -> tuple[Tensor, list[list[tuple[int, int]]], int]:
    """Return inputs, (n, 2, max_length), the characters of each token, and how many were cut."""
    require_fast(tokenizer, "tagging needs")
    batch: Any = tokenizer(
        list(texts),
        truncation=True,
        max_length=max_length,
        split_special_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    if not all(mask[:1] == [1] for mask in batch["special_tokens_mask"]):
        raise InputError(
            "tagging needs a tokenizer that puts a token of its own first, where an intent is "
            f"answered; a row of {type(tokenizer).__name__} begins with no token of its own"
        )
    inputs = pad_inputs(
        [(ids, [1] * len(ids)) for ids in batch["input_ids"]], tokenizer, max_length
    )
    offsets = [
        [(0, 0) if special else pair for pair, special in zip(pairs, mask, strict=True)]
        for pairs, mask in zip(batch["offset_mapping"], batch["special_tokens_mask"], strict=True)
    ]
    return inputs, offsets, sum(bool(encoding.overflowing) for encoding in batch.encodings)


def _make_row(
    draft: tuple[list[str], list[str], str | None],
    origin: str,
    tags: Mapping[str, int],
    intents: Mapping[str, int],
) -> Row | InputError:
    words, row_tags, intent = draft
    unknown = next((tag for tag in row_tags if tag not in tags), None)
    if unknown is not None:
        return InputError(
            f"{origin}: the tag {unknown!r} is not among those of the training rows, or the "
            f"declared ones; {nearest(unknown, tags)}"
        )
    if intent is None and intents:
        return InputError(f"{origin}: the row has no intent, others have one")
    if intent is not None and not intents:
        return InputError(f"{origin}: the row has the intent {intent!r}, training rows have none")
    if intent is not None and intent not in intents:
        return InputError(
            f"{origin}: the intent {intent!r} is not among those of the training rows, or the "
            f"declared ones; {nearest(intent, intents)}"
        )
    label = 0 if intent is None else intents[intent]
    return TaggedRow(" ".join(words), None, label, tuple(tags[tag] for tag in row_tags))


def _read_list(values: Mapping[str, object], column: str, origin: str) -> list[str]:
    value = values.get(column)
    if isinstance(value, str):
        if (text := value.strip())[:1] == "[" and text[-1:] == "]" and text[1:2] in ("'", '"'):
            raise ColumnError(
                origin,
                column,
                f"holds a list that was written as one text, {text[:40]}; write it as a list of "
                "JSON, or its parts with blanks between them",
            )
        return value.split()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        numbers = isinstance(value, list | tuple) and all(type(item) is int for item in value)
        why = "; numbers have no names in this file, so write the names of the tags"
        raise ColumnError(
            origin,
            column,
            "must be a list of texts, or one text with blanks between them, got "
            f"{brief(value)}{why if numbers and value else ''}",
        )
    return [str(item) for item in value]


def _check_tags(tags: Sequence[str], origin: str) -> None:
    """Refuse what is no BIO tag, and an I tag that does not go on a span of its type."""
    for number, (before, tag) in enumerate(pairwise(["O", *tags]), start=1):
        if tag == "O":
            continue
        if tag[:2] not in ("B-", "I-") or not tag[2:].strip():
            raise InputError(
                f"{origin}: tag {number} is {tag[:40]!r}, expected O, B-type or I-type"
            )
        if tag[0] == "I" and before[2:] != tag[2:]:
            where = f"after {before!r}" if number > 1 else "at the first word"
            raise InputError(
                f"{origin}: tag {number} is {tag!r} {where}; a span begins with 'B-{tag[2:]}' "
                "(IOB2)"
            )
