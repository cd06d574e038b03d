"""The removal of a task or an entry: exact, with later entries trained again where they need it.

In isolated mode every entry stands alone, and in prefix mode no entry builds on the last one. There
the bank becomes, file by file, the one that never saw the task. Later entries that build on it
answer differently without it; these can be trained again from their data.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from cl_graft.banks.add import add_task
from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.banks.open_bank import OpenBank, open_bank, recorded_device
from cl_graft.data.task_place import find_place
from cl_graft.errors import BankError, DamagedFile, FutureVersion, InputError
from cl_graft.grafts.bank import Entry, GraftBank, find_entries, find_entry
from cl_graft.inference.task_switch import Switch
from cl_graft.models.text_generation import compare_generated, is_text_head
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.progress import Progress, Step, silent
from cl_graft.settings import merge_configs, override_, run_files
from cl_graft.settings.bank_metadata import read_own_settings, restore_config, task_metadata
from cl_graft.settings.run_files import find_run_of_bank, read_record
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage import append_entry, load_bank, save_bank
from cl_graft.storage.bank_folder import (
    STAGED,
    delete_unlisted,
    list_files,
    list_unlisted,
    open_stored_bank,
    read_index,
    replace_entries,
)

_Data = tuple[str, Mapping[str, Any]]  # name and settings that load the data of an entry
_READ = ("data_fingerprint", "metric", "prompt", "decoding", "chat")
"""Metadata of an entry that tell how its rows were read."""


@dataclass(frozen=True)
class Dependent:
    """An entry that was trained on top of the forgotten task, and how its answers change.

    Of `rows` recorded rows, `changed` get another answer once the task is removed; `difference` is
    the largest absolute change of a logit, None without such rows. `retrained` is the score on the
    task's test rows after the entry was trained again.
    """

    position: int
    task: str
    rows: int
    changed: int
    difference: float | None
    retrained: float | None = None


@dataclass(frozen=True)
class Forgotten:
    """The result of a removal, done or only tried.

    Attributes:
        bank: Folder of the bank.
        task: Name of the forgotten task.
        mode: ``"prefix"`` or ``"isolated"``.
        positions: Positions of the entries that go.
        stay: Positions, after the removal, of entries of the same name; the last of them answers.
        exact: Whether the bank, now or after re-training, is to the bit one that never learned
            these entries (re-trained with the same threads, versions and machine).
        done: Whether the bank was changed.
        dependents: Entries that were trained on top of the task.
        labels: Task labels that moved, new ones by old ones: labels have no gaps.
        traces: Folders beside the bank that still hold the task: its run's, and a cache.
    """

    bank: Path
    task: str
    mode: str
    positions: tuple[int, ...]
    stay: tuple[int, ...]
    exact: bool
    done: bool
    dependents: tuple[Dependent, ...]
    labels: Mapping[int, int]
    traces: tuple[Path, ...]


def forget(
    folder: Path | str,
    task: str | int,
    *,
    latest: bool = False,
    retrain: bool = False,
    dry_run: bool = False,
    data: Path | str | None = None,
    sets: Sequence[str] = (),
    model: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress = silent,
) -> Forgotten:
    """Remove a task, all of its entries, or one entry from a bank, if that can be done exactly.

    Where later entries build on the task and are not to be trained again, nothing is changed, and
    the result says how their answers would change. The folder is the old bank or the new one at
    every moment; files that a killed call left are deleted by the next. An entry whose file is
    damaged can be removed, too.

    Args:
        folder: The bank, or the run that holds it.
        task: The task's name, or the position of an entry, as `OpenBank.predict` takes them.
        latest: Whether only the latest entry of the name goes, so the one before answers again.
        retrain: Whether to train the entries that build on it again, with their own settings.
        dry_run: Whether to change nothing.
        data: Folder of the data of the tasks to train again; None means that of the bank's run.
        sets: Settings of re-training that differ from those, as in ``"steps=200"``.
        model: Folder or hub name of the base, if it is no longer the one that the bank recorded.
        device: Device to compute on; None means the kind that the bank recorded, or the CPU.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.
        progress: Called after every step of a phase.

    Raises:
        InputError: If there is no such task or entry, its run is not finished, another process
            writes to the bank, or the data of a task to train again are missing or others.
        BankError: If the bank cannot be read, or the base is another one.
        TypeError: If `task` is neither a name nor a position.
    """
    if not isinstance(task, str | int) or isinstance(task, bool):
        raise TypeError(
            f"forget takes a task's name or an entry's position, as `inspect` shows them, got "
            f"{task!r}"
        )
    where = find_bank_folder(folder)
    with ExitStack() as held:
        if not dry_run:
            held.enter_context(run_files.lock_bank(where))
            _refuse_unfinished(where)
            listed = {name for line in read_index(where)[0] for name in list_files(line)}
            _refuse_another_index(where, listed)
            delete_unlisted(where, listed)
        bank = open_stored_bank(where)
        name, gone = _find_removed(bank, task, latest=latest)
        first = gone[0]
        report, left, later = _plan_removal(bank, where, name, gone, done=not dry_run)
        if not later:
            if not dry_run:
                replace_entries(left, where, first=first)
            return report
        base = {"model": model, "trust_remote_code": trust_remote_code}
        again: dict[int, _Data] = {}
        if retrain:
            again = {
                position: _find_data(where, bank.entries[position], bank, data, sets, left=left)
                for position in later
            }
        device = device or recorded_device(left)
        opened = open_bank(where, device=pick_device(device), **base)
        dependents = _compare_answers(opened, gone, later, progress)
        if retrain and not dry_run:
            scores = _train_again(
                where,
                left,
                [again.get(position) for position in range(len(bank)) if position not in gone],
                first=first,
                sets=sets,
                device=device,
                progress=progress,
                **base,
            )
            pairs = zip(dependents, scores, strict=True)
            dependents = [replace(dependent, retrained=value) for dependent, value in pairs]
        known = all("settings_sha256" in bank.entries[position].metadata for position in later)
        return replace(
            report,
            exact=retrain and known,
            done=retrain and not dry_run,
            dependents=tuple(dependents),
        )


def _find_removed(bank: GraftBank, task: str | int, *, latest: bool) -> tuple[str, tuple[int, ...]]:
    """Return the name of the task that is meant, and the positions of its entries that go."""
    positions = find_entries(bank, task) if isinstance(task, str) else []
    if positions and not latest:
        return bank.entries[positions[0]].task, tuple(positions)
    position = find_entry(bank, task)  # says so where there is none
    if latest and not positions:
        raise InputError(f"latest is for a task's name; {task!r} is a position already")
    return bank.entries[position].task, (position,)


def _plan_removal(
    bank: GraftBank, where: Path, task: str, gone: tuple[int, ...], *, done: bool
) -> tuple[Forgotten, GraftBank, tuple[int, ...]]:
    """Return the report of a removal, the bank that is left, and the entries that build on it."""
    later: list[int] = []
    for position in range(len(bank)):
        if position not in gone and {*gone, *later} & {*bank.builds_on(position)}:
            later.append(position)
    labels, left = _new_labels(bank, gone), bank.without(gone)
    report = Forgotten(
        bank=where,
        task=task,
        mode=bank.mode,
        positions=gone,
        stay=tuple(find_entries(left, task)),
        exact=True,
        done=done,
        dependents=(),
        labels={old: new for old, new in labels.items() if old != new},
        traces=_find_traces(where, task),
    )
    entries = tuple(
        entry.renumber(label=labels[entry.label], builds_on=entry.builds_on)
        for entry in left.entries
    )
    return report, replace(left, entries=entries), tuple(later)


def _compare_answers(
    opened: OpenBank, gone: Sequence[int], later: Sequence[int], progress: Progress
) -> list[Dependent]:
    """Compare the answers of later entries to their recorded rows, with the task and without."""
    bank = opened.bank
    stay = [position for position in range(len(bank)) if position not in gone]
    other = replace(opened, switch=Switch(opened.loaded.model, bank.without(gone)))
    dependents: list[Dependent] = []
    for number, position in enumerate(later):
        entry = bank.entries[position]
        dependent = Dependent(position, entry.task, 0, 0, None)
        if entry.recorded_batch is not None:
            rows = entry.recorded_batch.inputs
            with suppress(DamagedFile, FutureVersion):  # of the entries that go
                then = opened.logits(rows, position)
                opened.switch.to(None)
                now = other.logits(rows, stay.index(position))
                other.switch.to(None)
                if is_text_head(entry.head):
                    differs, (then, now) = compare_generated(then, now)
                elif then.shape[-1] == 1:  # numbers; else labels, tags, or the ends of an answer
                    differs = then != now
                else:
                    differs = then.argmax(-1) != now.argmax(-1)
                changed = int(differs.reshape(len(then), -1).any(1).sum())
                most = float((then - now).abs().max())
                dependent = Dependent(position, entry.task, len(then), changed, most)
        dependents.append(dependent)
        progress(Step("compare", number + 1, len(later), entry.task, "grafting", 0))
    return dependents


def _new_labels(bank: GraftBank, gone: Sequence[int]) -> dict[int, int]:
    """Return the labels of entries that stay, new ones by old ones.

    `run` and `add` number tasks without gaps. A bank whose labels are its owner's keeps them.
    """
    seen = list(dict.fromkeys(entry.label for entry in bank.entries))
    numbered = seen == list(range(len(seen)))
    stay = (entry.label for position, entry in enumerate(bank.entries) if position not in gone)
    return {old: new if numbered else old for new, old in enumerate(dict.fromkeys(stay))}


def _refuse_another_index(where: Path, listed: Set[str]) -> None:
    """Refuse an index that lacks files and does not list others: these would be deleted."""
    missing = sorted(name for name in listed if not (where / name).is_file())
    if missing and (lost := list_unlisted(where, listed)):
        raise BankError(
            f"{where} lacks {missing[0]}, which its bank.json lists, and holds {lost[0]}, which it "
            "does not list: bank.json is probably that of another bank; put the right one back, or "
            "delete what is not listed"
        )


def _refuse_unfinished(where: Path) -> None:
    """Refuse a bank whose run is not finished: `--resume` would learn the task again."""
    run = find_run_of_bank(where)
    if run and not ((run / run_files.RESULTS).is_file() and read_record(run).complete):
        raise InputError(
            f"the run {run} is not finished; go on with it (cl-graft run --resume "
            f"{quote(str(run))}), and let its bank forget afterwards"
        )


def _find_traces(where: Path, task: str) -> tuple[Path, ...]:
    """Return the folders beside the bank that hold a task."""
    run = find_run_of_bank(where)
    if run is None or not (run / run_files.RESULTS).is_file() or task not in read_record(run).tasks:
        return ()
    cache = run.parent.parent / run_files.CACHE
    return (run, cache) if cache.is_dir() else (run,)


def _find_data(
    where: Path,
    entry: Entry,
    bank: GraftBank,
    data: Path | str | None,
    sets: Sequence[str],
    *,
    left: GraftBank,
) -> _Data:
    """Load the data that an entry was trained on, from a folder or where the bank's run had them.

    `left` holds the entries that it may still build on; others than its data are refused.
    """
    run = find_run_of_bank(where)
    stored = run_files.select_settings((run and run_files.read_config_file(run)) or {})
    stream = stored.get("stream", {})
    folder = Path(data) if data is not None else stream.get("data") and Path(stream["data"])
    task_settings: Mapping[str, Any] = stream.get("task_settings", {})

    def name_task(given: str) -> str:
        elsewhere = task_settings.get(given, {}).get("rows_from")
        return given if elsewhere else find_place(given, folder).name

    name = entry.task
    for given in map(str, stream.get("tasks", [])):
        with suppress(InputError):
            name = given if name_task(given) == entry.task else name
    drawn: dict[str, Any] = {"data": folder, "shots": entry.metadata.get("shots")}
    drawn["max_length"] = entry.metadata.get("max_length")
    if name in task_settings:
        drawn["task_settings"] = {name: dict(task_settings[name])}
    settings = merge_configs(read_own_settings(entry.metadata), {"stream": drawn})
    drawn = settings["stream"]
    values = deepcopy(settings)
    known = {other.task for other in left.entries}  # the run may name what went before
    if (named := task_settings.get(name, {}).get("builds_on")) is not None:
        names = [name_task(str(other)) for other in named]
        drawn["task_settings"][name]["builds_on"] = [other for other in names if other in known]
        del values["stream"]["task_settings"][name]["builds_on"]
    for override in sets:
        override_(values, override)
    config = restore_config(bank.base, tasks=[name], settings=values)
    if named is None and entry.builds_on is not None:
        # It was added to the bank with names that no run records. Those on which others of them
        # build are left out.
        below = {under for position in entry.builds_on for under in bank.builds_on(position)}
        names = [bank.entries[p].task for p in entry.builds_on if p not in below]
        own_settings = drawn.setdefault("task_settings", {}).setdefault(name, {})
        own_settings["builds_on"] = [other for other in names if other in known]
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
    return name, settings


def _train_again(
    where: Path, left: GraftBank, data: Sequence[_Data | None], *, first: int, **options: Any
) -> list[float]:
    """Train entries again in their places, replace the bank's, and return their scores.

    The bank in `where` stays as it is until all are trained. `data` has one element for each entry
    of `left`, None for one that stays; the entries before `first` are those of the folder.
    """
    scores: list[float] = []
    staged = where / STAGED
    shutil.rmtree(staged, ignore_errors=True)
    try:
        save_bank(replace(left, entries=left.entries[:first]), staged)
        for position, again in enumerate(data[first:], start=first):
            if again is None:
                append_entry(load_bank(staged).append(left.entries[position]), staged)
            else:
                added = add_task(staged, again[0], settings=again[1], **options)
                scores.append(added.test)
        bank = load_bank(staged)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    replace_entries(bank, where, first=first)
    return scores
