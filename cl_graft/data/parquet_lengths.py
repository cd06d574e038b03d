"""Numbers of texts in pages of parquet that store the lengths of their texts.

In the encodings DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY a page says once more, behind its
header, how many lengths it has, and pyarrow takes memory for that many. So a page of some bytes
that says a hundred million is refused here. Formats: https://parquet.apache.org/docs/file-format.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cl_graft.data.parquet_sizes import Levels, Page
from cl_graft.data.thrift import read_unsigned

__all__ = ["check_lengths"]

_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""Codecs of pyarrow by their number in parquet."""
_LENGTHS_OF_LEVELS = (6, 5)
"""Fields of a header of version 2: bytes of the levels of repetition and of definition."""
_LEVEL_ENCODINGS = (4, 3)
"""Fields of a header of version 1: encodings of both levels."""
_IS_PACKED = 7
_RUNS = 3
"""The encoding of levels that begins with their length."""


def check_lengths(path: Path, pages: Iterable[Page], levels: Levels) -> None:
    """Compare the numbers of lengths that pages of a column have with those of their values.

    Raises:
        ValueError: If a page has more lengths than values, or cannot be unpacked.
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        for page in pages:
            file.seek(page.place)
            data = _unpack(file.read(page.packed), page, levels)
            count, end = _pass_numbers(data, 0)
            if page.shares_prefixes:  # those of the ends of texts follow those of their beginnings
                count = max(count, _pass_numbers(data, end)[0])
            if count > page.values:
                raise ValueError(f"{count} lengths in a page of {page.values} values")


def _unpack(body: bytes, page: Page, levels: Levels) -> bytes:
    """Return the values of a page, without the levels before them."""
    if page.codec not in _CODECS:
        raise ValueError(f"texts behind their lengths in codec {page.codec} are not read")
    if page.version == 2:
        before = sum(page.data.count(number, bits=32) for number in _LENGTHS_OF_LEVELS)
        packed = page.data.is_true(_IS_PACKED, default=True)
        return _decompress(body[before:], page.unpacked - before, page.codec if packed else 0)
    data = _decompress(body, page.unpacked, page.codec)
    start = 0
    for deepest, encoding in zip(
        (levels.repetition, levels.definition), _LEVEL_ENCODINGS, strict=True
    ):
        if deepest:
            if page.data.count(encoding, bits=32) != _RUNS:
                raise ValueError("levels in another encoding than runs")
            start += 4 + int.from_bytes(data[start : start + 4], "little")
    return data[start:]


def _decompress(data: bytes, size: int, codec: int) -> bytes:
    import pyarrow

    if (name := _CODECS[codec]) is None or not data:
        return data
    return pyarrow.Codec(name).decompress(data, decompressed_size=max(0, size), asbytes=True)


def _pass_numbers(data: bytes, place: int) -> tuple[int, int]:
    """Return how many numbers a list in DELTA_BINARY_PACKED has, and where it ends."""
    block, place = read_unsigned(data, place)
    parts, place = read_unsigned(data, place)
    count, place = read_unsigned(data, place)
    _, place = read_unsigned(data, place)
    left, size = count - 1, block // parts if parts else 0
    if count and not (size > 0 and parts <= len(data)):
        raise ValueError(f"blocks of {block} numbers in {parts} parts")
    while left > 0:
        _, place = read_unsigned(data, place)
        widths, place = data[place : place + parts], place + parts
        if len(widths) < parts:
            raise ValueError("a list of lengths ends too early")
        for width in widths:
            if left > 0:
                place, left = place + size * width // 8, left - size
    return count, place
