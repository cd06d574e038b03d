"""Files of ours: safetensors whose header says what they are, written atomically.

The header's metadata has one key, `cl-graft`, with a JSON object: the `format` and its `version`,
a `checksum` over everything else and every tensor's bytes, and what the format adds.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cl_graft.errors import BankError, DamagedFile, ForeignFile, FutureVersion
from cl_graft.fingerprint import hash_tensors

__all__ = ["VERSION", "check_json", "pack", "replace_file", "seal", "to_json", "unpack", "valid"]

VERSION = 1
"""The newest version of the formats that this package reads, and the one that it writes."""

_KEY = "cl-graft"
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_LARGEST_HEADER = 100_000_000  # safetensors' own limit


def pack(tensors: Mapping[str, Tensor], content: Mapping[str, object], *, format: str) -> bytes:
    """Return the bytes of a file; the same content gives the same bytes."""
    head = seal(content, format=format, tensors=tensors)
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(_apart(held), metadata={_KEY: to_json(head)})


def unpack(data: bytes, *, format: str, name: str) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Read back what `pack` made.

    Args:
        data: The file's bytes.
        format: The format it must have.
        name: How to call the file in messages.

    Raises:
        ForeignFile: If it is no safetensors file, or not one of `format`.
        DamagedFile: If it is cut short or altered.
        FutureVersion: If a newer package wrote it.
    """
    length = int.from_bytes(data[:8], "little")
    ours = f'"{_KEY}":'.encode() in data[:1000]
    if len(data) < 9 or (data[8:9] == b"{" and len(data) < 8 + length <= _LARGEST_HEADER):
        raise DamagedFile(f"{name} is cut short: it ends after {len(data)} bytes, in its header")
    try:
        if length > _LARGEST_HEADER:
            raise ValueError("the header is larger than any safetensors header")
        header = json.loads(data[8 : 8 + length])
        head = json.loads(header["__metadata__"][_KEY])
    except (ValueError, KeyError, TypeError, RecursionError):
        if ours:
            raise DamagedFile(f"{name} is damaged: its header cannot be read") from None
        raise ForeignFile(f"{name} is not a file of cl_graft: expected a {format} file") from None
    check_json(head, format=format, name=name)
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise DamagedFile(f"{name} is cut short or altered: {error}") from None
    if seal(head, format=format, tensors=tensors)["checksum"] != head.get("checksum"):
        raise DamagedFile(f"{name} is altered: its content does not match its checksum")
    return head, tensors


def seal(
    content: Mapping[str, object], *, format: str, tensors: Mapping[str, Tensor] | None = None
) -> dict[str, object]:
    """Return `content` with format, version and a checksum over all of it and the tensors."""
    head: dict[str, object] = {"format": format, "version": VERSION}
    head |= {key: value for key, value in content.items() if key not in (*head, "checksum")}
    digest = hashlib.sha256(to_json(head).encode())
    digest.update(hash_tensors(tensors or {}).encode())
    return {**head, "checksum": digest.hexdigest()}


def check_json(head: object, *, format: str, name: str) -> None:
    """Refuse a JSON object that is not of `format` or is newer than this package.

    Raises:
        ForeignFile: If it has another format.
        FutureVersion: If its version is above `VERSION`.
        DamagedFile: If its version is no number from 1.
    """
    found = head.get("format") if isinstance(head, dict) else None
    if not isinstance(head, dict) or found != format:
        raise ForeignFile(f"{name} is not a {format} file: its format is {found!r}")
    version = head.get("version")
    if not isinstance(version, int) or version < 1:
        raise DamagedFile(f"{name} is damaged: its version is {version!r}")
    if version > VERSION:
        raise FutureVersion(
            f"{name} has version {version} of its format, this package reads up to {VERSION}; "
            "a newer cl_graft wrote it"
        )


@contextmanager
def valid(name: str) -> Iterator[None]:
    """Turn what unexpected content raises inside the block into `DamagedFile`.

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


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees its old or its new content, never a part."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the tensors that share memory: safetensors refuses them."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return apart
