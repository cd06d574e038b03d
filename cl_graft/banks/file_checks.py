"""What stands beside a bank, checked: the files of its run, its data, its base's checkpoint.

Nothing is computed again here but hashes. Each check gives findings, one a thing that was looked
at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch

from cl_graft.errors import InputError
from cl_graft.experiments.bank_metadata import checkpoint_files
from cl_graft.experiments.config import ExperimentConfig, config_from, dotted, merged
from cl_graft.experiments.config.old_configs import from_flat
from cl_graft.experiments.folders import CONFIG, read_config, select_settings
from cl_graft.experiments.tasks import load_tasks
from cl_graft.grafts.hashing import file_sha256
from cl_graft.results.run_results import RESULTS, RunResult, read_hashes, versions

__all__ = ["Finding", "checkpoint_findings", "file_findings", "recorded_config", "run_findings"]


@dataclass(frozen=True)
class Finding:
    """One thing that was compared with what was recorded.

    Attributes:
        what: The thing, such as ``"config.json"`` or ``"data of topic"``.
        outcome: ``"other here"`` is no fault: a version or a machine may be another. What could
            not be looked at is ``"not checked"``, what nobody wrote down ``"not recorded"``.
        detail: What differs, or why it was not checked.
    """

    what: str
    outcome: Literal["same", "differs", "other here", "not recorded", "not checked"]
    detail: str = ""


def checkpoint_findings(recorded: Mapping[str, object], folder: Path) -> Iterator[Finding]:
    """Compare every file of the base's checkpoint.

    A checkpoint that was saved again has other files though its weights, which are checked when
    it is loaded, are the same; whoever knows that can go on with it.

    Args:
        recorded: What `base_identity` wrote of the base; files under ``"files"``.
        folder: Where the base was loaded from.
    """
    files = recorded.get("files")
    if not isinstance(files, Mapping) or not files:
        yield Finding("base checkpoint", "not recorded")
        return
    found = checkpoint_files(folder)
    for name, sha256 in cast(Mapping[str, str], files).items():
        what = f"base {name}"
        if name not in found:
            yield Finding(what, "differs", f"is missing in {folder}")
        elif found[name] != sha256:
            yield Finding(what, "differs", "is another file; the weights in use are the same")
        else:
            yield Finding(what, "same")


def run_findings(
    run: Path, result: RunResult, *, fingerprint: str, device: torch.device
) -> Iterator[Finding]:
    """Compare what a run recorded with what there is.

    Args:
        run: Its folder; `results.json` itself was checked when it was read.
        result: What stands there.
        fingerprint: That of the base that was loaded.
        device: Where this process computes.

    Raises:
        BankError: If `config.json` is altered.
    """
    recorded = read_hashes(run)
    yield Finding(RESULTS, "same" if recorded is not None else "not recorded")
    config = read_config(run)
    yield from file_findings(run, recorded or {}, complete=result.complete)
    if config is not None and result.config:
        shared, own = dotted(select_settings(config)), dotted(from_flat(result.config))
        other = [name for name in own if shared.get(name) != own[name]]
        detail = f"of {RESULTS} and {CONFIG} differ in {', '.join(other)}" if other else ""
        yield Finding("settings", "differs" if other else "same", detail)
    here = result.model.get("fingerprint")
    yield Finding("base model", "same" if here == fingerprint else "differs")
    yield from _data(run, result)
    now = versions(device)
    for name, version in result.versions.items():
        if now.get(name) != version:
            detail = f"{version}, here {now.get(name)}"
            yield Finding(name, "other here", detail)


def recorded_config(run: Path, result: RunResult) -> ExperimentConfig:
    """Return the config of a run, from its results or, before they held it, from `config.json`.

    Raises:
        InputError: If there is none, or this package does not know it.
    """
    values: Mapping[str, Any] = result.config or read_config(run) or {}
    settings = merged(from_flat(select_settings(values)), {"comparison": {"seeds": [result.seed]}})
    return config_from(settings, source=f"{run}: the run's config")


def file_findings(run: Path, recorded: Mapping[str, str], *, complete: bool) -> Iterator[Finding]:
    """Compare the files beside the results; tables of an unfinished run may be one task ahead."""
    for name, sha256 in recorded.items():
        if name != CONFIG and not complete:
            continue
        if not (run / name).is_file():
            yield Finding(name, "differs", "is missing")
        elif file_sha256(run / name) != sha256:
            yield Finding(name, "differs", f"is not the file that {RESULTS} lists")
        else:
            yield Finding(name, "same")


def _data(run: Path, result: RunResult) -> Iterator[Finding]:
    """Read the data again and compare their fingerprints."""
    try:
        tasks = load_tasks(recorded_config(run, result).stream, seed=result.seed)
    except InputError as error:
        yield Finding("data", "not checked", str(error))
        return
    for task in tasks:
        same = result.data_fingerprints.get(task.name) == task.fingerprint
        detail = "" if same else "has other rows or labels than the run saw"
        yield Finding(f"data of {task.name}", "same" if same else "differs", detail)
