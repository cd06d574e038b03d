"""Input texts of a bank: from arguments, lines, and files whose rows may name their tasks."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import check_named, find_texts, find_usual_texts, require_text
from cl_graft.data.kind_rows import fill_input
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
from cl_graft.data.text_files import Reading, decode_lines, find_fault, read_lines
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.grafts.bank import GraftBank, find_entries, find_entry
from cl_graft.kinds.messages import Message, read_chat
from cl_graft.kinds.tagging import Tagging
from cl_graft.kinds.text2text import Text2Text

KINDS = ("txt", "csv", "tsv", "jsonl")
"""Formats of a stream of texts that has no file name."""

TASK = "task"
"""Name of the column that holds the task of each row."""


_INSTRUCTIONS = Text2Text.optional["instruction"]

_CHATS = Text2Text.other_columns[0]["messages"]
"""Names of a column that holds the chat messages of a row."""

_WORDS = Tagging.columns["tokens"]  # names of the column that holds the words of a row as a list
_IDS = ("id", "ID", "_id", "idx", "guid", "uid", "uuid")
"""Usual names of the column that names the rows."""

_logger = logging.getLogger(__name__)


class NoTask(InputError):
    """No task was named for a text."""


@dataclass(frozen=True)
class InputText:
    """A text with the task that answers it.

    Attributes:
        text: Text, or the first of a pair.
        pair: Second text, for tasks on pairs.
        task: Name of the task, or position of an entry.
        origin: File and line of the text, such as ``"tickets.csv:3"``.
        instructed: Whether the second text is the instruction of a row of text to text.
        messages: Chat messages, of which `text` is the last; empty where a text stands alone.
        id: Name or number that the row has in its file; None where it has none.
    """

    text: str
    pair: str | None
    task: str | int
    origin: str
    instructed: bool = False
    messages: tuple[Message, ...] = ()
    id: object = None


def name_texts(
    texts: Sequence[str], *, task: str | None, pairs: Sequence[str] = ()
) -> list[InputText]:
    """Return typed texts, or pairs of them, with the task that answers them.

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
    path: Path | str,
    *,
    task: str | None = None,
    columns: Columns | None = None,
    id_column: str | None = None,
    bank: GraftBank | None = None,
) -> list[InputText]:
    """Read texts from a file: each line of a `.txt`, else each row of a table.

    A row may hold a list of words, `tokens`, which are joined by blanks, or chat `messages`, whose
    last one is to be answered.

    Args:
        path: The file.
        task: The task that answers them; None lets the column `task` say it, row by row.
        columns: Columns of the texts. Those that are not named are the ones with which the task was
            learned, or are found as `load_task` finds them.
        id_column: Column that names the rows; None takes one of a usual name, such as ``"id"``.
        bank: Bank whose tasks know the columns with which they were learned.

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
        lines = read_lines(path, Reading(), notes=bad.notes)
        bad.warn()
        return _from_lines(lines, str(path), task)
    if path.is_file() and strip_suffix(path.name) is None:
        raise InputError(explain_unread_kind(path, (".txt", *SUFFIXES)))
    bad = BadRows()
    records = read_records(path, reading=Reading(labelled=False), bad_rows=bad)
    bad.warn()
    return _from_records(records, task, columns or Columns(), id_column, bank)


def parse_texts(
    data: bytes,
    kind: str,
    *,
    origin: str = "stdin",
    task: str | None = None,
    columns: Columns | None = None,
    id_column: str | None = None,
    bank: GraftBank | None = None,
) -> list[InputText]:
    r"""Read texts, UTF-8, from a stream without a file name; `kind` is one of `KINDS`.

    Examples:
        >>> texts = parse_texts(b"text,task\nFine food.,sentiment\n", "csv")
        >>> texts[0].text, texts[0].task
        ('Fine food.', 'sentiment')
    """
    if kind not in KINDS:
        raise InputError(f"unknown format {kind!r} of {origin}: expected one of {', '.join(KINDS)}")
    lines = decode_lines(data, origin)
    if kind == "txt":
        return _from_lines(lines, origin, task)
    records = parse_records(lines, kind, path=Path(origin))
    return _from_records(records, task, columns or Columns(), id_column, bank)


def drop_instructions(bank: GraftBank, texts: Sequence[InputText]) -> list[InputText]:
    """Return texts without the instructions of rows whose tasks hold one for all their rows."""

    def has_no_pair(task: str) -> bool:
        positions = find_entries(bank, task)
        return bool(positions) and bank.entries[positions[-1]].metadata.get("pair") is False

    return [
        replace(text, pair=None) if text.instructed and has_no_pair(str(text.task)) else text
        for text in texts
    ]


def check_texts(bank: GraftBank, texts: Sequence[InputText]) -> None:
    """Refuse texts that their tasks in a bank cannot answer, with each text's origin."""
    for asked in texts:
        try:
            entry = bank.entries[find_entry(bank, asked.task)]
        except InputError as error:
            raise InputError(f"{asked.origin}: {error}") from None
        wanted = entry.metadata.get("pair")
        if wanted is not None and wanted != (asked.pair is not None):
            raise InputError(
                f"{asked.origin}: task {entry.task!r} answers "
                f"{'pairs of texts, got one text' if wanted else 'single texts, got a pair'}"
            )
        if asked.messages and entry.metadata.get("chat") is None:
            raise InputError(
                f"{asked.origin}: task {entry.task!r} answers texts, got chat messages"
            )
        for text in (asked.text, asked.pair, *(message.content for message in asked.messages)):
            if text is not None and (fault := find_fault(text)):
                raise InputError(f"{asked.origin}: the text {fault}")


def _from_lines(lines: Sequence[str], origin: str, task: str | None) -> list[InputText]:
    """Take each line that is not empty; a tab parts the two texts of a pair."""
    texts: list[InputText] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            first, tab, second = line.rstrip("\r\n").partition("\t")
            pair = second if tab else None
            texts.append(InputText(first, pair, _require_task(task), f"{origin}:{number}"))
    if not texts:
        raise InputError(f"{origin}: there is no text")
    return texts


def _from_records(
    file: RecordFile,
    task: str | None,
    columns: Columns,
    id_column: str | None,
    bank: GraftBank | None,
) -> list[InputText]:
    """Take what each row asks: a text, two texts, words, or chat messages."""
    if task is None and TASK not in file.columns:
        raise NoTask(
            f"{file.origin}: no task is named: give --task, or a column {TASK!r} with a task's "
            "name in every row"
        )
    if id_column is not None and id_column not in file.columns:
        raise InputError(
            f"{file.origin}: there is no column {id_column!r}; {nearest(id_column, file.columns)}"
        )
    id_column = id_column or file.find(_IDS)
    words = None if columns.text else file.find(_WORDS)
    recall = cache(partial(_recall_columns, bank))
    usual: tuple[str, str | None] | None = None
    texts: list[InputText] = []
    for record in file.records:
        if not (name := task or _text(record, TASK)):
            raise NoTask(f"{record.origin}: column {TASK!r} is empty, and --task names no other")
        row = InputText("", None, name, record.origin, id=record.values.get(id_column or ""))
        asked = _ask_itself(record, row, columns, words, recall(name))
        if asked is None:
            if usual is None:
                usual = _find_texts(file, columns, record, recall(name))
            names = usual
            if _is_empty(record.values.get(names[0])):
                filled = tuple(key for key, value in record.values.items() if not _is_empty(value))
                alone = replace(file, columns=filled, records=(record,))
                names = _find_usual(alone, columns) or names
            first, second = (_text(record, column) if column else None for column in names)
            instructed = names[1] in _INSTRUCTIONS and names[1] != columns.text_pair
            asked = replace(row, text=first or "", pair=second, instructed=instructed)
        texts.append(asked)
    return texts


def _recall_columns(bank: GraftBank | None, task: str) -> Columns:
    """Return the columns with which a task was learned; none where they are not known."""
    try:
        entry = bank.entries[find_entry(bank, task)] if bank is not None else None
    except InputError:
        return Columns()  # what is wrong with the task is said with the text's origin
    held = cast(Mapping[str, Any], entry.metadata.get("columns") or {}) if entry else {}
    inputs = tuple(held.get("inputs", ()))
    return Columns(text=held.get("text"), text_pair=held.get("text_pair"), inputs=inputs)


def _ask_itself(
    record: Record, row: InputText, columns: Columns, words: str | None, learned: Columns
) -> InputText | None:
    """Ask chat messages, the columns with which the task was learned, or words; None without."""
    if columns.text is None and (chat := _find_chat(record)) is not None:
        messages = read_chat(chat, record.origin)
        return replace(row, text=messages[-1].content, messages=messages)
    if columns.text is None and (text := fill_input(record, learned.inputs)) is not None:
        told = next((t for name in _INSTRUCTIONS if (t := _text(record, name))), None)
        return replace(row, text=text, pair=told, instructed=told is not None)
    if columns.text is None and not _is_empty(record.values.get(learned.text or "")):
        pair = columns.text_pair or learned.text_pair
        second = _text(record, pair) if pair else None
        return replace(row, text=_text(record, learned.text or "") or "", pair=second)
    if not (first := _join_words(record, words)):
        return None
    # A second text beside words belongs to rows of other tasks, unless its column was named.
    second = _text(record, columns.text_pair) if columns.text_pair else None
    return replace(row, text=first, pair=second)


def _find_texts(
    file: RecordFile, columns: Columns, record: Record, learned: Columns
) -> tuple[str, str | None]:
    """Return the columns of the text and the second one: of usual names, or by what they hold."""
    check_named(file, columns)
    if (usual := _find_usual(file, columns)) is not None:
        return usual
    chats = file.find(_CHATS)
    if chats is not None and columns.text is None:
        read_chat(record.values.get(chats), record.origin)
    if (first := next(filter(None, (learned.text, *learned.inputs)), None)) is not None:
        raise InputError(
            f"{record.origin}: there is no text in {first!r}, from which the task was learned; "
            f"name the column with text, one of {join_names(file.columns)}"
        )
    text, pair = find_texts(file, columns)
    _logger.warning("%s: the texts are taken from column %r, by what it holds", file.origin, text)
    return text, pair


def _find_usual(file: RecordFile, columns: Columns) -> tuple[str, str | None] | None:
    """Return the columns of texts that have usual names, also of text to text."""
    usual = find_usual_texts(file, columns)
    text, pair = (file.find(names) for names in (Text2Text.columns["input"], _INSTRUCTIONS))
    if usual is None and text is not None:
        return text, columns.text_pair or pair
    return usual


def _find_chat(record: Record) -> object:
    """Return the chat messages of a row; None where columns of such names hold others."""
    for value in map(record.values.get, _CHATS):
        is_list = isinstance(value, str) and value.lstrip().startswith("[")
        if is_list or isinstance(value, list | Mapping):
            return value
    return None


def _join_words(record: Record, column: str | None) -> str | None:
    """Return the words of a record with blanks between them; None where it has none."""
    value = record.values.get(column) if column else None
    if value is None or isinstance(value, str):
        return value
    words: list[str] = []
    for word in value if isinstance(value, list | tuple) else [None]:
        words.append(word if isinstance(word, str) else "")
        if words[-1].split() != [word]:
            raise InputError(
                f"{record.origin}: the word {word!r:.42} of column {column!r}, a list of words, is "
                "no text, is empty or holds a blank"
            )
    return " ".join(words)


def _text(record: Record, column: str) -> str | None:
    """Return what a column holds; None where it is empty, as a second text may be."""
    value = record.values.get(column)
    return None if _is_empty(value) else require_text(record, column, value)


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or value == ""


def _require_task(task: str | None) -> str:
    if task is None:
        raise NoTask("say which task is to answer, with --task")
    return task
