"""The lines of a text file: unpacked and decoded."""

from __future__ import annotations

import gzip
import io
import re
import unicodedata
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cl_graft.errors import InputError, nearest

MAX_CHARACTERS = 1_000_000
"""Largest number of characters of a text: a tokenizer would fill the memory with a longer one."""

_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")

_GUESSED = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r"),
    *("cp932", "gb18030", "big5", "cp949", "utf_16_le", "utf_16_be"),
)
_ENCODINGS = ("utf-8", "utf-16", "utf-32", "latin-1", "shift_jis", "euc_kr", *_GUESSED)
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_OTHER_KINDS = (
    (rb"PK\x03\x04", "a zip archive (files of Excel are such): unpack it, or export the table"),
    (rb"\x1f\x8b", "a gzip archive, and the names of such end in .gz"),
    (rb"version https://git-lfs", "a pointer of Git LFS: fetch the file with 'git lfs pull'"),
    (rb"(?i)\s*<(!doctype html|html|head)\b", "a web page, as downloads leave it that failed"),
)
_LOOKED_AT = 50_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings with which data files are read.

    Without an encoding that of `detect_encoding` is taken. Of rows those are taken that have the
    values of `where`, as texts by column. Those that are not `labelled` are texts to be answered.
    """

    encoding: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    labelled: bool = True

    def __post_init__(self) -> None:
        try:
            "a".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            raise InputError(
                f"unknown encoding {self.encoding!r}; {nearest(str(self.encoding), _ENCODINGS)}"
            ) from None


def read_lines(
    path: Path, reading: Reading, *, escape: bool = False, notes: list[str] | None = None
) -> list[str]:
    """Read the lines of a text file, gzipped if its name ends in `.gz`.

    `escape` makes bytes that are not of the encoding lone surrogates, for readers row by row.
    """
    data = _read_bytes(path)
    encoding = reading.encoding or detect_encoding(data)
    if notes is not None and reading.encoding is None and encoding != "utf-8":
        notes.append(
            f"{path}: not UTF-8, read as {encoding}; if that is wrong, name its encoding (such as "
            f"encoding: cp1250 in task_settings)"
        )
    return decode_lines(data, str(path), encoding, escape=escape)


def detect_encoding(data: bytes) -> str:
    """Find out what text is encoded in: by its byte order mark, or else by its bytes.

    Those that are not UTF-8, while few of the others beyond ASCII are, or that hold NUL, are
    guessed by `charset-normalizer`; of equally good guesses Windows' code of Western Europe is
    taken.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    fault = 0
    try:
        data.decode()
        if 0 not in data[:_LOOKED_AT]:
            return "utf-8"
    except UnicodeDecodeError as error:
        fault = error.start
    start = max(0, fault - _LOOKED_AT)
    part = data[start + start % 2 : start + 2 * _LOOKED_AT]
    read = part.decode("utf-8", "replace")
    faults = read.count("\ufffd")
    if faults and sum(char > "\x7f" for char in read) >= 2 * faults:
        return "utf-8"
    # Reading UTF-8, which is nearly always, does without it.
    from charset_normalizer import from_bytes

    guesses = from_bytes(part, cp_isolation=list(_GUESSED))
    best = [
        name
        for guess in guesses
        if (guess.chaos, guess.coherence) == (guesses[0].chaos, guesses[0].coherence)
        for name in guess.could_be_from_charset
    ]
    name = "cp1252" if "cp1252" in best else best[0] if best else "utf-8"
    return name.replace("_", "-")


def decode_lines(
    data: bytes, origin: str, encoding: str = "utf-8", *, escape: bool = False
) -> list[str]:
    r"""Decode the bytes of a text file to lines with their ends: \n, \r\n or \r.

    Other separators, at which `str.splitlines` cuts too, are parts of texts. Lines are decoded one
    by one, so that a character from beyond Western Europe makes no other line larger in memory.
    """
    for signature, what in _OTHER_KINDS:
        if re.match(signature, data[:300]):
            raise InputError(f"{origin}: not text but {what}")
    errors = "surrogateescape" if escape else "strict"
    try:
        lines = list(io.TextIOWrapper(io.BytesIO(data), encoding, errors, newline=""))
    except UnicodeError:
        raise InputError(_explain_undecoded(data, origin, encoding)) from None
    if lines:
        lines[0] = lines[0].removeprefix("\ufeff")
    return lines


def find_fault(text: str) -> str | None:
    """Say what is wrong with a text, as in ``"is empty"``; None if nothing is."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text):,} characters, the limit is {MAX_CHARACTERS:,}"
    may_be = "\0" in text or not text.isascii()  # which is told faster than by a search
    if may_be and (character := _NO_CHARACTER.search(text)):
        return (
            f"holds U+{ord(character[0]):04X}, which is half a character or none; it was damaged, "
            "or cut, before it came here"
        )
    if all(unicodedata.category(char) in _INVISIBLE for char in text):
        return "is empty but for invisible characters"
    return None


def _read_bytes(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            return file.read()
    except EOFError:
        raise InputError(
            f"{path}: the gzip archive ends too early; it was probably cut off while being copied"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not an intact gzip archive ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _explain_undecoded(data: bytes, origin: str, encoding: str) -> str:
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        seen = data[: error.start].decode(encoding, "replace")
        line = 1 + max(seen.count("\n"), seen.count("\r"))
        byte = f"byte 0x{data[error.start]:02x} is not {encoding} (offset {error.start:,})"
        return (
            f"{origin}:{line}: {byte}; save the file as UTF-8, or name its encoding (Windows "
            "writes cp1252 in the West)"
        )
    except UnicodeError as error:
        return f"{origin}: not {encoding} ({error})"
    return f"{origin}: not {encoding}"
