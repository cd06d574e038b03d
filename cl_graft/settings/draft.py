"""A first config for a folder of data, with the tasks, columns and labels found there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from cl_graft.data import TaskSettings, TextTask
from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import is_usual
from cl_graft.data.load import make_task
from cl_graft.data.readers import DataFiles, has_rows, read_files
from cl_graft.data.record_files import Columns, explain_unread_kind, strip_suffix
from cl_graft.data.task_place import TaskPlace, find_place
from cl_graft.data.text_files import Reading
from cl_graft.data.yaml_files import read_yaml, write_text
from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
from cl_graft.kinds.text2text import AnswerRow, Text2Text
from cl_graft.kinds.text_task import check_task_name
from cl_graft.runtime.settings import list_fields
from cl_graft.settings import config_from
from cl_graft.settings.data_report import source_notes
from cl_graft.settings.parts import PARTS

_SHOTS = 512
_LENGTHS = (16, 32, 64, 128, 256)
_TOKENS_A_WORD = 1.4
_FRAME = 4
"""Words that stand for what a template puts around a text, or a chat template around a message."""
_WRITER = "smollm2"
"""Model of tasks that are answered with text."""
_SHOWN = 8
_BAD_SHARE = 0.5
"""Largest share of a task's rows, and of its training rows, that a draft leaves out."""
_SHOWN_DEFAULTS = {
    "fine_tuning": ("steps", "batch_size"),
    "grafting": ("density", "localizer", "mode"),
}


@dataclass(frozen=True)
class FoundTask:
    """A task in a folder of data.

    `guessed` says that columns were chosen by what they hold; `labels` and `rows` are numbers of
    rows; `words` is the largest number of words in 95 % of the rows, with what a template puts
    around them.
    """

    name: str
    columns: Columns
    guessed: bool
    kind: str
    asks: str
    labels: Mapping[str, int]
    rows: Mapping[str, int]
    words: int
    notes: Sequence[str]
    skipped: int


@dataclass(frozen=True)
class Draft:
    """A config, as YAML with comments; the tasks of its folder; and why other files are none."""

    text: str
    tasks: tuple[FoundTask, ...]
    left_out: Mapping[str, str]


def draft_config(
    data: Path | str, *, columns: Columns | None = None, called: str = "stream.yaml"
) -> Draft:
    """Look through a folder of data and write the config that compares strategies on it.

    A task is a file of rows, or a folder with a train file.
    """
    data = Path(data)
    if not data.exists():
        raise InputError(f"there is no folder {data}")
    tasks: list[FoundTask] = []
    left_out: dict[str, str] = {}
    for name, path in _candidates(data):
        try:
            if any(task.name == name for task in tasks):
                raise InputError(f"{path}: another task is called {name!r}, too")
            tasks.append(_find(check_task_name(name), path, data, columns or Columns()))
        except InputError as error:
            left_out[path.name] = str(error)
    if not tasks:
        reasons = "; ".join(left_out.values()) or "it is empty"
        raise InputError(f"{data}: nothing there is a task: {reasons}")
    text = "\n".join([*_lines(data, tasks, left_out, called), ""])
    config_from(read_yaml(text, origin="the draft"), source="the draft")
    return Draft(text, tuple(tasks), left_out)


def _candidates(data: Path) -> Iterator[tuple[str, Path]]:
    if has_rows(data) or data.is_file():
        stem = data.resolve().name
        yield (strip_suffix(stem) or stem), data
        return
    if data.is_dir():
        for path in sorted(data.iterdir()):
            if not path.name.startswith("."):
                yield (path.name if path.is_dir() else strip_suffix(path.name) or path.name), path


def _find(name: str, path: Path, data: Path, asked: Columns) -> FoundTask:
    if path.is_dir() and not has_rows(path):
        raise InputError(f"{path}: a folder without a train file")
    if not has_rows(path):
        raise InputError(explain_unread_kind(path))
    task_place = find_place(name, data)
    files = read_files(task_place.source, Reading(), BadRows("skip"))
    file = files.records["train"]
    named = {key: value for key, value in asdict(asked).items() if value in file.columns}
    task = _load(task_place, files, named)
    left_out = _count_left_out(task)
    _refuse_mostly_bad(task, left_out, file.origin)
    text, text_pair, label = cast(Sequence[str | None], task.source["columns"])
    words = sorted(map(_count_words, task.train))
    counts = Counter(task.class_names[int(row.label)] for row in task.train if task.class_names)
    return FoundTask(
        name=name,
        columns=Columns(text=text, text_pair=text_pair, label=label),
        guessed=not all(
            is_usual(column) for column in (text, label) if column and column not in named.values()
        ),
        kind=task.kind,
        asks=task.own_kind.describe(task),
        labels={label_name: counts[label_name] for label_name in task.class_names},
        rows={split: len(rows) for split, rows in task.splits.items()},
        words=words[min(len(words) - 1, round(0.95 * len(words)))],
        notes=source_notes(task.source),
        skipped=sum(left_out.values()),
    )


def _load(task_place: TaskPlace, files: DataFiles, named: Mapping[str, Any]) -> TextTask:
    """Make a task of classes, or of numbers if these fit more rows."""

    def make(**settings: Any) -> TextTask:
        settings = {"on_bad_row": "skip", **named, **settings}
        return make_task(task_place, files, TaskSettings(**settings))

    fault: InputError | None = None
    task: TextTask | None = None
    try:
        task = make()
    except InputError as error:
        fault = error
    left_out = sum(_count_left_out(task).values()) if task else 1
    if left_out:
        with suppress(InputError):
            numbers = make(kind="regression")
            fewer = task is None or sum(_count_left_out(numbers).values()) < left_out
            labels = (row.label for rows in numbers.splits.values() for row in rows)
            # Of class ids it is said what is wrong with them as classes.
            if fewer and not all(float(label).is_integer() for label in labels):
                task = numbers
    if task is None:
        raise fault or InputError(f"{task_place.name}: no task")
    return task


def _refuse_mostly_bad(task: TextTask, left_out: Mapping[str, int], train: str) -> None:
    read = cast(Mapping[str, int], task.source["rows_read"])
    for left, used in (
        (sum(left_out.values()), sum(read.values())),
        (left_out.get(train, 0), read["train"]),
    ):
        if left > _BAD_SHARE * (left + used):
            files = cast(Mapping[str, Any], task.source["left_out"])
            first = next(iter(files.values()))["first"][0]
            raise InputError(f"{first} ({left:,} of {left + used:,} rows cannot be used)")


def _count_left_out(task: TextTask) -> dict[str, int]:
    files = cast(Mapping[str, Mapping[str, int]], task.source.get("left_out", {}))
    return {file: counts["rows"] for file, counts in files.items()}


def _count_words(row: Row) -> int:
    if not isinstance(row, AnswerRow):
        return len(f"{row.text} {row.text_pair or ''}".split())
    asked = [message.content for message in row.messages] or [row.text, row.text_pair or ""]
    texts = [*asked, row.targets[0]]
    return len(" ".join(texts).split()) + _FRAME * len(texts)


def _lines(
    data: Path, tasks: Sequence[FoundTask], left_out: Mapping[str, str], called: str
) -> Iterator[str]:
    longest = max(task.words for task in tasks)
    length = next((n for n in _LENGTHS if n >= _TOKENS_A_WORD * longest), _LENGTHS[-1])
    stream, model = list_fields(PARTS["stream"]), list_fields(PARTS["model"])
    writes = any(task.kind == Text2Text.name for task in tasks)
    yield "# What to learn, with what, and how; a setting that is not here has its default."
    yield f"# Use it: cl-graft compare {_plain(called)} --out first"
    yield ""
    yield "stream:"
    yield "  # The folder of the tasks, relative to where you call cl-graft."
    yield f"  data: {write_text(str(data))}"
    yield "  # The tasks in the order in which they are learned."
    yield "  tasks:"
    for task in tasks:
        yield f"    - {write_text(task.name)}"
    for name, reason in left_out.items():
        yield f"    # {_plain(name)} was left out: {_plain(reason)}"
    yield "  # The columns of texts and labels."
    yield "  task_settings:"
    for task in tasks:
        yield from _task_lines(task)
    yield f"  # {stream['shots'].description}"
    yield f"  shots: {_SHOTS}"
    yield f"  # Tokens per row; 95 % of the texts have at most {longest:,} words."
    yield f"  max_length: {length}"
    if skipped := sum(task.skipped for task in tasks):
        yield f"  # Rows that cannot be used, {skipped:,} here, are left out; error refuses them."
        yield "  on_bad_row: skip"
    yield ""
    yield "model:"
    yield f"  # {model['name'].description}"
    if writes:
        yield f"  name: {write_text(_WRITER)}"
        yield "  # Text is written by a causal_lm or a seq2seq_lm (T5, BART)."
        yield "  family: causal_lm"
    else:
        yield f"  name: {write_text(str(model['name'].default))}"
    yield ""
    yield "comparison:"
    yield "  # Others: cl-graft strategies"
    yield "  strategies: [grafting, naive, independent]"
    yield "  # Several seeds, such as [0, 1, 2], give intervals and significance."
    yield "  seeds: [0]"
    yield ""
    yield "# Further settings, with their defaults:"
    family = {"family": "causal_lm"} if writes else {}
    defaults = config_from({"stream": {"tasks": ["any"]}, "model": family}).values()
    for part, names in _SHOWN_DEFAULTS.items():
        yield f"# {part}:"
        for name in names:
            field = list_fields(PARTS[part])[name]
            yield f"#   {name}: {json.dumps(defaults[part][name])}  # {field.description}"


def _task_lines(task: FoundTask) -> Iterator[str]:
    rows = ", ".join(f"{split} {count:,}" for split, count in task.rows.items())
    shown = [f"{label} ({count:,})" for label, count in task.labels.items()]
    more = f", … ({len(shown)} in all)" if len(shown) > _SHOWN else ""
    yield f"    {write_text(task.name)}:"
    yield f"      # rows in the file: {rows}"
    if task.labels:
        yield f"      # labels in train: {_plain(', '.join(shown[:_SHOWN]))}{more}"
    else:
        yield f"      # {_plain(task.asks)}"
        yield f"      kind: {write_text(task.kind)}"
    if task.guessed:
        yield "      # These columns were guessed from what they hold: check them."
    for note in task.notes:
        yield f"      # {_plain(note)}"
    for key in ("text", "text_pair", "label"):
        if (column := getattr(task.columns, key)) is not None:
            yield f"      {key}: {write_text(column)}"
    if task.labels and all(label.isdecimal() for label in task.labels):
        names = ", ".join(f"name of {label}" for label in list(task.labels)[:_SHOWN])
        yield f"      # label_names: [{names}]"


def _plain(text: str) -> str:
    one_line = " ".join(text.split())
    return "".join(character if character.isprintable() else "?" for character in one_line)
