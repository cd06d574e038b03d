"""The bank of a run: its folder, and the checks of the files around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import file_sha256
from cl_graft.settings import ExperimentConfig, config_from, merge_configs, run_files, to_dotted
from cl_graft.settings.bank_metadata import checkpoint_files
from cl_graft.settings.run_files import CONFIG, RESULTS, RunRecord, is_run, read_config_file
from cl_graft.settings.tasks import load_tasks


@dataclass(frozen=True)
class Check:
    """One thing that was compared with what was recorded.

    ``"other here"`` is another version or machine, which is no fault; ``"not checked"`` means that
    the thing could not be read. `detail` is the difference, or the reason why nothing was compared.
    """

    what: str
    outcome: Literal["same", "differs", "other here", "not recorded", "not checked"]
    detail: str = ""


def find_bank_folder(folder: Path | str) -> Path:
    """Return the folder of a bank, given the bank or the run that holds it."""
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"there is no folder {folder}")
    if (folder / "bank" / "bank.json").is_file():
        return folder / "bank"
    if is_run(folder) and not (folder / RESULTS).is_file():
        raise InputError(
            f"the run {folder} holds no {RESULTS}: it is not finished (cl-graft run --resume goes "
            "on with it), or the file was deleted"
        )
    if (folder / "results.json").is_file():
        raise InputError(
            f"the run {folder} holds no bank: only runs of grafting have one; name such a run"
        )
    runs = sorted(str(path.parent.parent) for path in folder.glob("*/seed*/bank/bank.json"))
    if runs:
        raise InputError(f"{folder} is no bank and no run; name one of its runs: {', '.join(runs)}")
    return folder


def check_checkpoint(recorded: Mapping[str, object], folder: Path) -> Iterator[Check]:
    """Compare every file of the base's checkpoint with those that the base's metadata record.

    A checkpoint that was saved again has other files though its weights, which are checked when it
    is loaded, are the same.
    """
    files = recorded.get("files")
    if not isinstance(files, Mapping) or not files:
        yield Check("base checkpoint", "not recorded")
        return
    files_here = checkpoint_files(folder)
    for name, sha256 in cast(Mapping[str, str], files).items():
        what = f"base {name}"
        if name not in files_here:
            yield Check(what, "differs", f"is missing in {folder}")
        elif files_here[name] != sha256:
            yield Check(
                what,
                "differs",
                "is another file; weights, tokenizer and config in use are the same",
            )
        else:
            yield Check(what, "same")


def check_run(
    run: Path, result: RunRecord, *, fingerprint: str, device: torch.device
) -> Iterator[Check]:
    """Compare the files, settings, base, data and versions of a run with the recorded ones."""
    recorded = run_files.read_hashes(run)
    yield Check(RESULTS, "same")
    config = read_config_file(run)
    yield from check_files(run, recorded, complete=result.complete)
    if config is not None and result.config:
        shared, settings = to_dotted(run_files.select_settings(config)), to_dotted(result.config)
        other = [name for name in settings if shared.get(name) != settings[name]]
        detail = f"of {RESULTS} and {CONFIG} differ in {', '.join(other)}" if other else ""
        yield Check("settings", "differs" if other else "same", detail)
    here = result.model.get("fingerprint")
    yield Check("base model", "same" if here == fingerprint else "differs")
    yield from _check_data(run, result)
    now = run_files.versions(device)
    for name, version in result.versions.items():
        if now.get(name) != version:
            detail = f"{version}, here {now.get(name)}"
            yield Check(name, "other here", detail)


def read_run_config(run: Path, result: RunRecord) -> ExperimentConfig:
    """Return the config of a run, from its results or, before they held it, from `config.json`."""
    values: Mapping[str, Any] = result.config or read_config_file(run) or {}
    settings = merge_configs(
        run_files.select_settings(values), {"comparison": {"seeds": [result.seed]}}
    )
    return config_from(settings, source=f"{run}: the run's config")


def check_files(run: Path, recorded: Mapping[str, str], *, complete: bool) -> Iterator[Check]:
    """Compare the files beside the results; tables of an unfinished run may be one task ahead."""
    for name, sha256 in recorded.items():
        if name != CONFIG and not complete:
            continue
        if not (run / name).is_file():
            yield Check(name, "differs", "is missing")
        elif file_sha256(run / name) != sha256:
            yield Check(name, "differs", f"is not the file that {RESULTS} lists")
        else:
            yield Check(name, "same")


def _check_data(run: Path, result: RunRecord) -> Iterator[Check]:
    """Read the data again and compare their fingerprints."""
    try:
        tasks = load_tasks(read_run_config(run, result).stream, seed=result.seed)
    except InputError as error:
        yield Check("data", "not checked", str(error))
        return
    for task in tasks:
        same = result.data_fingerprints.get(task.name) == task.fingerprint
        detail = "" if same else "has other rows or labels than the run saw"
        yield Check(f"data of {task.name}", "same" if same else "differs", detail)
