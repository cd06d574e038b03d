"""Input texts of a bank: from arguments, lines, and files whose rows may name their tasks.

Every text keeps its file and line, so that an error can name them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import find_texts, require_text
from cl_graft.data.record_files import (
    SUFFIXES,
    Columns,
    Record,
    RecordFile,
    explain_unread_kind,
    parse_records,
    read_records,
    strip_suffix,
)
from cl_graft.data.text_files import Reading, decode, find_fault, find_lines, read_text
from cl_graft.errors import InputError
from cl_graft.grafts.bank import GraftBank, find_entry
from cl_graft.kinds.messages import Message, read_chat
from cl_graft.kinds.tagging import Tagging
from cl_graft.kinds.text2text import Text2Text

__all__ = [
    "KINDS",
    "TASK",
    "InputText",
    "NoTask",
    "check_texts",
    "drop_instructions",
    "name_texts",
    "parse_texts",
    "read_texts",
]

KINDS = ("txt", "csv", "tsv", "jsonl")
"""Formats of a stream of texts that has no file name."""

TASK = "task"
"""Name of the column that holds the task of each row."""


_INSTRUCTIONS = Text2Text.optional["instruction"]

_CHATS = Text2Text.other_columns[0]["messages"]
"""Names of a column that holds the chat messages of a row."""

_WORDS = Tagging.columns["tokens"]
"""Names of the column that holds the words of a row as a list."""


class NoTask(InputError):
    """No task was named for a text."""


@dataclass(frozen=True)
class InputText:
    """A text with the task that answers it.

    Attributes:
        text: Text, or the first of a pair.
        pair: Second text, for tasks on pairs.
        task: Name of the task, or position of an entry.
        place: Origin of the text, such as ``"tickets.csv:3"``.
        instructed: Whether the second text is the instruction of a row of text to text.
        messages: Chat messages, of which `text` is the last; empty where a text stands alone.
    """

    text: str
    pair: str | None
    task: str | int
    place: str
    instructed: bool = False
    messages: tuple[Message, ...] = ()


def name_texts(
    texts: Sequence[str], *, task: str | None, pairs: Sequence[str] = ()
) -> list[InputText]:
    """Return typed texts with their task.

    Args:
        texts: The texts.
        task: The task that answers them.
        pairs: Their second texts; none for a task on single texts.

    Raises:
        InputError: If no task is named, or some texts have a second one and others none.

    Examples:
        >>> name_texts(["Fine food."], task="sentiment")[0].text
        'Fine food.'
    """
    if pairs and len(pairs) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(pairs)} second texts do not pair up")
    return [
        InputText(text, pairs[number] if pairs else None, _require_task(task), f"text {number + 1}")
        for number, text in enumerate(texts)
    ]


def read_texts(
    path: Path | str, *, task: str | None = None, columns: Columns | None = None
) -> list[InputText]:
    """Read texts from a file: each line of a `.txt`, else each row of a table.

    A row may hold a list of words, `tokens`, in place of a text: they are joined by blanks. Or it
    holds chat `messages`, whose last one is to be answered; an answer behind it is left out.

    Args:
        path: The file.
        task: The task that answers them; None lets the column `task` say it, row by row.
        columns: Columns of the texts; those that are not named are found by their usual names.

    Raises:
        InputError: With file and line, if something is wrong with it.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: a folder; give a file of texts")
    if path.name.lower().endswith((".txt", ".txt.gz")):
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
        bad = BadRows()
        text = read_text(path, Reading(), notes=bad.notes)
        bad.warn()
        return _from_lines(text, str(path), task)
    if path.is_file() and strip_suffix(path.name) is None:
        raise InputError(explain_unread_kind(path, (".txt", *SUFFIXES)))
    bad = BadRows()
    records = read_records(path, reading=Reading(labelled=False), bad_rows=bad)
    bad.warn()
    return _from_records(records, task, columns or Columns())


def parse_texts(
    data: bytes,
    kind: str,
    *,
    place: str = "stdin",
    task: str | None = None,
    columns: Columns | None = None,
) -> list[InputText]:
    r"""Read texts from a stream without a file name.

    Args:
        data: All of it, UTF-8.
        kind: One of `KINDS`.
        place: Name of the stream in messages.
        task: As in `read_texts`.
        columns: As in `read_texts`.

    Raises:
        InputError: As `read_texts`, or if the kind is unknown.

    Examples:
        >>> found = parse_texts(b"text,task\nFine food.,sentiment\n", "csv")
        >>> found[0].text, found[0].task
        ('Fine food.', 'sentiment')
    """
    if kind not in KINDS:
        raise InputError(f"unknown format {kind!r} of {place}: expected one of {', '.join(KINDS)}")
    text = decode(data, place)
    if kind == "txt":
        return _from_lines(text, place, task)
    return _from_records(parse_records(text, kind, place=Path(place)), task, columns or Columns())


def drop_instructions(bank: GraftBank, texts: Sequence[InputText]) -> list[InputText]:
    """Return texts without the instructions of rows whose tasks hold one for all their rows."""
    pairs = {entry.task: entry.metadata.get("pair") for entry in bank.entries}
    return [
        replace(one, pair=None) if one.instructed and pairs.get(str(one.task)) is False else one
        for one in texts
    ]


def check_texts(bank: GraftBank, texts: Sequence[InputText]) -> None:
    """Refuse texts that a bank cannot answer.

    Raises:
        InputError: With the text's place, if the bank has no such task, the task is on pairs and
            the text is single or the other way round, the text is empty, or messages are asked of a
            task that was not learned from messages.
    """
    for one in texts:
        try:
            entry = bank.entries[find_entry(bank, one.task)]
        except InputError as error:
            raise InputError(f"{one.place}: {error}") from None
        wanted = entry.metadata.get("pair")
        if wanted is not None and wanted != (one.pair is not None):
            raise InputError(
                f"{one.place}: task {entry.task!r} answers "
                f"{'pairs of texts, got one text' if wanted else 'single texts, got a pair'}"
            )
        if one.messages and entry.metadata.get("chat") is None:
            raise InputError(f"{one.place}: task {entry.task!r} answers texts, got chat messages")
        for text in (one.text, one.pair, *(own.content for own in one.messages)):
            if text is not None and (fault := find_fault(text)):
                raise InputError(f"{one.place}: the text {fault}")


def _from_lines(text: str, place: str, task: str | None) -> list[InputText]:
    """Take each line that is not empty; a tab parts the two texts of a pair."""
    found: list[InputText] = []
    for number, line in enumerate(find_lines(text), start=1):
        own = line[0].rstrip("\r\n")
        if own.strip():
            first, tab, second = own.partition("\t")
            found.append(
                InputText(first, second if tab else None, _require_task(task), f"{place}:{number}")
            )
    if not found:
        raise InputError(f"{place}: there is no text")
    return found


def _from_records(file: RecordFile, task: str | None, columns: Columns) -> list[InputText]:
    """Take what each row asks: a text, two texts, words, or chat messages."""
    if task is None and TASK not in file.columns:
        raise NoTask(
            f"{file.place}: no task is named: give --task, or a column {TASK!r} with a task's name "
            "in every row"
        )
    words = None if columns.text else _find(file, _WORDS)
    chats = [None if columns.text else _find_chat(record) for record in file.records]
    others = [
        record
        for record, chat in zip(file.records, chats, strict=True)
        if chat is None and (words is None or _is_empty(record.values.get(words)))
    ]
    text, pair = _find_texts(file, columns, others[0]) if others else (None, None)
    found: list[InputText] = []
    for record, chat in zip(file.records, chats, strict=True):
        instructed = False
        task_name = task or _text(record, TASK) or _refuse_row(record)
        if chat is not None:
            messages = read_chat(chat, record.place)
            last = messages[-1].content
            found.append(InputText(last, None, task_name, record.place, messages=messages))
            continue
        first = _join_words(record, words)
        # A second text beside words belongs to rows of other tasks, unless its column was named.
        second = _text(record, pair) if first and pair and columns.text_pair else None
        if not first and text:
            own = (text, pair)
            if _is_empty(record.values.get(text)):
                own = _find_own(file, record, columns) or own
            first, second = (_text(record, column) if column else None for column in own)
            instructed = own[1] in _INSTRUCTIONS and own[1] != columns.text_pair
        found.append(InputText(first or "", second, task_name, record.place, instructed))
    return found


def _find_texts(file: RecordFile, columns: Columns, record: Record) -> tuple[str, str | None]:
    """Return the columns of the text and the second one: as `find_texts`, or of text to text.

    Raises:
        InputError: If there are none. In a file of chat messages it names the record without.
    """
    try:
        return find_texts(file, columns)
    except InputError:
        usual = (Text2Text.columns["input"], _INSTRUCTIONS)
        text, pair = (_find(file, names) for names in usual)
        if text is None or columns.text is not None:
            chats = _find(file, _CHATS)
            if chats is not None and columns.text is None:
                read_chat(record.values.get(chats), record.place)
            raise
        return text, columns.text_pair or pair


def _find(file: RecordFile, names: Sequence[str]) -> str | None:
    """Return the first of some names that is a column of a file."""
    return next((name for name in names if name in file.columns), None)


def _find_chat(record: Record) -> object:
    """Return the chat messages of a row; None where its columns of such names hold none.

    They may hold something else where the row has a text: a number, or a text that is no list.
    """
    held = [record.values.get(name) for name in _CHATS]
    lists = (
        value
        for value in held
        if isinstance(value, list | Mapping)
        or (isinstance(value, str) and value.lstrip().startswith("["))
    )
    return next(lists, None)


def _find_own(file: RecordFile, record: Record, columns: Columns) -> tuple[str, str | None] | None:
    """Find the text columns of a row that holds nothing in those of the file."""
    filled = tuple(name for name, value in record.values.items() if not _is_empty(value))
    try:
        return _find_texts(replace(file, columns=filled, records=(record,)), columns, record)
    except InputError:
        return None


def _join_words(record: Record, column: str | None) -> str | None:
    """Return the words of a record with blanks between them; None where it has none."""
    value = record.values.get(column) if column else None
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InputError(f"{record.place}: column {column!r} must be a list of words")
    for word in value:
        if word.split() != [word]:
            raise InputError(
                f"{record.place}: the word {word[:40]!r} of column {column!r} is empty or holds a "
                "blank"
            )
    return " ".join(value)


def _text(record: Record, column: str) -> str | None:
    """Return what a column holds; None where it is empty, as a second text may be."""
    value = record.values.get(column)
    if _is_empty(value):
        return None
    return require_text(record, column, value)


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or value == ""


def _refuse_row(record: Record) -> str:
    raise NoTask(f"{record.place}: column {TASK!r} is empty, and --task names no other")


def _require_task(task: str | None) -> str:
    if task is None:
        raise NoTask("say which task is to answer, with --task")
    return task
