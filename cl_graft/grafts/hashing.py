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
    r"""Return a tensor's raw bytes in row-major order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over named tensors: names, dtypes, shapes and bytes, in sorted order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def fingerprint_weights(weights: str, *, tokenizer: str = "") -> str:
    """Return the SHA-256 of a model whose `model_sha256` is known, and of its tokenizer's file."""
    return hashlib.sha256(f"{weights}{tokenizer}".encode()).hexdigest()


def model_sha256(model: nn.Module, *, exclude: Iterable[str] = ("heads",)) -> str:
    """Return the SHA-256 of every parameter and buffer outside the heads.

    Of the module paths of the heads, ``""`` is the model itself.
    """
    prefixes = tuple(f"{prefix}." if prefix else "" for prefix in exclude)
    tensors = tensors_by_name(model)
    return hash_tensors({n: t for n, t in tensors.items() if not n.startswith(prefixes)})


def file_sha256(path: Path | str) -> str:
    """Return the SHA-256 of a file."""
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
