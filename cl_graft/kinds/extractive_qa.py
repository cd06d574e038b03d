"""Extractive question answering: the part of a passage that answers a question.

A long passage is read in overlapping windows. Targets have shape (m, 3): the columns of the first
and the last token of the answer in the window, 0 and 0 where the window does not hold it, and the
number of the window, by which the scorer finds its passage.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError, brief
from cl_graft.kinds.kind import Kind, Metadata, register_kind
from cl_graft.kinds.rows import Answer, EncodedRows, Row, Span, read_text_value
from cl_graft.kinds.text_encoding import Encoding, pad_inputs, require_fast
from cl_graft.kinds.text_task import TextTask
from cl_graft.metrics.task_score import METRICS, Scorer
from cl_graft.models import TaskModel
from cl_graft.models.heads import ABSENT, SpanHead

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


_LONGEST_ANSWER = 30
"""Tokens of the longest answer that is looked for, as in SQuAD's baselines; see `_longest`."""

_BATCH = 64


@dataclass(frozen=True, slots=True)
class QuestionRow(Row):
    """A question, a passage, and its right answers, of which the first one trains.

    `answers` are texts with the places of their first characters.
    """

    answers: tuple[tuple[str, int], ...] = ()

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        return [self.text, self.text_pair, [list(answer) for answer in self.answers]]


@register_kind
class ExtractiveQA(Kind):
    """The part of a passage that answers a question."""

    name = "extractive_qa"
    title = "extractive QA"
    metrics = ("answer_f1", "exact_match")
    class_axis = False
    head_tensor = "ends.weight"
    columns: ClassVar = {
        "question": ("question",),
        "context": ("context", "passage"),
        "answers": ("answers", "answer"),
    }
    target_column = "answers"

    def check(self, task: TextTask) -> None:
        """Check that there are no label names, and that every row has an answer at its place."""
        if task.label_names:
            raise InputError(
                f"task {task.name!r} answers with parts of passages, so it has no label names; got "
                f"{list(task.label_names)}"
            )
        for origin, row in task.placed_rows():
            if not isinstance(row, QuestionRow) or row.text_pair is None or not row.answers:
                raise InputError(f"{origin} lacks a passage or an answer")
            _check_answers(row.text_pair, row.answers, origin)

    def describe_entry(self, metadata: Metadata) -> str:
        """Return what an entry answers."""
        return "part of a passage"

    def count_outputs(self, task: TextTask) -> int:
        """Return 2: a start and an end."""
        return 2

    def read(self, values: Mapping[str, object], origin: str) -> object:
        """Return the row; answers are a list of ``{"text", "start"}``, or as SQuAD has them."""
        question, passage = (
            read_text_value(values, name, origin) for name in ("question", "context")
        )
        answers = _read_answers(values.get("answers"), origin)
        _check_answers(passage, answers, origin)
        return QuestionRow(question, passage, 0, answers)

    def encode(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode each question with each window of its passage.

        Windows overlap by a third of `max_length`, or by less where that leaves little room. A
        question has half of `max_length` at most; what is longer is cut. Rows whose first answer is
        whole in no window count as cut, too. `places` hold the characters of each token in the
        passage, None for tokens of no passage.
        """
        tokenizer, max_length = encoding.tokenizer, encoding.max_length
        require_fast(tokenizer, "extractive QA needs")
        questions, cut = _shorten([row.text for row in rows], tokenizer, max_length // 2)
        least = max_length - max_length // 2 - tokenizer.num_special_tokens_to_add(pair=True)
        if least < 1:
            raise InputError(
                f"{max_length} tokens leave no room for a passage beside its question; raise "
                "max_length"
            )
        batch: Any = tokenizer(
            questions,
            [row.text_pair for row in rows],
            truncation="only_second",
            max_length=max_length,
            stride=min(max_length // 3, least // 2 + least // 4),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            split_special_tokens=True,
        )
        numbers: list[int] = list(batch["overflow_to_sample_mapping"])
        types = batch.get("token_type_ids")
        encoded, places, targets, whole = [], [], [], set[int]()
        for window, number in enumerate(numbers):
            ids, parts = batch["input_ids"][window], batch.sequence_ids(window)
            second = types[window] if types else [part == 1 for part in parts]
            encoded.append((ids, [2 if after else 1 for after in second]))
            characters = tuple(
                pair if part == 1 else None
                for pair, part in zip(batch["offset_mapping"][window], parts, strict=True)
            )
            places.append(characters)
            answers = rows[number].answers
            tokens = _find_tokens(characters, answers[0]) if answers else (0, 0)
            targets.append((*tokens, encoding.first + window))
            if tokens[0]:
                whole.add(number)
        cut |= {number for number, row in enumerate(rows) if row.answers} - whole
        return EncodedRows(
            pad_inputs(encoded, tokenizer, max_length),
            torch.tensor(targets, dtype=torch.int64).reshape(-1, 3),
            torch.tensor(numbers, dtype=torch.int64),
            len(cut),
            tuple(places),
        )

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make a linear head of two outputs on the tokens."""
        return SpanHead(model.hidden_size, seed=seed)

    def scorer(self, task: TextTask, encoded: Mapping[str, EncodedRows]) -> Scorer:
        """Return what finds the best span of each passage and compares texts."""
        passages: list[QuestionRow] = []
        windows: list[tuple[int, tuple[Any, ...]]] = []
        for split, rows in (("train", task.train), ("valid", task.dev), ("test", task.test)):
            part = encoded[split]
            for number, places in zip(part.numbers.tolist(), part.places or (), strict=True):
                windows.append((len(passages) + number, places))
            passages += [row for row in rows if isinstance(row, QuestionRow)]
        longest = _longest(encoded["train"].targets)
        return _AnswerScorer(task.metric, tuple(passages), tuple(windows), longest)

    def metadata_of_targets(self, targets: Tensor) -> dict[str, Any]:
        """Return the tokens of the longest answer, where it is longer than what is usual."""
        longest = _longest(targets)
        return {"longest_answer": longest} if longest > _LONGEST_ANSWER else {}

    def row(self, text: str, pair: str | None, metadata: Metadata) -> Row:
        """Return the row of a question and a passage."""
        if pair is None:
            raise InputError("extractive QA takes a question and a passage, got one text")
        return QuestionRow(text, pair, 0)

    def answer(
        self, outputs: Tensor, encoded: EncodedRows, rows: Sequence[Row], metadata: Metadata
    ) -> list[Answer]:
        """Return the best span of all windows of each passage."""
        windows = list(zip(encoded.numbers.tolist(), encoded.places or (), strict=True))
        spans = _choose_spans(outputs, windows, metadata.get("longest_answer", _LONGEST_ANSWER))
        answers = []
        for number, row in enumerate(rows):
            start, stop = spans.get(number, (0, 0))
            text = _cut(row.text_pair, start, stop)
            start += len(text) - len(text.lstrip())  # a token may hold the blank before it
            text = text.strip()
            answers.append(Answer(text, {}, spans=(Span(start, start + len(text), "", text),)))
        return answers


@dataclass(frozen=True, eq=False)
class _AnswerScorer:
    """Score of spans in passages, the rows of all splits; windows have row and characters."""

    name: str
    passages: tuple[QuestionRow, ...]
    windows: tuple[tuple[int, tuple[Any, ...]], ...]
    longest: int

    def compare(
        self, outputs: Tensor, targets: Tensor, *, most: int | None = None
    ) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return question, answer and right answers of each row, or the `most` first ones."""
        windows = [self.windows[number] for number in targets[:, 2].tolist()]
        spans = _choose_spans(outputs, windows, self.longest)
        rows = []
        for number in sorted({number for number, _ in windows})[:most]:
            row = self.passages[number]
            said = _cut(row.text_pair, *spans.get(number, (0, 0)))
            rows.append((row.text, said, tuple(text for text, _ in row.answers)))
        return rows

    def references(self, targets: Tensor) -> object:
        """Return the passages of the windows, and their right answers."""
        numbers = dict.fromkeys(self.windows[number][0] for number in targets[:, 2].tolist())
        rows = [self.passages[number] for number in numbers]
        return [[row.text_pair, [text for text, _ in row.answers]] for row in rows]

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the score; arguments as for `compare`."""
        _, texts, right = zip(*self.compare(outputs, targets), strict=True)
        return METRICS.find(self.name).compute(texts, right)


def find_best_spans(outputs: Tensor, *, longest: int = _LONGEST_ANSWER) -> tuple[Tensor, Tensor]:
    """Return each window's largest sum of start and end logit, and the columns of both, (m, 2).

    The first token and those that are absent are no part of a span; without one the sum is −∞.
    """
    length = outputs.shape[-1]
    start = torch.arange(length)[:, None]
    allowed = (start <= start.T) & (start + longest > start.T) & (start > 0)
    best, columns = [], []
    for part in outputs.float().split(_BATCH):
        starts, ends = part.unbind(1)
        absent = starts <= ABSENT
        sums = starts[:, :, None] + ends[:, None, :]
        refused = ~allowed | absent[:, :, None] | absent[:, None, :]
        value, flat = sums.masked_fill(refused, -torch.inf).flatten(1).max(1)
        best.append(value)
        columns.append(torch.stack([flat // length, flat % length], dim=1))
    return torch.cat(best), torch.cat(columns)


def _longest(targets: Tensor) -> int:
    """Return how many tokens an answer may have: as many as the longest one of training."""
    return max([_LONGEST_ANSWER, *(targets[:, 1] - targets[:, 0] + 1).tolist()])


def _choose_spans(
    outputs: Tensor, windows: Sequence[tuple[int, tuple[Any, ...]]], longest: int
) -> dict[int, tuple[int, int]]:
    outputs = outputs.clone()
    for number, (_, places) in enumerate(windows):
        # Special tokens in the passage's segment are no part of it.
        outside = [column for column, pair in enumerate(places) if pair is None]
        outputs[number, :, outside] = ABSENT
    sums, columns = find_best_spans(outputs, longest=longest)
    best: dict[int, float] = {}
    spans: dict[int, tuple[int, int]] = {}
    for (number, places), value, (start, stop) in zip(
        windows, sums.tolist(), columns.tolist(), strict=True
    ):
        if value > best.get(number, -float("inf")):
            best[number] = value
            spans[number] = (places[start][0], places[stop][1])
    return spans


def _cut(passage: str | None, start: int, stop: int) -> str:
    """Cut out a span with the marks on its last letter, which a tokenizer may drop."""
    whole = passage or ""
    while start < stop < len(whole) and unicodedata.category(whole[stop])[0] == "M":
        stop += 1
    return whole[start:stop]


def _find_tokens(characters: Sequence[Any], answer: tuple[str, int]) -> tuple[int, int]:
    text, start = answer
    stop = start + len(text)
    inside = [
        column
        for column, pair in enumerate(characters)
        if pair is not None and pair[0] < stop and pair[1] > start
    ]
    if not inside:
        return 0, 0
    known = [pair for pair in characters if pair is not None]
    before, behind = text[: max(0, known[0][0] - start)], text[max(0, known[-1][1] - start) :]
    # Tokens hold no blanks, and tokenizers drop marks and invisible characters.
    if any(unicodedata.category(char)[0] not in "CMZ" for char in before + behind):
        return 0, 0
    return inside[0], inside[-1]


def _shorten(
    questions: Sequence[str], tokenizer: Tokenizer, most: int
) -> tuple[list[str], set[int]]:
    batch: Any = tokenizer(
        list(questions), add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    offsets = batch["offset_mapping"]
    stops = [pairs[most - 1][1] if len(pairs) > most else None for pairs in offsets]
    shortened = [question[:stop] for question, stop in zip(questions, stops, strict=True)]
    return shortened, {number for number, stop in enumerate(stops) if stop is not None}


def _read_answers(value: object, origin: str) -> tuple[tuple[str, int], ...]:
    """Read ``[{"text", "start"}, …]``, or SQuAD's ``{"text": […], "answer_start": […]}``."""
    pairs: list[Any] = []
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list):
        pairs = [
            (each.get("text"), each.get("start", each.get("answer_start")))
            if isinstance(each, Mapping)
            else (None, None)
            for each in value
        ]
    answers = [
        (text, start)
        for text, start in pairs
        if isinstance(text, str) and text.strip() and type(start) is int and start >= 0
    ]
    if not answers or len(answers) < len(pairs):
        raise InputError(
            f"{origin}: answers must be a list of texts with the places where they start, "
            f'[{{"text": …, "start": 0}}] in JSON, at least one (questions without an answer are '
            f"not supported), got {brief(value)}"
        )
    return tuple(answers)


def _check_answers(passage: str, answers: Sequence[tuple[str, int]], origin: str) -> None:
    for text, start in answers:
        if passage[start : start + len(text)] != text:
            starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", passage)]
            nearest = min(starts, key=lambda begin: abs(begin - start), default=None)
            begins = f"it begins at {nearest}, counted in characters"
            where = "the passage does not hold it" if nearest is None else begins
            raise InputError(
                f"{origin}: the answer {text[:60]!r} is not at character {start} of the passage: "
                f"{where}"
            )
