"""Files of this package: JSON objects and safetensors with a checksum, written atomically.

Each holds its own SHA-256 near its beginning, computed with zeros in the place of its 64 digits. A
safetensors file has one key in its header's metadata, `cl-graft`, with a JSON object: `checksum`,
`format`, `version`, and what the format adds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cl_graft.errors import BankError, DamagedFile, ForeignFile, FutureVersion, TruncatedFile
from cl_graft.storage.disk_errors import explain_write_errors

VERSION = 1
"""Version of every format that this package reads and writes."""

_KEY = "cl-graft"
_BLANK = "0" * 64  # digits in the place of the checksum while it is computed
_JSON_START = b'{"checksum": "'  # beginning of a JSON file; the digits follow
_START = b'{"__metadata__":{"cl-graft":"{\\"checksum\\":\\"'
"""Beginning of a safetensors file's header, at byte 8; the digits follow."""

_DIGITS = re.compile(rb"[0-9a-f]{64}")
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_LARGEST_HEADER = 2**24
"""Bytes: a header is parsed before it can be checked, and JSON grows in memory."""


def dump_json(values: Mapping[str, Any], *, format: str) -> bytes:
    """Return a JSON object as text for people, with checksum, format and version."""
    return add_checksum(
        json.dumps({"format": format, "version": VERSION, **values}, indent=1) + "\n"
    )


def add_checksum(text: str) -> bytes:
    """Put a checksum into the text of a JSON object, whose first line is ``{``."""
    body = '",\n' + text.removeprefix("{\n")
    blank = _JSON_START + _BLANK.encode() + body.encode()
    return _JSON_START + hashlib.sha256(blank).hexdigest().encode() + body.encode()


def load_json(data: bytes, *, format: str, name: str) -> dict[str, Any]:
    """Read what `dump_json` or `add_checksum` wrote; a `BankError` says what is wrong with it."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        begin = data[: len(_JSON_START)]
        if b"cl-graft" not in data and begin != _JSON_START[: len(begin)]:
            raise ForeignFile(f"{name} is not a file of cl_graft: it is no JSON") from None
        if data.rstrip()[-1:] != b"}":
            raise TruncatedFile(f"{name} is cut short: it ends after {len(data)} bytes") from None
        raise DamagedFile(f"{name} is altered: it is no JSON any more") from None
    _check_format(values, format=format, name=name)
    _check_checksum(data, _JSON_START, 0, name=name)
    return {key: values[key] for key in values if key not in ("checksum", "format", "version")}


def pack(tensors: Mapping[str, Tensor], content: Mapping[str, object], *, format: str) -> bytes:
    """Return the bytes of a file; the same content gives the same bytes."""
    held = _copy_shared(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )
    fields = {"checksum": _BLANK, "format": format, "version": VERSION}
    head = {**fields, **content, **fields}
    # The bytes are made twice: to fill the checksum in would copy a file as large as a model.
    head["checksum"] = hashlib.sha256(_bytes(held, head)).hexdigest()
    data = _bytes(held, head)
    if int.from_bytes(data[:8], "little") > _LARGEST_HEADER:
        raise ValueError(f"metadata of {int.from_bytes(data[:8], 'little')} bytes fit in no file")
    return data


def unpack(
    data: bytes, *, format: str, name: str, checksum: str | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read back what `pack` made: the header's JSON object, and the tensors.

    A `BankError` says what is wrong, also where `checksum` is given and the file is another one.
    """
    head = _read_header(data, size=len(data), format=format, name=name)
    _check_checksum(data, _START, 8, name=name)
    if checksum is not None and checksum_in(data) != checksum:
        raise DamagedFile(f"{name} is altered: it is another file than the one that is listed")
    try:
        return head, load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedFile(f"{name} is damaged: {error}") from None


def checksum_in(data: bytes) -> str:
    """Return the checksum in what `pack` made."""
    return data[8 + len(_START) :][: len(_BLANK)].decode()


def read_file(path: Path, *, format: str) -> bytes:
    """Return the bytes of a file; only the header is read of a foreign or falsely sized one."""
    with path.open("rb") as file:
        start = file.read(8)
        start += file.read(min(_LARGEST_HEADER, int.from_bytes(start, "little")))
        _read_header(start, size=os.fstat(file.fileno()).st_size, format=format, name=str(path))
        return start + file.read()


@contextmanager
def report_damage(name: str) -> Iterator[None]:
    """Turn the errors that unexpected content raises in a `with` block into `DamagedFile`."""
    try:
        yield
    except BankError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DamagedFile(f"{name} is damaged: {what}") from error


def to_json(value: object) -> str:
    """Return compact JSON in ASCII, the same text for the same content."""
    return _COMPACT.encode(value)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees its old or its new content, never a part."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with explain_write_errors(path, size=len(data)):
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> None:
    """Write a file as `replace_file`, unless it is there with these very bytes."""
    with suppress(OSError):
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
    replace_file(path, data)


def sync_folder(folder: Path) -> None:
    """Force to disk which files a folder holds, where the system can."""
    if os.name != "posix":  # a folder cannot be opened
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def is_partial(path: Path) -> bool:
    """Tell by its name whether a file was left by a killed `replace_file`."""
    return _PARTIAL.fullmatch(path.name) is not None


def delete_partial_files(paths: Iterable[Path]) -> None:
    """Delete the partial files among some in a locked folder."""
    for path in [path for path in paths if is_partial(path)]:
        with explain_write_errors(path):
            path.unlink(missing_ok=True)


def _bytes(held: dict[str, Tensor], head: Mapping[str, object]) -> bytes:
    return save(held, metadata={_KEY: to_json(head)})


def _read_header(data: bytes, *, size: int, format: str, name: str) -> dict[str, Any]:
    """Read our part of the header at the beginning of a file of `size` bytes."""
    length = int.from_bytes(data[:8], "little")
    ours = f'"{_KEY}":'.encode() in data[:1000]
    if size < 9 or (data[8:9] == b"{" and size < 8 + length <= _LARGEST_HEADER):
        raise TruncatedFile(f"{name} is cut short: it ends after {size} bytes, in its header")
    try:
        if length > _LARGEST_HEADER:
            raise ValueError("the header is larger than any of ours")
        header = json.loads(data[8 : 8 + length])
        head = json.loads(header.pop("__metadata__")[_KEY])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if ours:
            raise DamagedFile(f"{name} is damaged: its header cannot be read") from None
        raise ForeignFile(f"{name} is not a file of cl_graft: expected a {format} file") from None
    _check_format(head, format=format, name=name)
    with report_damage(name):
        ends = [int(end) for _, end in (row["data_offsets"] for row in header.values())]
    declared = 8 + length + max(ends, default=0)
    if size < declared:
        raise TruncatedFile(f"{name} is cut short: {size} of {declared} bytes are left")
    if size > declared:
        raise DamagedFile(f"{name} is altered: {size - declared} bytes follow its end")
    return head


def _check_format(head: object, *, format: str, name: str) -> None:
    """Refuse a JSON object that is not of `format`, or of another version than `VERSION`."""
    stated = head.get("format") if isinstance(head, dict) else None
    if not isinstance(head, dict) or stated != format:
        raise ForeignFile(f"{name} is not a {format} file: its format is {stated!r:.80}")
    if head.get("version") != VERSION:
        raise FutureVersion(
            f"{name} has version {head.get('version')!r:.40} of its format, this package reads "
            f"version {VERSION}; another version of cl_graft wrote it"
        )


def _check_checksum(data: bytes, start: bytes, at: int, *, name: str) -> None:
    """Refuse a file whose checksum, behind `start` at byte `at`, does not match its content."""
    digits_at, whole = at + len(start), memoryview(data)
    digest = hashlib.sha256(whole[:digits_at])
    digest.update(_BLANK.encode())
    digest.update(whole[digits_at + len(_BLANK) :])
    digits = bytes(whole[digits_at : digits_at + len(_BLANK)])
    fits = bytes(whole[at:digits_at]) == start and _DIGITS.fullmatch(digits)
    if not fits or digits.decode() != digest.hexdigest():
        raise DamagedFile(f"{name} is altered: its content does not match its checksum")


def _copy_shared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the tensors that share memory: safetensors refuses them."""
    seen: set[int] = set()
    copied = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        copied[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return copied
