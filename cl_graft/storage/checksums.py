"""Checksums: the SHA-256 of a file, stored in it at a fixed place near its beginning.

The SHA-256 is of the whole file with the checksum's own 64 digits written as zeros, so it covers
every bit, and a reader in any language needs no more than a SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from cl_graft.errors import DamagedFile

__all__ = [
    "BLANK",
    "JSON_START",
    "checksum",
    "dump_with_checksum",
    "has_right_checksum",
    "load_with_checksum",
]

BLANK = "0" * 64
"""Digits in place of the checksum while it is computed."""

JSON_START = b'{"checksum": "'
"""Beginning of every JSON file with a checksum; the checksum follows."""

_DIGITS = re.compile(rb"[0-9a-f]{64}")


def checksum(data: bytes, *, start: bytes, at: int = 0) -> str:
    """Return the SHA-256 of a file whose checksum stands behind `start`, which begins at `at`."""
    place = at + len(start)
    whole = memoryview(data)
    digest = hashlib.sha256(whole[:place])
    digest.update(BLANK.encode())
    digest.update(whole[place + len(BLANK) :])
    return digest.hexdigest()


def has_right_checksum(data: bytes, *, start: bytes, at: int = 0) -> bool:
    """Tell whether a file has a checksum behind `start` that matches its content."""
    place = at + len(start)
    if data[at:place] != start or not _DIGITS.match(data, place):
        return False
    return data[place : place + len(BLANK)].decode() == checksum(data, start=start, at=at)


def dump_with_checksum(values: Mapping[str, Any]) -> bytes:
    """Return a JSON object as text for people, its checksum first.

    Args:
        values: The object, not empty, without a ``"checksum"``.
    """
    lines = json.dumps(values, indent=1).removeprefix("{\n")
    blank = f'{JSON_START.decode()}{BLANK}",\n{lines}\n'.encode()
    digits = checksum(blank, start=JSON_START)
    return blank.replace(BLANK.encode(), digits.encode(), 1)


def load_with_checksum(data: bytes, *, name: str) -> dict[str, Any]:
    """Read what `dump_with_checksum` wrote, without its checksum.

    A file from before there were checksums, with neither ``"checksum"`` nor ``"format"``, is read
    as it is.

    Args:
        data: The file's bytes.
        name: Name of the file in messages.

    Raises:
        DamagedFile: If the file has a checksum and is cut short or altered.
        ValueError: If it is no JSON object.
    """
    try:
        values = json.loads(data)
        if not isinstance(values, dict):
            raise ValueError(f"expected a JSON object, got {type(values).__name__}")
    except (ValueError, RecursionError) as error:
        if b'"checksum"' in data or b'"format"' in data:
            raise DamagedFile(f"{name} is cut short or altered: {error}") from None
        raise ValueError(str(error)) from None
    if "checksum" not in values and "format" not in values:
        return values
    if not has_right_checksum(data, start=JSON_START):
        raise DamagedFile(f"{name} is altered: its content does not match its checksum")
    return {key: value for key, value in values.items() if key != "checksum"}
