"""JSON objects in a text: one a line, or those of one list, each with its place.

Which of the two a text is, its first characters tell, whatever its file is called. Values inside of
records are found under a path with dots, too.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.text_files import MAX_LINE
from cl_graft.errors import InputError

_NOT_DECODED = re.compile("[\udc80-\udcff]")
_BLANKS = re.compile(r"[ \t\r\n]*")
_ROWS = re.compile(rb'\s*(\[|\{[ \t]*["}])')


def holds_objects(start: bytes) -> bool:
    """Whether a text that starts so may be a JSON list or JSON lines, in UTF-8 or UTF-16.

    One object over many lines is neither.
    """
    for mark in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        start = start.removeprefix(mark)
    return bool(_ROWS.match(start.replace(b"\0", b"")))


def read_json_objects(
    lines: Sequence[str], path: Path, bad: BadRows
) -> Iterator[tuple[dict[str, object], str]]:
    """Walk over the objects of a list or of lines, and their places."""
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("["):
        return _read_list("".join(lines), path)
    return _read_lines(lines, path, bad)


def add_paths(values: dict[str, object]) -> dict[str, object]:
    """Return values with those inside of records, too, as ``"review.body"``."""
    found = dict(values)
    left = [(f"{name}.", value) for name, value in values.items() if isinstance(value, Mapping)]
    while left:
        prefix, record = left.pop()
        for name, value in record.items():
            if isinstance(value, Mapping):
                left.append((f"{prefix}{name}.", value))
            else:
                found.setdefault(f"{prefix}{name}", value)
    return found


def _read_lines(
    lines: Sequence[str], path: Path, bad: BadRows
) -> Iterator[tuple[dict[str, object], str]]:
    for number, whole in enumerate(lines, start=1):
        line, place = whole.rstrip("\r\n"), f"{path}:{number}"
        if not line.strip():
            continue
        try:
            yield _read_line(line, place), place
        except InputError as fault:
            bad.leave_out(str(path), str(fault))


def _read_list(text: str, path: Path) -> Iterator[tuple[dict[str, object], str]]:
    """Walk over the objects of a list and their places, ``"file:line, item n"``."""
    at, line, number = _skip(text, 0), 1, 0
    seen = 0
    end = "]"
    while True:
        at = _skip(text, at + 1)
        line, seen = line + text.count("\n", seen, at), at
        place = f"{path}:{line}, item {number + 1}"
        if number == 0 and text[at : at + 1] == end:
            break
        values, at = _read_item(text, at, place)
        number += 1
        yield values, place
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            break
    if text[at : at + 1] != end or text[_skip(text, at + 1) :]:
        line += text.count("\n", seen, at)
        what = "more text" if at < len(text) else "the end of the file"
        raise InputError(
            f"{path}:{line}: after {number:,} items there is {what}, where the list should go on "
            "or end; the file was probably cut off, or written to twice"
        )


def refuse_damaged(text: str, place: str) -> None:
    """Refuse bytes of another encoding, which `read_lines` left as surrogates, and NUL."""
    if "\0" in text:
        raise InputError(f"{place}: there is a NUL byte; the file is damaged, or not text")
    if found := _NOT_DECODED.search(text):
        byte = ord(found[0]) - 0xDC00
        raise InputError(f"{place}: byte 0x{byte:02x} is not of the file's encoding")


def _skip(text: str, at: int) -> int:
    """Return where the blanks from an offset on end."""
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _read_item(text: str, at: int, place: str) -> tuple[dict[str, object], int]:
    """Read the object at an offset; returns it, and where it ends."""
    if text[at : at + 1] != "{":
        raise InputError(f"{place}: each item of the list must be an object, as in {{…}}")
    decoder = json.JSONDecoder(object_pairs_hook=partial(_refuse_doubled_names, place))
    try:
        values, end = decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: not valid JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise _make_error(error, place) from None
    refuse_damaged(text[at:end], place)
    return values, end


def _read_line(line: str, place: str) -> dict[str, object]:
    if len(line) > MAX_LINE:
        raise InputError(
            f"{place}: the line has {len(line):,} characters, the limit is {MAX_LINE:,}"
        )
    refuse_damaged(line, place)
    try:
        values = json.loads(line, object_pairs_hook=partial(_refuse_doubled_names, place))
    except json.JSONDecodeError as error:
        whole = line.strip() == "{"
        raise InputError(
            f"{place}: not valid JSON ({error.msg} at column {error.colno}); each line must hold "
            f"one JSON object{', and this is one document over many lines' if whole else ''}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _make_error(error, place) from None
    if not isinstance(values, dict):
        raise InputError(
            f"{place}: each line must hold one JSON object, got {type(values).__name__}"
        )
    return values


def _make_error(error: Exception, place: str) -> InputError:
    """Return an error of ours as it is; of others say that the JSON is beyond what Python reads."""
    if isinstance(error, InputError):
        return error
    return InputError(f"{place}: JSON that cannot be read ({str(error).split(';', 1)[0]})")


def _refuse_doubled_names(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InputError(f"{place}: the name {name!r} stands twice in one JSON object")
    return values
