"""A store of tensors by key: in memory up to a bound, past it in temporary files.

It is apart from what is stored, so that the bound is kept in one place.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Hashable
from pathlib import Path
from weakref import finalize

import torch
from torch import Tensor

__all__ = ["RowStore"]

logger = logging.getLogger(__name__)

_CHUNK = 32 * 2**20
"""Bytes that are asked for at a time."""

_LEFT_FREE = 2**27
"""Bytes that are left free on the disk, for checkpoints and entries."""


class _Chunk:
    """Some memory or a file, filled with tensors one behind the other.

    Attributes:
        tensor: Flat tensor that holds them.
        used: Number of elements that are in use.
        keys: Keys of what it holds.
        age: Number of the `begin` before which it was made.
        in_file: Whether a file holds it.
    """

    def __init__(self, tensor: Tensor, *, age: int, in_file: bool) -> None:
        self.tensor = tensor
        self.used = 0
        self.keys: list[Hashable] = []
        self.age = age
        self.in_file = in_file

    def fits(self, tensor: Tensor) -> bool:
        """Tell whether there is room for a tensor of this kind."""
        return (
            self.tensor.dtype == tensor.dtype
            and (self.in_file or self.tensor.device == tensor.device)
            and self.used + tensor.numel() <= self.tensor.numel()
        )


class RowStore:
    """Tensors by key, in memory up to a bound and in temporary files past it.

    Files lie in the folder of the system's temporary files (`tempfile`). They have no name where
    the system allows that, so nothing is left of them after the process, however it ends. Where the
    disk is nearly full, no more is stored.

    Args:
        memory: Bytes in memory, at least 0.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._age = 0
        self._chunks: list[_Chunk] = []
        self._places: dict[Hashable, tuple[_Chunk, int, tuple[int, ...]]] = {}
        self._folder: Path | None = None
        self._files = 0
        self._is_full = False

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of memory that are in use."""
        return self._bytes(in_file=False)

    @property
    def bytes_in_files(self) -> int:
        """Bytes of files that are in use."""
        return self._bytes(in_file=True)

    def get(self, key: Hashable) -> Tensor | None:
        """Return the tensor of a key, on the device where it is held; None if there is none."""
        place = self._places.get(key)
        if place is None:
            return None
        chunk, start, shape = place
        size = torch.Size(shape)
        return chunk.tensor[start : start + size.numel()].view(size)

    def put(self, key: Hashable, tensor: Tensor) -> None:
        """Copy a tensor into the store, unless it holds the key or the disk is nearly full."""
        if key in self._places:
            return
        chunk = next((chunk for chunk in reversed(self._chunks[-2:]) if chunk.fits(tensor)), None)
        chunk = chunk or self._add_chunk(tensor)
        if chunk is None:
            return
        end = chunk.used + tensor.numel()
        chunk.tensor[chunk.used : end].copy_(tensor.detach().reshape(-1))
        self._places[key] = (chunk, chunk.used, tuple(tensor.shape))
        chunk.keys.append(key)
        chunk.used = end

    def begin(self) -> None:
        """Let what is stored until now give way to what comes, where memory is short."""
        self._age += 1

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()
        self._places.clear()
        self._is_full = False

    def _add_chunk(self, tensor: Tensor) -> _Chunk | None:
        """Return a new chunk with room for a tensor; None where the disk is nearly full."""
        if self._is_full:
            return None
        size = max(_CHUNK, tensor.nbytes)
        old = [chunk for chunk in self._chunks if chunk.age < self._age]
        while old and self.bytes_in_memory + size > self._memory:
            self._drop(old.pop(0))
        count = size // tensor.element_size()
        in_file = self.bytes_in_memory + size > self._memory
        try:
            room = self._map_file(count, tensor.dtype) if in_file else tensor.new_empty(count)
        except (OSError, RuntimeError) as error:  # torch's own where a file cannot be mapped
            logger.warning("states are computed again from here on, not stored: %s", error)
            self._is_full = True
            return None
        self._chunks.append(_Chunk(room, age=self._age, in_file=in_file))
        return self._chunks[-1]

    def _drop(self, chunk: _Chunk) -> None:
        self._chunks.remove(chunk)
        for key in chunk.keys:
            del self._places[key]

    def _map_file(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return a tensor whose memory is a new file."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cl_graft-"))
            finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._files += 1
        path = self._folder / str(self._files)
        size = count * dtype.itemsize
        left = shutil.disk_usage(self._folder).free - size
        if left < _LEFT_FREE:
            raise OSError(f"the disk of {self._folder.parent} is nearly full")
        try:
            # Written, as a file with holes ends the process on full disks.
            with path.open("wb") as file:
                for _ in range(-(-size // 2**20)):
                    file.write(bytes(2**20))
            return torch.from_file(str(path), shared=True, size=count, dtype=dtype)
        finally:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                logger.debug("%s is deleted with its folder", path)

    def _bytes(self, *, in_file: bool) -> int:
        return sum(chunk.tensor.nbytes for chunk in self._chunks if chunk.in_file == in_file)
