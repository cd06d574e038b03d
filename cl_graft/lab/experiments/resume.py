"""The config of a run or a comparison that was stopped or killed, from its folder alone.

Relative paths in the folder's `config.json` start from the current folder, as in the command that
began. `trust_remote_code` has to be given again, as the folder may come from somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError
from cl_graft.lab.experiments import folders
from cl_graft.lab.results.run_results import read_result
from cl_graft.settings import ExperimentConfig, config_from, merge_configs
from cl_graft.settings.run_folder import RESULTS
from cl_graft.strategies.registry import STRATEGIES


def stored_comparison(
    out: Path | str, *, trust_remote_code: bool = False
) -> tuple[ExperimentConfig, str | None]:
    """Return the config of a comparison's folder, and the command that began it."""
    stored = folders.read_config_file(Path(out)) or {}
    if not {"strategies", "seeds"} <= set(stored.get("comparison", {})):
        other = "a run: cl-graft run --resume goes on with it" if _is_run(stored) else "none"
        raise InputError(f"{out} should hold a comparison to go on with, but holds {other}")
    config = stored_config(Path(out), trust_remote_code=trust_remote_code)
    return config, stored.get("command")


def stored_config(folder: Path, *, trust_remote_code: bool = False) -> ExperimentConfig:
    """Return the config of a run's or a comparison's folder.

    Raises:
        InputError: If there is none, this version does not know its settings, or it wants code to
            run that the caller does not trust.
    """
    stored = folders.read_config_file(folder)
    if stored is None:
        raise InputError(f"{folder} holds no {folders.CONFIG}")
    settings = folders.select_settings(stored)
    model = settings.get("model", {})
    if model.get("trust_remote_code") and not trust_remote_code:
        raise InputError(
            f"{folder / folders.CONFIG} wants to run Python code that comes with the checkpoint "
            f"{model.get('name')!r}; if you trust that code, say --trust-remote-code "
            "(in Python trust_remote_code=True)"
        )
    if _is_run(stored):
        own = {"strategies": [stored["strategy"]], "seeds": [stored["seed"]]}
        settings = merge_configs(settings, {"comparison": own})
    return config_from(settings, source=str(folder / folders.CONFIG))


def find_run(place: Path | str) -> Path:
    """Return the folder of a run: the place itself, or the only run in it that can be resumed.

    Raises:
        InputError: If there is none, or there are several.
    """
    place = Path(place)
    stored = folders.read_config_file(place)
    if stored is not None and _is_run(stored):
        return _in_place(place, stored)
    if stored is not None:
        raise InputError(f"{place} holds a comparison: cl-graft compare --resume goes on with it")
    runs = [
        path.parent
        for name in STRATEGIES
        for path in sorted(place.glob(f"{name}/seed*/{folders.CONFIG}"))
    ]
    if not runs:
        raise InputError(
            f"there is no run in {place}; one that was stopped before its first step is begun anew"
        )
    unfinished = [folder for folder in runs if not _is_complete(folder)]
    first, *others = unfinished or runs
    if others:
        names = ", ".join(map(str, [first, *others]))
        what = "runs that are not finished" if unfinished else "finished runs"
        raise InputError(f"{place} holds several {what} ({names}); name one of them")
    return first


def _is_run(stored: Mapping[str, Any]) -> bool:
    return {"strategy", "seed"} <= set(stored)


def _in_place(folder: Path, stored: Mapping[str, Any]) -> Path:
    """Return a run's folder as OUT/<strategy>/seed<k>, from which it can be resumed."""
    for path in (folder, folder.resolve()):
        if path == folders.run_folder(path.parent.parent, stored["strategy"], stored["seed"]):
            return path
    wanted = folders.run_folder("", stored["strategy"], stored["seed"])
    raise InputError(
        f"{folder} holds a run that lay in {wanted} and was renamed; name it so again to go on "
        "with it"
    )


def _is_complete(folder: Path) -> bool:
    return (folder / RESULTS).is_file() and read_result(folder).complete
