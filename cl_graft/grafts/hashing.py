"""Hashes of tensors, models, files, and of the environment that bits depend on.

Hashes go over names, dtypes, shapes and raw bytes, so two models have one fingerprint exactly if
they hold the same bits under the same names.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.runtime.tensor_names import tensors_by_name


def tensor_bytes(tensor: Tensor) -> memoryview:
    r"""Return a tensor's raw bytes in row-major order.

    Examples:
        >>> bytes(tensor_bytes(torch.tensor([1, 256], dtype=torch.int16)))
        b'\x01\x00\x00\x01'
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over named tensors: names, dtypes, shapes and bytes, in sorted order.

    Examples:
        >>> hash_tensors({"bias": torch.zeros(2)})[:16]
        '517fb2c66b6f329b'
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def model_fingerprint(
    model: nn.Module, *, exclude: Iterable[str] = ("heads",), tokenizer: str = ""
) -> str:
    """Return the SHA-256 of every parameter and buffer outside the heads, and of the tokenizer.

    Args:
        model: The model at its base.
        exclude: Module paths to leave out (the task heads); ``""`` is the model itself.
        tokenizer: The tokenizer's own serialization; empty for models without one.
    """
    return fingerprint_weights(model_sha256(model, exclude=exclude), tokenizer=tokenizer)


def fingerprint_weights(weights: str, *, tokenizer: str = "") -> str:
    """Return `model_fingerprint` of a model whose `model_sha256` is known.

    Examples:
        >>> fingerprint_weights("0" * 64, tokenizer="{}")[:16]
        '5508d2b710e64bc4'
    """
    return hashlib.sha256(f"{weights}{tokenizer}".encode()).hexdigest()


def model_sha256(model: nn.Module, *, exclude: Iterable[str] = ("heads",)) -> str:
    """Return the SHA-256 of every parameter and buffer outside the heads.

    Args:
        model: The model.
        exclude: Module paths of the heads; empty stands for the model itself.

    Examples:
        >>> model = nn.Linear(2, 1)
        >>> before = model_sha256(model)
        >>> with torch.no_grad():
        ...     _ = model.bias.add_(1)
        >>> model_sha256(model) == before
        False
    """
    prefixes = tuple(f"{prefix}." if prefix else "" for prefix in exclude)
    tensors = tensors_by_name(model)
    kept = {n: t for n, t in tensors.items() if not n.startswith(prefixes)} if prefixes else tensors
    return hash_tensors(kept)


def file_sha256(path: Path | str) -> str:
    """Return the SHA-256 of a file.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "empty"
        ...     path.touch()
        ...     file_sha256(path)[:12]
        'e3b0c44298fc'
    """
    path = Path(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def environment(device: torch.device | str = "cpu") -> dict[str, str]:
    """Describe what bit-exactness across processes depends on."""
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "torch": torch.__version__,
        "device": device.type,
        "device_name": name,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
    }
