"""Footers of parquet files, taken apart and written again."""

import struct
from pathlib import Path
from typing import Any

from cl_graft.data.thrift import Struct, read_struct

I32, I64, LIST, STRUCT = 5, 6, 9, 12
"""Types of Thrift's compact protocol."""


def encode_unsigned(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def encode(kind: int, value: Any) -> bytes:
    """Write a value of Thrift's compact protocol as `read_struct` gives it."""
    if kind in (1, 2):
        return b""
    if kind in (4, I32, I64):
        return encode_unsigned(value << 1 if value >= 0 else -2 * value - 1)
    if kind == 8:
        return encode_unsigned(len(value)) + value
    if kind == LIST:
        own, values = value
        head = bytes([240 | own]) + encode_unsigned(len(values))
        return head + b"".join(encode(own, one) for one in values)
    assert kind == STRUCT, kind
    fields = b"".join(
        bytes([own]) + encode(4, number) + encode(own, one) for number, (own, one) in value.items()
    )
    return fields + b"\0"


def read_footer(path: Path) -> Struct:
    whole = path.read_bytes()
    length = struct.unpack("<I", whole[-8:-4])[0]
    return read_struct(whole[-8 - length : -8])[0]


def write_footer(path: Path, footer: Struct) -> None:
    whole = path.read_bytes()
    length = struct.unpack("<I", whole[-8:-4])[0]
    written = encode(STRUCT, footer)
    path.write_bytes(whole[: -8 - length] + written + struct.pack("<I", len(written)) + b"PAR1")
