"""The data of a bank's entries: found again after a run, and what is done with them.

They are read in the way in which the entry's run read them, and refused if they differ from those
that the entry was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from cl_graft.banks.add import add_task
from cl_graft.data import TextTask
from cl_graft.data.encoded_task import encode_task
from cl_graft.data.task_place import find_place
from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.metrics.task_score import Scorer
from cl_graft.models import Loaded
from cl_graft.settings import ExperimentConfig, merge_configs, override_
from cl_graft.settings.bank_metadata import read_own_settings, restore_config, task_metadata
from cl_graft.settings.run_folder import find_run_of_bank, read_config_file, select_settings
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage import append_entry, load_bank, save_bank
from cl_graft.storage.bank_folder import replace_entries
from cl_graft.storage.bank_index import staged_folder

_READ = ("data_fingerprint", "metric", "prompt", "decoding", "chat")
"""Metadata of an entry that tell how its rows were read."""


@dataclass(frozen=True, eq=False)
class EntryData:
    """The data of an entry: the task, and the name and settings that load it."""

    name: str
    settings: Mapping[str, Any]
    config: ExperimentConfig
    task: TextTask


def find_data(
    where: Path,
    entry: Entry,
    bank: GraftBank,
    data: Path | str | None,
    sets: Sequence[str],
    *,
    left: GraftBank,
) -> EntryData:
    """Load the data that an entry was trained on.

    Args:
        where: The bank's folder.
        entry: The entry.
        bank: The bank.
        data: Folder of the data; None means that of the bank's run.
        sets: Settings that differ from the bank's.
        left: Bank of the entries that it may still build on.

    Raises:
        InputError: If they cannot be found, or are others.
    """
    run = find_run_of_bank(where)
    stored = select_settings((run and read_config_file(run)) or {})
    stream = stored.get("stream", {})
    place = Path(data) if data is not None else stream.get("data") and Path(stream["data"])
    own: Mapping[str, Any] = stream.get("task_settings", {})

    def name_task(given: str) -> str:
        elsewhere = own.get(given, {}).get("rows_from")
        return given if elsewhere else find_place(given, place).name

    name = entry.task
    for given in map(str, stream.get("tasks", [])):
        with suppress(InputError):
            name = given if name_task(given) == entry.task else name
    drawn: dict[str, Any] = {"data": place, "shots": entry.metadata.get("shots")}
    drawn["max_length"] = entry.metadata.get("max_length")
    if name in own:
        drawn["task_settings"] = {name: dict(own[name])}
    settings = merge_configs(read_own_settings(entry.metadata), {"stream": drawn})
    drawn = settings["stream"]
    values = deepcopy(settings)
    known = {one.task for one in left.entries}  # the run may name what went before
    if (named := own.get(name, {}).get("builds_on")) is not None:
        names = [name_task(str(one)) for one in named]
        drawn["task_settings"][name]["builds_on"] = [one for one in names if one in known]
        del values["stream"]["task_settings"][name]["builds_on"]
    for override in sets:
        override_(values, override)
    config = restore_config(bank.base, tasks=[name], settings=values)
    if named is None and entry.builds_on is not None:
        # It was added to the bank with names that no run records.
        names = _builds_on_by_name(bank, entry.builds_on)
        own_settings = drawn.setdefault("task_settings", {}).setdefault(name, {})
        own_settings["builds_on"] = [one for one in names if one in known]
    task = load_tasks(config.stream, seed=config.comparison.seeds[0])[0]
    described = task_metadata(task, config, seed=config.comparison.seeds[0])
    now = {"metric": described.metric, **described.metadata}
    if others := [
        name for name in _READ if entry.metadata.get(name, now.get(name)) != now.get(name)
    ]:
        raise InputError(
            f"the data found for {entry.task!r} are not those that it was trained on: other rows, "
            "other labels, or other settings of how they are drawn and read (--data, --set); "
            f"of what the bank records, these differ: {', '.join(others)}"
        )
    return EntryData(name, settings, config, task)


def _builds_on_by_name(bank: GraftBank, positions: Sequence[int]) -> list[str]:
    """Return the tasks of entries, without those on which others of them build."""
    below = {under for place in positions for under in bank.builds_on(place)}
    return [bank.entries[place].task for place in positions if place not in below]


def train_again(
    where: Path,
    left: GraftBank,
    data: Sequence[EntryData | None],
    announce: Callable[[str, int], None] | None,
    *,
    first: int,
    **options: Any,
) -> list[float]:
    """Train entries again in their places, replace the bank's, and return their scores.

    They are trained in a bank of their own; the bank in `where` stays as it is until all are.

    Args:
        where: The bank's folder.
        left: The bank without the task.
        data: By entry of `left` the data to train it again, None for one that stays.
        announce: As in `replace_entries`.
        first: The first entry that is not as it is in the folder.
        **options: Those of `add_task`.
    """
    scores: list[float] = []
    with staged_folder(where) as staged:
        save_bank(replace(left, entries=left.entries[:first]), staged)
        for place, one in enumerate(data[first:], start=first):
            if one is None:
                append_entry(load_bank(staged).append(left.entries[place]), staged)
            else:
                scores.append(add_task(staged, one.name, settings=one.settings, **options).test)
        again = load_bank(staged)
    replace_entries(again, where, first=first, announce=announce)
    return scores


def encode_test_rows(loaded: Loaded, data: EntryData) -> tuple[Tensor, Tensor, str | Scorer]:
    """Encode the test rows of a task: inputs and targets, and what scores them."""
    config, task = data.config, data.task
    length = config.stream.max_length or task.max_length
    encoded = encode_task(task, loaded.tokenizer, family=config.model.family, max_length=length)
    return *encoded.splits["test"], encoded.scored_by
