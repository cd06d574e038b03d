"""The folders of experiments: OUT/<strategy>/seed<k>/ is a run, OUT/cache/ is shared.

A run's folder holds the resolved config beside its results.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cl_graft.errors import CannotWrite, DivergedError, InputError, OutOfMemory
from cl_graft.lab.results.run_results import BESIDE, RunResult, read_result
from cl_graft.settings import RUN_CHOICES, ExperimentConfig, config_from, merge_configs, to_dotted
from cl_graft.settings.run_files import (
    BANK,
    CACHE,
    CHECKPOINTS,
    CONFIG,
    CONFIG_FORMAT,
    RESULTS,
    read_config_file,
    select_settings,
)
from cl_graft.settings.stream_settings import StreamTaskSettings
from cl_graft.storage import LOCK, OWNER, only_writer
from cl_graft.storage.files import delete_partial_files, dump_json, is_partial, replace_file
from cl_graft.strategies.registry import STRATEGIES

CURVES, TUNING = "tensorboard", "tuning"
ENGINE = "engine"
"""Folder of an engine's files while a comparison runs."""
REPORT = "report"
"""Folder that `cl-graft report` writes."""
_OURS = {*BESIDE, RESULTS, BANK, CURVES, CHECKPOINTS, REPORT}


def run_folder(out: Path | str, strategy: str, seed: int) -> Path:
    """Return the folder of a run."""
    return Path(out) / strategy / f"seed{seed}"


def curves_folder(run: Path) -> Path:
    """Return the folder of a run's curves, ``OUT/tensorboard/<strategy>-seed<k>``.

    TensorBoard names runs by their folders.
    """
    return run.parent.parent / CURVES / f"{run.parent.name}-{run.name}"


def delete_leftovers(folder: Path) -> None:
    """Delete what killed writes left in a run's folder, to which no other process writes."""
    if folder.is_dir():
        delete_partial_files(folder.rglob(".*"))
        if (folder / BANK).is_dir():
            with only_writer(folder / BANK):
                pass  # takes over the lock of a killed writer, and releases it


def write_config(folder: Path, values: Mapping[str, Any]) -> None:
    """Write a resolved config into its folder, and how its run or comparison began."""
    replace_file(folder / CONFIG, dump_json(dict(values), format=CONFIG_FORMAT))


def differences(stored: Mapping[str, Any], config: ExperimentConfig) -> list[str]:
    """List what differs in a stored config, as ``"stream.shots 512 there, 64 here"``."""
    now = to_dotted(config.shared_values())
    # Settings that were added after the config was stored had the values that are defaults now.
    defaults = to_dotted(config_from({"stream": {"tasks": config.stream.tasks}}).shared_values())
    there = {**defaults, **to_dotted(select_settings(stored))}
    plain = asdict(StreamTaskSettings())
    by_name = there["stream.task_settings"]
    there["stream.task_settings"] = {name: {**plain, **by_name[name]} for name in by_name}
    # Settings of strategies that the folder does not hold may be added with them.
    compared = stored.get("comparison", {}).get("strategies", [])
    held = [stored["strategy"]] if "strategy" in stored else compared
    for values in (there, now):
        by_name = values["comparison.strategy_settings"]
        values["comparison.strategy_settings"] = {name: by_name.get(name, {}) for name in held}
    return [
        f"{name} {json.dumps(there.get(name))} there, {json.dumps(now.get(name))} here"
        for name in sorted({*there, *now} - RUN_CHOICES)
        if not name.startswith("output.") and there.get(name) != now.get(name)
    ]


def find_finished(folder: Path, config: ExperimentConfig) -> RunResult | None:
    """Return the results of a run with this config that is complete; None if there is none.

    An InputError says that the folder holds a run with another config, or something else.
    """
    if not folder.exists() or (folder.is_dir() and not _content(folder)):
        return None
    stored = read_config_file(folder) if folder.is_dir() else None
    if stored is None:
        raise InputError(f"{folder} holds no run of this package; choose another output folder")
    if other := differences(stored, config):
        raise InputError(
            f"{folder} holds a run with another config ({'; '.join(other)}); "
            "choose another output folder"
        )
    return _read_complete(folder)


def _read_complete(folder: Path) -> RunResult | None:
    result = read_result(folder) if (folder / RESULTS).is_file() else None
    return result if result is not None and result.complete else None


def clear_unfinished(folder: Path, *, keep: Sequence[str] = ()) -> None:
    """Delete the files of an unfinished run but those to keep, so that it can begin again.

    The caller must be its only writer. An InputError says that there are files of others in it.
    """
    if not folder.exists():
        return
    delete_leftovers(folder)
    content = _content(folder)
    foreign = sorted(path.name for path in content if path.name not in _OURS)
    if foreign:
        raise InputError(
            f"{folder} holds an unfinished run and files that are not this package's "
            f"({', '.join(foreign[:3])}); move them away, or choose another output folder"
        )
    for path in content:
        if path.name not in keep:
            _delete(path)
    curves = curves_folder(folder)
    if curves.exists():  # otherwise another run may be about to write into the common folder
        _delete(curves)
        with suppress(OSError):  # those of other runs may be in it
            curves.parent.rmdir()


def refuse_links(folder: Path) -> None:
    """Raise an InputError if checkpoints or curves are links: files elsewhere would be deleted."""
    curves = curves_folder(folder)
    for path in (folder / CHECKPOINTS, curves.parent, curves):
        if path.is_symlink():
            raise InputError(
                f"{path} is a link; expected a folder, as files in it are deleted. Delete the link "
                "and move the folder that it leads to into its place, or move the whole run there"
            )


def resume_command(what: str, folder: Path, config: ExperimentConfig) -> str:
    """Return the command line that resumes what is in a folder: a ``run``, or ``compare``."""
    trusted = " --trust-remote-code" if config.model.trust_remote_code else ""
    return f"cl-graft {what} --resume {shlex.quote(str(folder))}{trusted}"


@contextmanager
def discard_empty_run(folder: Path) -> Iterator[None]:
    """Delete a run that fails before it has learned anything, so that it can begin again.

    A run that was stopped stays. A run with a checkpoint stays too, unless it would fail again in
    the same way: because it diverged, or because it began here and its input was refused.
    """
    is_new = not (folder / CONFIG).is_file()
    try:
        yield
    except Exception as error:
        refused = isinstance(error, InputError) and not isinstance(error, CannotWrite)
        again = isinstance(error, DivergedError) or (is_new and refused)
        kinds = (BANK,) if again else (BANK, CHECKPOINTS)
        saved = [path for kind in kinds for path in folder.glob(f"{kind}/**/*")]
        if not any(path.is_file() for path in [folder / RESULTS, *saved]):
            with suppress(InputError):
                clear_unfinished(folder)
        raise


def drop_comparison(out: Path) -> None:
    """Delete the config of a comparison without any result, so that another may begin there.

    What its runs have put into the cache stays: it answers any comparison.
    """
    if (out / CONFIG).is_file() and _is_empty(out):
        (out / CONFIG).unlink()
        with suppress(OSError):  # its lock and the cache may still be in it
            out.rmdir()


def _is_empty(folder: Path) -> bool:
    """Return whether a folder holds no more than configs, a cache, and folders like it."""
    return all(
        path.name in (CONFIG, CACHE, ENGINE) or (path.is_dir() and _is_empty(path))
        for path in _content(folder)
    )


@contextmanager
def add_resume_hint(folder: Path, config: ExperimentConfig) -> Iterator[None]:
    """Add the command that resumes a run to errors of a full disk or memory."""
    try:
        yield
    except (CannotWrite, OutOfMemory) as error:
        if (folder / CONFIG).is_file():
            error.args = (f"{error}; go on with: {resume_command('run', folder, config)}",)
        raise


def finish(folder: Path) -> None:
    """Delete the files that only an unfinished run needs."""
    _delete(folder / CHECKPOINTS)


def finish_killed_run(folder: Path) -> None:
    """Finish a run whose process was killed after it wrote the results."""
    if any((folder / name).exists() for name in (LOCK, OWNER, CHECKPOINTS)):
        with only_writer(folder):
            delete_leftovers(folder)
            finish(folder)


def _delete(path: Path) -> None:
    """Delete a file, a folder with all in it, or a link, whose target stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_out(out: Path, config: ExperimentConfig) -> None:
    """Raise an InputError if a folder holds another comparison, or files of others."""
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is a file; choose another output folder")
    stored = read_config_file(out)
    if stored is not None:
        other = differences(stored, config)
        swept = stored.get("comparison", {}).get("sweep", {})
        before, now = sorted(swept), sorted(config.comparison.sweep)
        if before != now:
            other.append(f"sweep of {', '.join(before) or 'nothing'} there")
        if other:
            raise InputError(
                f"{out} holds a comparison with another config ({'; '.join(other)}); "
                "choose another output folder"
            )
        return
    ours = {CACHE, CURVES, ENGINE, REPORT, *STRATEGIES}
    foreign = sorted(path.name for path in _content(out) if path.name not in ours)
    if foreign:
        raise InputError(
            f"{out} is not empty and holds no comparison ({', '.join(foreign[:3])} …); "
            "choose another output folder"
        )


def _content(folder: Path) -> list[Path]:
    """Return the paths in a folder, without its lock and partial files of killed processes."""
    paths = (path for path in folder.iterdir() if path.name not in (LOCK, OWNER))
    return [path for path in paths if not is_partial(path)]


def stored_comparison(
    out: Path | str, *, trust_remote_code: bool = False
) -> tuple[ExperimentConfig, str | None]:
    """Return the config of a comparison's folder, and the command that began it."""
    stored = read_config_file(Path(out)) or {}
    if not {"strategies", "seeds"} <= set(stored.get("comparison", {})):
        other = "a run: cl-graft run --resume goes on with it" if _is_run(stored) else "none"
        raise InputError(f"{out} should hold a comparison to go on with, but holds {other}")
    config = stored_config(Path(out), trust_remote_code=trust_remote_code)
    return config, stored.get("command")


def stored_config(folder: Path, *, trust_remote_code: bool = False) -> ExperimentConfig:
    """Return the config of a run's or a comparison's folder.

    An InputError says that there is none, that this version does not know its settings, or that it
    wants code to run that the caller does not trust.
    """
    stored = read_config_file(folder)
    if stored is None:
        raise InputError(f"{folder} holds no {CONFIG}")
    settings = select_settings(stored)
    model = settings.get("model", {})
    if model.get("trust_remote_code") and not trust_remote_code:
        raise InputError(
            f"{folder / CONFIG} wants to run Python code that comes with the checkpoint "
            f"{model.get('name')!r}; if you trust that code, say --trust-remote-code "
            "(in Python trust_remote_code=True)"
        )
    if _is_run(stored):
        of_run = {"strategies": [stored["strategy"]], "seeds": [stored["seed"]]}
        settings = merge_configs(settings, {"comparison": of_run})
    return config_from(settings, source=str(folder / CONFIG))


def find_run(folder: Path | str) -> Path:
    """Return the folder of a run: the place itself, or the only run in it that can be resumed."""
    folder = Path(folder)
    stored = read_config_file(folder)
    if stored is not None and _is_run(stored):
        return _in_place(folder, stored)
    if stored is not None:
        raise InputError(f"{folder} holds a comparison: cl-graft compare --resume goes on with it")
    runs = [
        path.parent for name in STRATEGIES for path in sorted(folder.glob(f"{name}/seed*/{CONFIG}"))
    ]
    if not runs:
        raise InputError(
            f"there is no run in {folder}; one that was stopped before its first step is begun anew"
        )
    unfinished = [folder for folder in runs if _read_complete(folder) is None]
    first, *others = unfinished or runs
    if others:
        names = ", ".join(map(str, [first, *others]))
        what = "runs that are not finished" if unfinished else "finished runs"
        raise InputError(f"{folder} holds several {what} ({names}); name one of them")
    return first


def _is_run(stored: Mapping[str, Any]) -> bool:
    return {"strategy", "seed"} <= set(stored)


def _in_place(folder: Path, stored: Mapping[str, Any]) -> Path:
    """Return a run's folder as OUT/<strategy>/seed<k>, from which it can be resumed."""
    for path in (folder, folder.resolve()):
        if path == run_folder(path.parent.parent, stored["strategy"], stored["seed"]):
            return path
    wanted = run_folder("", stored["strategy"], stored["seed"])
    raise InputError(
        f"{folder} holds a run that lay in {wanted} and was renamed; name it so again to go on "
        "with it"
    )
