"""One kind of input, good or bad, and what the command line must make of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Case", "csv", "document", "good", "jsonl", "rows"]

Make = Callable[[Path], object]
"""Writes the files of a case into a folder of data; the task is called `mine`."""


@dataclass(frozen=True)
class Case:
    """A kind of input.

    Attributes:
        group: What it is a kind of.
        name: What it is.
        make: Writes its files.
        says: Regular expressions that must match stderr, or also stdout if accepted.
        code: The exit code that it must have.
        arguments: Options of `compare` beside those of every case.
        command: The whole command instead, with `{data}`, `{model}` and `{out}` in it.
        left_out: Rows that must be counted as left out, by file name.
        data: What the results must say of the data, by a dotted name.
        full: Whether it takes too long for a quick look.
        nobody: Whether it is to be run without rights to files.
    """

    group: str
    name: str
    make: Make
    says: tuple[str, ...] = ()
    code: int = 2
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False
    nobody: bool = False


def rows(
    count: int = 40, label: Callable[[int], Any] = lambda n: ("no", "yes")[n % 2]
) -> list[Any]:
    """Return rows that nothing is wrong with."""
    return [{"text": f"this is text number {n}", "label": label(n)} for n in range(count)]


def jsonl(given: Sequence[Any] | None = None, *more: str, name: str = "mine.jsonl") -> Make:
    """Write JSON lines: objects, then lines as they are."""
    own = rows() if given is None else given
    lines = [json.dumps(row, ensure_ascii=False) for row in own]
    return document("\n".join([*lines, *more]) + "\n", name=name)


def csv(*more: str, header: str = "text,label", name: str = "mine.csv", end: str = "\n") -> Make:
    """Write a table of good rows, then lines as they are."""
    lines = [header, *(f"{row['text']},{row['label']}" for row in rows()), *more]
    return document(end.join(lines) + end, name=name)


def document(content: str | bytes, *, name: str) -> Make:
    """Write a file."""

    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)

    return make


def good(folder: Path) -> None:
    """Write data that nothing is wrong with."""
    csv()(folder)
