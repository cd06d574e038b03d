"""The text of a data file: unpacked, of a bounded size, and decoded.

An error names what a file really is (another encoding, an archive under a wrong name, a web page)
before its rows are read. No more is unpacked than may be read.
"""

from __future__ import annotations

import codecs
import gzip
import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cl_graft.errors import InputError, nearest

__all__ = [
    "MAX_CHARACTERS",
    "MAX_LINE",
    "MEGABYTE",
    "EncodedText",
    "Reading",
    "check_row_count",
    "check_size",
    "decode",
    "detect_encoding",
    "find_fault",
    "find_lines",
    "read_encoded",
    "read_text",
]

MAX_CHARACTERS = 1_000_000
"""Largest number of characters of a text: a tokenizer would fill the memory with a longer one."""

MAX_LINE = 8 * MAX_CHARACTERS
"""Largest number of characters of a line: a parser would fill the memory with a longer one."""

_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")

MEGABYTE = 1_000_000
_BYTES_A_ROW = 100

_ENCODINGS = (
    "utf-8", "utf-16", "utf-32", "latin-1", "cp1250", "cp1251", "cp1252", "shift_jis", "gb18030",
    "big5", "euc_kr",
)  # fmt: skip
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive (files of Excel are such): unpack it, or export the table"),
    (b"\x1f\x8b", "a gzip archive, and the names of such end in .gz"),
    (b"\xfd7zXZ\x00", "an xz archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it"),
    (b"Rar!\x1a", "a rar archive: unpack it"),
    (b"PAR1", "a parquet file, and the names of such end in .parquet"),
    (b"ARROW1", "an Arrow file: write it as parquet"),
    (b"\xd0\xcf\x11\xe0", "a file of an old Office program: export the table"),
    (b"SQLite format 3\x00", "a data base of SQLite: export the table"),
    (b"%PDF-", "a PDF"),
    (b"version https://git-lfs", "a pointer of Git LFS: fetch the file with 'git lfs pull'"),
)
_LOOKED_AT = 100_000
_MOST_BEYOND_ASCII = 0.25
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_ASCII_LETTER = re.compile(rb"[A-Za-z]")
_UTF8_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_NOT_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_BZIP2 = re.compile(rb"BZh[1-9]1AY&SY")
_PAGE = re.compile(rb"\s*<(!doctype html|html|head)\b", re.IGNORECASE)
_LINE = re.compile(r"[^\r\n]++(?:\r\n?|\n)?|\r\n?|\n")
_ENCODED_LINE = re.compile(rb"[^\r\n]++(?:\r\n?|\n)?|\r\n?|\n")
_FILLED = re.compile(rb"\s*[^\r\n]+(?:\r\n?|\n)?")
_LARGE = 16 * MEGABYTE
_PART = MEGABYTE
_ENDS_OF_ASCII = re.compile(
    r"utf-8(-sig)?|ascii|iso8859-\d+|cp125\d|koi8-[rut]|gb18030|big5|euc_kr"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings with which data files are read.

    Attributes:
        encoding: Encoding of text files, as Python names it; a byte order mark is dropped. None
            takes the one that `detect_encoding` finds.
        max_megabytes: Largest size of a file once unpacked, in MB (1,000,000 bytes). It may have
            10,000 rows for each of them.
        where: Values by column, as texts: only rows that have them are taken. Empty takes all.
        labelled: Whether rows hold what is to be learned, or texts to be answered.

    Raises:
        InputError: If Python knows no such encoding of text, or the limit is below 1.
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
    def most_bytes(self) -> int:
        """Largest size of a file once unpacked, in bytes."""
        return self.max_megabytes * MEGABYTE

    @property
    def most_rows(self) -> int:
        """Largest number of rows of a file."""
        return self.most_bytes // _BYTES_A_ROW


def read_text(
    path: Path, reading: Reading, *, escape: bool = False, notes: list[str] | None = None
) -> str:
    """Read a text file, gzipped if its name ends in `.gz`.

    Args:
        path: The file.
        reading: Encoding and limit.
        escape: Let bytes that are not of the encoding become lone surrogates (U+DC80 to U+DCFF),
            for a reader that goes row by row; else they are an error.
        notes: Takes a sentence on an encoding that is not UTF-8 and that nobody named.

    Raises:
        InputError: If the file cannot be read, is none of text, too large or of another encoding.
    """
    data = _read_bytes(path, reading)
    return _decode_file(data, path, reading, escape=escape, notes=notes)


def _decode_file(
    data: bytes, path: Path, reading: Reading, *, escape: bool, notes: list[str] | None
) -> str:
    encoding = reading.encoding or detect_encoding(data)
    _note_encoding(path, encoding, reading, notes)
    return decode(data, str(path), encoding, escape=escape)


def _note_encoding(path: Path, encoding: str, reading: Reading, notes: list[str] | None) -> None:
    if notes is not None and reading.encoding is None and encoding != "utf-8":
        notes.append(
            f"{path}: not UTF-8, read as {encoding}; if that is wrong, name its encoding (such as "
            f"encoding: cp1250 in task_settings)"
        )


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text that is kept as its bytes, of which one line at a time is decoded.

    A large file then takes its own size in memory, and not that of a text in which one character
    from beyond Western Europe makes every character four bytes.

    Attributes:
        data: The bytes, without a byte order mark.
        codec: Their codec, in which the ends of lines are those of ASCII.
        errors: What is done about bytes that are not of the codec.
    """

    data: bytes
    codec: str
    errors: str = "strict"

    def __str__(self) -> str:
        return self.data.decode(self.codec, self.errors)

    def start(self) -> str:
        """Return the first lines that are not all blank; empty if there are none."""
        found = _FILLED.match(self.data)
        return found[0].decode(self.codec, self.errors) if found else ""

    def count_bytes(self, part: str) -> int:
        """Return how many bytes a part of the text takes."""
        return len(part.encode(self.codec, self.errors))


@dataclass(frozen=True, slots=True)
class _EncodedLine:
    """A line of an `EncodedText`, as `re.Match` has it for those of a text."""

    found: re.Match[bytes]
    text: EncodedText

    def __getitem__(self, group: int) -> str:
        return self.found[group].decode(self.text.codec, self.text.errors)

    def end(self) -> int:
        return self.found.end()


def read_encoded(
    path: Path, reading: Reading, *, escape: bool = False, notes: list[str] | None = None
) -> str | EncodedText:
    """Read a text file as `read_text` does; a large one stays encoded where its codec allows it.

    Raises:
        InputError: As `read_text`.
    """
    data = _read_bytes(path, reading)
    if len(data) < _LARGE:
        return _decode_file(data, path, reading, escape=escape, notes=notes)
    encoding = reading.encoding or detect_encoding(data)
    codec = codecs.lookup(encoding).name
    if not _ENDS_OF_ASCII.fullmatch(codec) or not _is_text(data, codec, escape=escape):
        return _decode_file(data, path, reading, escape=escape, notes=notes)
    _refuse_other_kinds(data, str(path), utf8=codec.startswith("utf-8"))
    _note_encoding(path, encoding, reading, notes)
    errors = "surrogateescape" if escape else "strict"
    if codec.startswith("utf-8"):  # a tool may have put a second mark before the first
        data = data.removeprefix(codecs.BOM_UTF8).removeprefix(codecs.BOM_UTF8)
    return EncodedText(data, codec.removesuffix("-sig"), errors)


def _is_text(data: bytes, codec: str, *, escape: bool) -> bool:
    """Tell whether a large file can be decoded, without doing so at once."""
    if data.count(0) * 4 > len(data):
        return False
    decoder = codecs.getincrementaldecoder(codec)("surrogateescape" if escape else "strict")
    try:
        for start in range(0, len(data), _PART):
            decoder.decode(data[start : start + _PART])
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    return True


def detect_encoding(data: bytes) -> str:
    """Find out what text is encoded in.

    A byte order mark says it; NUL in every other byte means UTF-16. Bytes that are not UTF-8, while
    hardly any other byte beyond ASCII is, are taken for Windows' or ISO's code of Western Europe if
    they are few among letters. All else counts as UTF-8, if need be with faults.

    Returns:
        ``"utf-8"``, ``"utf-16"``, ``"utf-16-le"``, ``"utf-16-be"``, ``"utf-32"``, ``"cp1252"`` or
        ``"latin-1"``.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    start = data[:_LOOKED_AT]
    for offset, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        zero, other = start[offset::2].count(0), start[1 - offset :: 2].count(0)
        if zero > 0.7 * (len(start) // 2) and not other:
            return name
    if (fault := _find_other(data)) is not None:
        part = data[max(0, fault - _LOOKED_AT) : fault + _LOOKED_AT]
        beyond = len(_BEYOND_ASCII.findall(part))
        of_utf8 = sum(map(len, _UTF8_SEQUENCE.findall(part)))
        letters = len(_ASCII_LETTER.findall(part))
        if 2 * of_utf8 < beyond <= _MOST_BEYOND_ASCII * letters:
            return "latin-1" if _NOT_CP1252.search(data) else "cp1252"
    return "utf-8"


def _find_other(data: bytes) -> int | None:
    """Return the offset of the first byte that is not of UTF-8; None if all are."""
    start = 0
    while start < len(data):
        end = min(start + _PART, len(data))
        try:
            data[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            # A sequence that the part cuts is looked at with the next one.
            if end == len(data) or error.start < end - start - 3 or not error.start:
                return start + error.start
            end = start + error.start
        start = end
    return None


def check_size(place: str, size: int, reading: Reading, *, unpacked: bool = False) -> None:
    """Refuse a file of more bytes than may be read.

    Raises:
        InputError: If it is.
    """
    if size > reading.most_bytes:
        when = " when unpacked" if unpacked else ""
        raise InputError(
            f"{place}: larger than {reading.max_megabytes:,} MB{when}, the limit for a file; files "
            "are read whole into memory, so make it smaller, or raise max_megabytes"
        )


def check_row_count(place: str, count: int, reading: Reading) -> None:
    """Refuse more rows than may be read of one file.

    Raises:
        InputError: If `count` is more.
    """
    if count > reading.most_rows:
        raise InputError(
            f"{place}: more than {reading.most_rows:,} rows, the limit for a file with "
            f"max_megabytes {reading.max_megabytes}; make it smaller, or raise that"
        )


def decode(data: bytes, place: str, encoding: str = "utf-8", *, escape: bool = False) -> str:
    """Decode the bytes of a text file; `place` names it in messages, `escape` as in `read_text`.

    Raises:
        InputError: If they are no text in this encoding.
    """
    utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")
    _refuse_other_kinds(data, place, utf8=utf8)
    codec = "utf-8-sig" if utf8 else encoding
    try:
        text = data.decode(codec)
    except UnicodeError as error:
        text = _decode_escaped(data, codec) if escape else None
        if text is None:
            raise InputError(
                _explain_undecoded(data, place, "UTF-8" if utf8 else encoding, error)
            ) from None
    text = text.removeprefix("\ufeff")
    zeros = text.count("\0")
    if zeros * 4 > len(text):
        raise InputError(
            f"{place}: {zeros:,} of {len(text):,} characters are NUL: the file is not text, or is "
            "in UTF-16 without a byte order mark (then name its encoding, utf-16-le or utf-16-be)"
        )
    return text


def find_fault(text: str) -> str | None:
    """Say what is wrong with a text, as in ``"is empty"``; None if nothing is."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text):,} characters, the limit is {MAX_CHARACTERS:,}"
    if found := _NO_CHARACTER.search(text):
        return (
            f"holds U+{ord(found[0]):04X}, which is half a character or none; it was damaged, or "
            "cut, before it came here"
        )
    if all(unicodedata.category(char) in _INVISIBLE for char in text):
        return "is empty but for invisible characters"
    return None


def find_lines(
    text: str | EncodedText, start: int = 0
) -> Iterator[re.Match[str]] | Iterator[_EncodedLine]:
    r"""Walk over the lines of a text from an offset on, with their ends: \n, \r\n or \r.

    str.splitlines would also cut at separators that texts may hold, and copy the text. Offsets are
    those of characters; of an encoded text, of bytes.
    """
    if isinstance(text, str):
        return _LINE.finditer(text, start)
    return (_EncodedLine(found, text) for found in _ENCODED_LINE.finditer(text.data, start))


def _read_bytes(path: Path, reading: Reading) -> bytes:
    most, packed = reading.most_bytes, path.name.lower().endswith(".gz")
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
    for signature, what in _SIGNATURES:
        if start.startswith(signature):
            raise InputError(f"{place}: not text but {what}")
    if _BZIP2.match(start):
        raise InputError(f"{place}: not text but a bzip2 archive: unpack it")
    if start[257:262] == b"ustar":
        raise InputError(f"{place}: not text but a tar archive: unpack it")
    if _PAGE.match(start):
        raise InputError(f"{place}: not text but a web page, as downloads leave it that failed")
    for mark, name in _MARKS if utf8 else ():
        if start.startswith(mark):
            raise InputError(
                f"{place}: the byte order mark is that of {name.upper()}, not UTF-8; save the file "
                f"as UTF-8, or name its encoding, {name}"
            )


def _decode_escaped(data: bytes, codec: str) -> str | None:
    """Decode with lone surrogates for bytes that do not fit; None where the codec cannot."""
    try:
        return data.decode(codec, "surrogateescape")
    except UnicodeError:
        return None


def _explain_undecoded(data: bytes, place: str, encoding: str, error: UnicodeError) -> str:
    if not isinstance(error, UnicodeDecodeError):
        return f"{place}: not {encoding} ({error})"
    seen = data[: error.start].decode(error.encoding, "replace")
    line = 1 + max(seen.count("\n"), seen.count("\r"))
    byte = f"byte 0x{data[error.start]:02x} is not {encoding} (offset {error.start:,})"
    return (
        f"{place}:{line}: {byte}; save the file as UTF-8, or name its encoding (Windows writes "
        "cp1252 in the West)"
    )
