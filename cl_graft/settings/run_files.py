"""The files of a run, as far as a bank needs them: its config, its results, and its lock."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from cl_graft.errors import BankError, DamagedFile, ForeignFile, InputError
from cl_graft.grafts.hashing import environment
from cl_graft.storage import only_writer
from cl_graft.storage.files import load_json

CONFIG, RESULTS = "config.json", "results.json"
CACHE, CHECKPOINTS = "cache", "checkpoints"
BANK = "bank"
"""The folder of a run's bank in the run's folder."""

CONFIG_FORMAT, RESULTS_FORMAT = "cl-graft-config", "cl-graft-results"
BESIDE_SETTINGS = ("strategy", "seed", "command", "processes", "tuning")
"""Fields of a run's stored config beside its settings."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a run recorded of itself, its base and its data.

    `routed` is the share of the test rows that their own task answered, cells as in `RunResult.R`,
    if the strategy picks tasks by itself. `logit_hashes` are SHA-256 over the test logits by task,
    right after it was ``"learned"`` and at the ``"end"``. `model` has name, family, fingerprint and
    graftable coordinates of the base, and `config` all settings, as JSON.
    """

    strategy: str
    seed: int
    tasks: list[str]
    complete: bool
    routed: Any = None
    logit_hashes: dict[str, dict[str, str]]
    data_fingerprints: dict[str, str]
    model: dict[str, Any]
    versions: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)


def find_run_of_bank(bank: Path) -> Path | None:
    """Return the run that made a bank, if the bank's folder lies in it, also through a link."""
    run = bank.resolve().parent
    return run if bank.resolve().name == BANK and (run / CONFIG).is_file() else None


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds the config of a run."""
    try:
        return {"strategy", "seed"} <= set(read_config_file(folder) or {})
    except (BankError, InputError):
        return False


@contextmanager
def lock_bank(bank: Path | str) -> Iterator[None]:
    """Lock a bank, and the run whose folder holds it, for a block."""
    bank = Path(bank).resolve()
    with ExitStack() as held:
        if (bank.parent / CONFIG).is_file():
            held.enter_context(only_writer(bank.parent))
        held.enter_context(only_writer(bank))
        yield


def read_config_file(folder: Path) -> dict[str, Any] | None:
    """Return the config of a run or a comparison; None if the folder has none."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        return load_json(path.read_bytes(), format=CONFIG_FORMAT, name=str(path))
    except ForeignFile:
        raise InputError(f"{path}: not the config of a run; choose another output folder") from None


def select_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in what `read_config_file` returned, without the fields of the run."""
    return {name: value for name, value in stored.items() if name not in BESIDE_SETTINGS}


def read_record(folder: Path | str) -> RunRecord:
    """Read what a run recorded of itself in its `results.json`."""
    path = Path(folder) / RESULTS
    values = read_values(path)
    with report_missing_parts(path):
        known = {field.name: values[field.name] for field in fields(RunRecord)}
    return RunRecord(**known)


@contextmanager
def report_missing_parts(path: Path) -> Iterator[None]:
    """Turn errors of reading the values of a `results.json` into those of its file."""
    try:
        yield
    except KeyError as error:
        raise InputError(f"{path}: not the results of a run: {error} is missing") from None
    except (ValueError, TypeError) as error:
        raise DamagedFile(f"{path} is damaged: {error}") from None


def read_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files beside a run's results."""
    return read_values(folder / RESULTS)["files"]


def read_values(path: Path) -> dict[str, Any]:
    """Return what stands in a `results.json`, once it matches its checksum."""
    try:
        return load_json(path.read_bytes(), format=RESULTS_FORMAT, name=str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot read the results: {error.strerror}") from None
    except ForeignFile as error:
        raise InputError(f"{path}: not the results of a run: {error}") from None


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions of the packages that results depend on, and what bits depend on."""
    return _package_versions() | environment(device)


@functools.cache
def _package_versions() -> dict[str, str]:
    names = ("cl-graft", "transformers", "avalanche-lib", "datasets", "numpy", "torchvision")
    versions: dict[str, str] = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "from source" if name == "cl-graft" else "not installed"
    return versions
