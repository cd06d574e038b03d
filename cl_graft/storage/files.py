"""Safetensors files with a checksum, a format and a version, written atomically.

The header's metadata has one key, `cl-graft`, with a JSON object: a `checksum` of the whole file
(`checksums`), the `format`, its `version`, what the format adds, and the SHA-256 of each tensor.
Sizes that a file declares are checked against its own before anything of that size is made.
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
from typing import Any, BinaryIO

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cl_graft.errors import BankError, DamagedFile, ForeignFile, FutureVersion, TruncatedFile
from cl_graft.grafts.hashing import hash_tensors, tensor_bytes
from cl_graft.storage.checksums import BLANK, checksum, has_right_checksum
from cl_graft.storage.disk_errors import explain_write_errors

__all__ = [
    "BANK_VERSION",
    "NEWEST",
    "VERSION",
    "check_json",
    "check_version_1",
    "delete_partial_files",
    "is_partial",
    "pack",
    "read_file",
    "read_start",
    "replace_file",
    "report_damage",
    "sync_folder",
    "to_json",
    "unpack",
]

VERSION = 3
"""The version of the other formats that this package writes."""

BANK_VERSION = 5
"""The version of a bank's index, and of its entries' files.

From it on the place of an entry, its label and what it builds on stand in the index alone. From
version 4 on entries may say what they build on."""

NEWEST = BANK_VERSION
"""The newest version that this package reads."""

_KEY = "cl-graft"
_START = b'{"__metadata__":{"cl-graft":"{\\"checksum\\":\\"'
"""First bytes of a file's header, at byte 8; the 64 digits of the checksum follow."""

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_LARGEST_HEADER = 2**24
"""Bytes: a header is parsed before it can be checked, and JSON grows in memory."""


def pack(
    tensors: Mapping[str, Tensor],
    content: Mapping[str, object],
    *,
    format: str,
    version: int | None = None,
) -> bytes:
    """Return the bytes of a file; the same content gives the same bytes.

    Args:
        tensors: The tensors, by name.
        content: Further keys of the header; JSON values only.
        format: Name of the format.
        version: Version of the format; None means `VERSION`.

    Raises:
        ValueError: If the content takes more than 16 MiB as JSON, without the tensors.
    """
    held = _copy_shared(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )
    own = {"checksum", "format", "version", "tensors"}
    version = VERSION if version is None else version
    head: dict[str, object] = {"checksum": BLANK, "format": format, "version": version}
    head |= {key: value for key, value in content.items() if key not in own}
    head["tensors"] = _sha256s(held)
    # The bytes are made twice: to fill the checksum in would copy a file as large as a model.
    head["checksum"] = checksum(_bytes(held, head), start=_START, at=8)
    data = _bytes(held, head)
    if int.from_bytes(data[:8], "little") > _LARGEST_HEADER:
        raise ValueError(f"metadata of {int.from_bytes(data[:8], 'little')} bytes fit in no file")
    return data


def unpack(
    data: bytes, *, format: str, name: str, known: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read back what `pack` made.

    Args:
        data: The file's bytes.
        format: The format it must have.
        name: Name of the file in messages.
        known: Whether the bytes were compared with a SHA-256 that is stored elsewhere, so that the
            checksums in the file need no check.

    Raises:
        ForeignFile: If it is no safetensors file, or not one of `format`.
        TruncatedFile: If it is cut short.
        DamagedFile: If it is altered.
        FutureVersion: If a newer package wrote it.
    """
    header, head = _header(data, size=len(data), format=format, name=name)
    has_checksum = head["version"] > 1
    if has_checksum and not known and not has_right_checksum(data, start=_START, at=8):
        what = _describe_damage(data, header, head)
        raise DamagedFile(f"{name} is altered: {what} does not match its checksum")
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedFile(f"{name} is damaged: {error}") from None
    if known:
        return head, tensors
    if not has_checksum:
        check_version_1(head, format=format, tensors=tensors, name=name)
        return head, tensors
    if head.get("tensors") != _sha256s(tensors):
        raise DamagedFile(f"{name} is damaged: it holds other tensors than it lists")
    return head, tensors


def read_file(path: Path, *, format: str) -> bytes:
    """Return the bytes of a file that `unpack` is to read.

    If a file is not of this package, or declares another size than it has, only its header is read.

    Raises:
        BankError: As `unpack`.
    """
    with path.open("rb") as file:
        start, _ = _read_start(file, path, format=format)
        return start + file.read()


def read_start(path: Path, *, format: str) -> dict[str, Any]:
    """Return the JSON object in the header of a file, whose checksum is not compared.

    Raises:
        BankError: As `unpack`.
    """
    with path.open("rb") as file:
        return _read_start(file, path, format=format)[1]


def _read_start(file: BinaryIO, path: Path, *, format: str) -> tuple[bytes, dict[str, Any]]:
    start = file.read(8)
    start += file.read(min(_LARGEST_HEADER, int.from_bytes(start, "little")))
    size = os.fstat(file.fileno()).st_size
    return start, _header(start, size=size, format=format, name=str(path))[1]


def check_json(head: object, *, format: str, name: str) -> None:
    """Refuse a JSON object that is not of `format` or is newer than this package.

    Raises:
        ForeignFile: If it has another format.
        FutureVersion: If its version is above `NEWEST`.
        DamagedFile: If its version is no number from 1.
    """
    found = head.get("format") if isinstance(head, dict) else None
    if not isinstance(head, dict) or found != format:
        raise ForeignFile(f"{name} is not a {format} file: its format is {found!r}")
    version = head.get("version")
    if not isinstance(version, int) or version < 1:
        raise DamagedFile(f"{name} is damaged: its version is {version!r}")
    if version > NEWEST:
        raise FutureVersion(
            f"{name} has version {version} of its format, this package reads up to {NEWEST}; "
            "a newer cl_graft wrote it"
        )


def check_version_1(
    head: Mapping[str, Any],
    *,
    format: str,
    name: str,
    tensors: Mapping[str, Tensor] | None = None,
) -> None:
    """Check the checksum of version 1, which covers the other keys of the JSON object and tensors.

    Raises:
        DamagedFile: If it does not match.
    """
    own = {"format": format, "version": 1}
    rest = {key: value for key, value in head.items() if key not in (*own, "checksum")}
    digest = hashlib.sha256(to_json(own | rest).encode())
    digest.update(hash_tensors(tensors or {}).encode())
    if digest.hexdigest() != head.get("checksum"):
        raise DamagedFile(f"{name} is altered: its content does not match its checksum")


@contextmanager
def report_damage(name: str) -> Iterator[None]:
    """Turn the errors that unexpected content raises in a `with` block into `DamagedFile`.

    The errors of `cl_graft.errors` pass as they are.
    """
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


def replace_file(path: Path, data: bytes, *, spare: int = 0) -> None:
    """Write a file so that a reader, or a crash, sees its old or its new content, never a part.

    Args:
        path: The file.
        data: New content of the whole file.
        spare: Bytes of the disk to leave free.

    Raises:
        CannotWrite: If the disk is full or read-only; the old content stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with explain_write_errors(path, size=len(data), spare=spare):
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


def sync_folder(folder: Path) -> None:
    """Force to disk which files a folder holds, where the system can."""
    if os.name != "posix":  # a folder cannot be opened
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sha256s(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the SHA-256 of every tensor, by name."""
    names = sorted(tensors)
    return {name: hashlib.sha256(tensor_bytes(tensors[name])).hexdigest() for name in names}


def _bytes(held: dict[str, Tensor], head: Mapping[str, object]) -> bytes:
    return save(held, metadata={_KEY: to_json(head)})


def _header(
    data: bytes, *, size: int, format: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the header at the beginning of a file of `size` bytes, and our part of it.

    Raises:
        BankError: As `unpack`.
    """
    length = int.from_bytes(data[:8], "little")
    ours = f'"{_KEY}":'.encode() in data[:1000]
    if size < 9 or (data[8:9] == b"{" and size < 8 + length <= _LARGEST_HEADER):
        raise TruncatedFile(f"{name} is cut short: it ends after {size} bytes, in its header")
    try:
        if length > _LARGEST_HEADER:
            raise ValueError("the header is larger than any of ours")
        header = json.loads(data[8 : 8 + length])
        head = json.loads(header["__metadata__"][_KEY])
    except (ValueError, KeyError, TypeError, RecursionError):
        if ours:
            raise DamagedFile(f"{name} is damaged: its header cannot be read") from None
        raise ForeignFile(f"{name} is not a file of cl_graft: expected a {format} file") from None
    check_json(head, format=format, name=name)
    with report_damage(name):
        ends = [int(end) for _, end in (row["data_offsets"] for row in _rows(header).values())]
    declared = 8 + length + max(ends, default=0)
    if size < declared:
        raise TruncatedFile(f"{name} is cut short: {size} of {declared} bytes are left")
    if size > declared:
        raise DamagedFile(f"{name} is altered: {size - declared} bytes follow its end")
    return header, head


def _rows(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a header says of each tensor."""
    return {key: value for key, value in header.items() if key != "__metadata__"}


def _describe_damage(data: bytes, header: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    """Say which part of a damaged file does not match, as far as its header can be believed."""
    with suppress(KeyError, TypeError, ValueError):
        body = memoryview(data)[8 + int.from_bytes(data[:8], "little") :]
        for tensor, row in _rows(header).items():
            begin, end = row["data_offsets"]
            if hashlib.sha256(body[begin:end]).hexdigest() != head["tensors"][tensor]:
                return f"tensor {tensor!r}"
    return "its header"


def is_partial(path: Path) -> bool:
    """Tell by its name whether a file was left by a killed `replace_file`."""
    return _PARTIAL.fullmatch(path.name) is not None


def delete_partial_files(paths: Iterable[Path]) -> list[Path]:
    """Delete those of some files that a killed `replace_file` left, and return them.

    The caller holds the lock of their folder, so no other process is writing them now.
    """
    partial = [path for path in paths if is_partial(path)]
    for path in partial:
        with explain_write_errors(path):
            path.unlink(missing_ok=True)
    return partial


def _copy_shared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the tensors that share memory: safetensors refuses them."""
    seen: set[int] = set()
    copied = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        copied[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return copied
