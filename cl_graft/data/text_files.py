"""The lines of a text file: unpacked, of a bounded size, and decoded."""

from __future__ import annotations

import codecs
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

MEGABYTE = 1_000_000
_BYTES_A_ROW = 100

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
    (rb"\xfd7zXZ\0", "an xz archive: unpack it"),
    (rb"\x28\xb5\x2f\xfd", "a zstd archive: unpack it"),
    (rb"BZh[1-9]1AY&SY", "a bzip2 archive: unpack it"),
    (rb"(?s).{257}ustar", "a tar archive: unpack it"),
    (rb"PAR1", "a parquet file, and the names of such end in .parquet"),
    (rb"SQLite format 3\0", "a data base of SQLite: export the table"),
    (rb"%PDF-", "a PDF"),
    (rb"version https://git-lfs", "a pointer of Git LFS: fetch the file with 'git lfs pull'"),
    (rb"(?i)\s*<(!doctype html|html|head)\b", "a web page, as downloads leave it that failed"),
)
_LOOKED_AT = 50_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings with which data files are read.

    Without an encoding that of `detect_encoding` is taken. A file may unpack to `max_megabytes`,
    and have 10,000 rows for each. Of rows those are taken that have the values of `where`, as texts
    by column. Those that are not `labelled` are texts to be answered.
    """

    encoding: str | None = None
    max_megabytes: int = 4_000
    where: Mapping[str, str] = field(default_factory=dict)
    labelled: bool = True

    def __post_init__(self) -> None:
        try:
            "a".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            raise InputError(
                f"unknown encoding {self.encoding!r}; {nearest(str(self.encoding), _ENCODINGS)}"
            ) from None
        if self.max_megabytes < 1:
            raise InputError(f"max_megabytes must be at least 1, got {self.max_megabytes}")

    @property
    def max_bytes(self) -> int:
        """Largest size of a file once unpacked, in bytes."""
        return self.max_megabytes * MEGABYTE


def read_lines(
    path: Path, reading: Reading, *, escape: bool = False, notes: list[str] | None = None
) -> list[str]:
    """Read the lines of a text file, gzipped if its name ends in `.gz`.

    `escape` makes bytes that are not of the encoding lone surrogates, for readers row by row.
    """
    data = _read_bytes(path, reading)
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
    fault = _find_fault(data)
    if fault is None and 0 not in data[:_LOOKED_AT]:
        return "utf-8"
    start = max(0, (fault or 0) - _LOOKED_AT)
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


def _find_fault(data: bytes) -> int | None:
    """Return about where the first byte stands that is not of UTF-8; None if all are."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), MEGABYTE):
        try:
            decoder.decode(data[start : start + MEGABYTE], final=start + MEGABYTE >= len(data))
        except UnicodeDecodeError as error:
            return start + error.start
    return None


def check_size(place: str, size: int, reading: Reading, *, unpacked: bool = False) -> None:
    """Refuse a file of more bytes than may be read."""
    if size > reading.max_bytes:
        when = " when unpacked" if unpacked else ""
        raise InputError(
            f"{place}: larger than {reading.max_megabytes:,} MB{when}, the limit for a file; files "
            "are read whole into memory, so make it smaller, or raise max_megabytes"
        )


def check_row_count(place: str, count: int, reading: Reading) -> None:
    """Refuse more rows than may be read of one file."""
    max_rows = reading.max_bytes // _BYTES_A_ROW
    if count > max_rows:
        raise InputError(
            f"{place}: more than {max_rows:,} rows, the limit for a file with max_megabytes "
            f"{reading.max_megabytes}; make it smaller, or raise that"
        )


def decode_lines(
    data: bytes, place: str, encoding: str = "utf-8", *, escape: bool = False
) -> list[str]:
    r"""Decode the bytes of a text file to lines with their ends: \n, \r\n or \r.

    Other separators, at which `str.splitlines` cuts too, are parts of texts. Lines are decoded one
    by one, so that a character from beyond Western Europe makes no other line larger in memory.
    """
    codec = codecs.lookup(encoding).name
    utf8 = codec in ("utf-8", "utf-8-sig")
    _refuse_other_kinds(data, place, utf8=utf8)
    lines = None
    for errors in ("strict", "surrogateescape") if escape else ("strict",):
        try:
            text = io.TextIOWrapper(io.BytesIO(data), codec, errors, newline="")
            lines = list(text)
            break
        except UnicodeError:
            continue
    if lines is None:
        raise InputError(_explain_undecoded(data, place, "UTF-8" if utf8 else encoding, codec))
    if lines:  # a tool may have put a second mark before the first
        lines[0] = lines[0].removeprefix("\ufeff").removeprefix("\ufeff")
    zeros, characters = sum(line.count("\0") for line in lines), sum(map(len, lines))
    if zeros * 4 > characters:
        raise InputError(
            f"{place}: {zeros:,} of {characters:,} characters are NUL: the file is not text, or is "
            "in UTF-16 without a byte order mark (then name its encoding, utf-16-le or utf-16-be)"
        )
    return lines


def find_fault(text: str) -> str | None:
    """Say what is wrong with a text, as in ``"is empty"``; None if nothing is."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text):,} characters, the limit is {MAX_CHARACTERS:,}"
    may_be = "\0" in text or not text.isascii()  # which is told faster than by a search
    if may_be and (found := _NO_CHARACTER.search(text)):
        return (
            f"holds U+{ord(found[0]):04X}, which is half a character or none; it was damaged, or "
            "cut, before it came here"
        )
    if all(unicodedata.category(char) in _INVISIBLE for char in text):
        return "is empty but for invisible characters"
    return None


def _read_bytes(path: Path, reading: Reading) -> bytes:
    most, packed = reading.max_bytes, path.name.lower().endswith(".gz")
    try:
        if packed:
            with gzip.open(path) as file:
                data = file.read(most + 1)
        else:
            size = path.stat().st_size
            check_size(str(path), size, reading)
            with path.open("rb") as file:
                # read() allocates what it is asked for; a file that grows meanwhile is cut.
                data = file.read(min(size, most) + 1)
    except EOFError:
        raise InputError(
            f"{path}: the gzip archive ends too early; it was probably cut off while being copied"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not an intact gzip archive ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    check_size(str(path), len(data), reading, unpacked=packed)
    return data


def _refuse_other_kinds(data: bytes, place: str, *, utf8: bool) -> None:
    """Refuse what is no text file, or says that it is in another encoding."""
    start = data[:300]
    for signature, what in _OTHER_KINDS:
        if re.match(signature, start):
            raise InputError(f"{place}: not text but {what}")
    for mark, name in _MARKS if utf8 else ():
        if start.startswith(mark):
            raise InputError(
                f"{place}: the byte order mark is that of {name.upper()}, not UTF-8; save the file "
                f"as UTF-8, or name its encoding, {name}"
            )


def _explain_undecoded(data: bytes, place: str, encoding: str, codec: str) -> str:
    try:
        data.decode(codec)
    except UnicodeDecodeError as error:
        seen = data[: error.start].decode(error.encoding, "replace")
        line = 1 + max(seen.count("\n"), seen.count("\r"))
        byte = f"byte 0x{data[error.start]:02x} is not {encoding} (offset {error.start:,})"
        return (
            f"{place}:{line}: {byte}; save the file as UTF-8, or name its encoding (Windows writes "
            "cp1252 in the West)"
        )
    except UnicodeError as error:
        return f"{place}: not {encoding} ({error})"
    return f"{place}: not {encoding}"
