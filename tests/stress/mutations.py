"""Mutated files: each a function of the original bytes and a random generator.

Blind ones change bytes. Those that know the structure take a file apart into header, metadata and
body (or a JSON object), change one thing inside, and put it together so that lengths fit again: a
loader gets further into such a file before it notices. `fix_tensor_checksums` and
`fix_index_checksum` also make the checksums fit, as somebody could who writes a file by hand.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

from cl_graft.storage.checksums import BLANK, JSON_START, checksum

__all__ = ["BLIND", "blind", "fix_index_checksum", "fix_tensor_checksums", "structured"]

_PLACES = b'{"__metadata__":{"cl-graft":"{\\"checksum\\":\\"'
_STRANGE: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 255, 2**16, 2**31, 2**32 + 1, 2**53, 2**62, 2**63, 2**64, 10**30, -(2**63), 0.5,
    -0.0, 1e308, float("inf"), float("nan"), True, False, None, "", "0", "a" * 5000, "..",
    "../../x", "/etc/passwd", "C:\\x", "CON", "entries/../../x.safetensors", "a\0b", "\u202egnp",
    "\ud800", "ﬁle", [], {}, [[]], [1], [0, 8], [8, 0], [2**63, 2**63 + 8], {"a": 1},
    [2**40, 2**40], [0] * 70, [-1], "F32", "F64", "F8_E4M3", "BOOL", "X99", "U8", "I64", "torch",
)  # fmt: skip
_MAGIC = (0, 1, 7, 8, 2**16, 2**24, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)

Mutation = Callable[[bytes, random.Random], bytes]


def blind(data: bytes, rng: random.Random) -> bytes:
    """Change bytes here and there, by one to three of the `BLIND` mutations."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(BLIND)(data, rng)
    return data


def structured(data: bytes, rng: random.Random) -> bytes:
    """Change one to three things inside a file's JSON, or its body, so that lengths fit again."""
    if data[:1] == b"{":
        value = json.loads(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            value = _change(value, rng)
        return _index(value)
    header, head, body = _apart(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        which = rng.random()
        if which < 0.45:
            head = _change(head, rng)
        elif which < 0.85:
            header = _change(header, rng)
        else:
            body = rng.choice(BLIND)(body, rng) if body else rng.randbytes(8)
    return _together(header, head, body, pad=rng.random() < 0.7)


def fix_tensor_checksums(data: bytes) -> bytes:
    """Make the checksums of a mutated safetensors file fit, as far as it has a place for them."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        head = json.loads(header["__metadata__"]["cl-graft"])
        body = data[8 + length :]
        rows = {name: row for name, row in header.items() if name != "__metadata__"}
        head["tensors"] = {
            name: hashlib.sha256(body[slice(*row["data_offsets"])]).hexdigest()
            for name, row in sorted(rows.items())
        }
        rest = {key: value for key, value in head.items() if key != "checksum"}
        data = _together(header, {"checksum": BLANK, **rest}, body, pad=True)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # its structure is gone; the checksum alone may fit
    if data[8 : 8 + len(_PLACES)] != _PLACES:
        return data
    place = 8 + len(_PLACES)
    digits = checksum(data, start=_PLACES, at=8)
    return data[:place] + digits.encode() + data[place + len(digits) :]


def fix_index_checksum(data: bytes) -> bytes:
    """Make the hashes in a mutated `bank.json` fit, if it is still an object."""
    try:
        value = json.loads(data)
        listed = json.dumps(value.get("entries"), separators=(",", ":")).encode()
        value["entries_sha256"] = hashlib.sha256(listed).hexdigest()
        rest = {key: item for key, item in value.items() if key != "checksum"}
    except (ValueError, AttributeError):
        return data
    blank = _index({"checksum": BLANK, **rest})
    digits = checksum(blank, start=JSON_START)
    return blank.replace(BLANK.encode(), digits.encode(), 1)


def _flip_bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8)) if changed else 0):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 32, 34, 127, 128, 255))
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _extend(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice((b"\0", b" ", b"}", rng.randbytes(rng.randrange(1, 64)), data))


def _delete(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + data[end:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.randbytes(rng.choice((1, 8, 64))) + data[place:]


def _double(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:end] + data[begin:end] + data[end:]


def _swap(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((1, 4, 32))
    if len(data) < 2 * size:
        return data[::-1]
    first = rng.randrange(len(data) - 2 * size + 1)
    second = rng.randrange(first + size, len(data) - size + 1)
    middle = data[first + size : second]
    a, b = data[first : first + size], data[second : second + size]
    return data[:first] + b + middle + a + data[second + size :]


def _zero(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + bytes(end - begin) + data[end:]


def _number(data: bytes, rng: random.Random) -> bytes:
    """Put a striking number over the length at the beginning, or over eight bytes elsewhere."""
    place = 0 if rng.random() < 0.5 else rng.randrange(max(1, len(data) - 7))
    near = int.from_bytes(data[:8], "little") + rng.choice((-8, -1, 1, 8))
    number = rng.choice((*_MAGIC, near)) % 2**64
    return data[:place] + number.to_bytes(8, "little") + data[place + 8 :]


BLIND: tuple[Mutation, ...] = (
    _flip_bits,
    _set_bytes,
    _cut,
    _extend,
    _delete,
    _insert,
    _double,
    _swap,
    _zero,
    _number,
)


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 1, 8, 64)))


def _apart(data: bytes) -> tuple[Any, Any, bytes]:
    """Take a safetensors file of ours apart: header, our metadata, and the tensors' bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["cl-graft"]), data[8 + length :]


def _together(header: Any, head: Any, body: bytes, *, pad: bool) -> bytes:
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        metadata = {**header["__metadata__"], "cl-graft": _text(head).decode()}
        header = {**header, "__metadata__": metadata}
    text = _text(header)
    text += b" " * (-len(text) % 8 if pad else 0)
    return len(text).to_bytes(8, "little") + text + body


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _index(value: Any) -> bytes:
    """Write an index as the package begins it, where it still begins with its checksum."""
    text = _text(value)
    begin = b'{"checksum":"'
    return JSON_START + text.removeprefix(begin) if text.startswith(begin) else text


def _change(value: Any, rng: random.Random) -> Any:
    """Return a copy of a JSON value with one thing in it changed, added, moved or gone."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return rng.choice(_STRANGE)
    holder, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.5:
        holder[key] = rng.choice(_STRANGE)
    elif kind < 0.6:
        del holder[key]
    elif kind < 0.7:
        other, there = rng.choice(places)
        holder[key] = copy.deepcopy(other[there])
    elif kind < 0.85:
        holder[key] = _nudged(holder[key], rng)
    elif isinstance(holder, dict):
        holder[rng.choice(("new", "", "__metadata__", "checksum", "a" * 300))] = holder[key]
    else:
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    return value


def _nudged(value: Any, rng: random.Random) -> Any:
    """Return nearly the same value."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + rng.choice((-1, 1, -8, 8))
    if isinstance(value, str):
        place = rng.randrange(len(value) + 1)
        return value[:place] + rng.choice(("", "x", "0", "\\", '"', "/")) + value[place + 1 :]
    if isinstance(value, list):
        return value[::-1] if len(value) > 1 else [*value, *value, 0]
    return dict(reversed(value.items()))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a JSON value, as its container and key."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    found = [(value, key) for key in keys]
    for key in keys:
        found += _places(value[key])
    return found
