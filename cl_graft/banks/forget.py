"""The removal of a task or an entry: exact, with later entries trained again where they need it.

In isolated mode every entry stands alone, and in prefix mode no entry builds on the last one. There
the bank becomes, file by file, the one that a stream without the task would have made. Later
entries that build on the task answer differently without it; these can be trained again, in their
order, from their data. Those that build on others keep the bits of their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from cl_graft.banks.bank_of_run import find_bank_folder, track_change
from cl_graft.banks.entry_data import EntryData, encode_test_rows, find_data, train_again
from cl_graft.banks.open_bank import OpenBank, open_bank, recorded_device
from cl_graft.errors import BankError, InputError
from cl_graft.grafts.bank import GraftBank, find_entries, find_entry
from cl_graft.inference.task_switch import Switch
from cl_graft.metrics import score
from cl_graft.models.text_generation import compare_generated, is_text_head
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.progress import Progress, Step, silent
from cl_graft.settings.run_folder import CACHE, RESULTS, find_run_of_bank, lock_bank, read_record
from cl_graft.storage.bank_folder import open_stored_bank, replace_entries
from cl_graft.storage.bank_index import delete_unlisted, list_files, read_index
from cl_graft.storage.entry_file import ENTRY_FORMAT
from cl_graft.storage.files import read_file, unpack


@dataclass(frozen=True)
class Dependent:
    """An entry that was trained on top of the forgotten task, and how its answers change.

    Attributes:
        position: Place in the bank that still holds the forgotten task.
        task: Name of the entry's task.
        rows: Rows of the recorded batch; 0 without one.
        changed: Number of these rows that get another answer once the task is removed.
        difference: Largest absolute change of their logits; None without a recorded batch.
        metric: Name of the measure of the scores below.
        test_rows: Test rows that were scored; 0 where no data were given.
        before: Score on these rows before the removal.
        without: Score with the task removed and nothing else changed.
        retrained: Score after the entry was trained again.
    """

    position: int
    task: str
    rows: int
    changed: int
    difference: float | None
    metric: str = ""
    test_rows: int = 0
    before: float | None = None
    without: float | None = None
    retrained: float | None = None


@dataclass(frozen=True)
class Forgotten:
    """The result of a removal, done or only tried.

    Attributes:
        bank: Folder of the bank.
        task: Name of the forgotten task.
        mode: ``"prefix"`` or ``"isolated"``.
        positions: Positions of the entries that go; empty if the task was forgotten before.
        stay: Positions, after the removal, of entries of the same name; the last of them answers.
        exact: Whether the bank, now or after re-training, is to the bit one that never learned
            these entries. Re-training gives these bits where threads, versions and machine are the
            same. It is not known where the settings of an entry are not recorded (an Avalanche
            program made it).
        done: Whether the bank was changed.
        dependents: Entries that were trained on top of the task.
        labels: Task labels that moved, new ones by old ones: labels have no gaps.
        traces: Folders beside the bank that still hold the task: its run's records, and a cache
            with its tokens and the weights of its dense run.
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
    every moment, and a call that was killed is finished by calling again. Where it had nothing left
    to do but to return, the second call says that there is no such task. A call for one entry says
    what to look at before it is repeated, as that would remove the next one.

    Args:
        folder: The bank, or the run that holds it.
        task: The task's name, or the position of an entry, as `OpenBank.predict` takes them.
        latest: Whether only the latest entry of the name goes, so that the one before it answers
            again.
        retrain: Whether to train the entries that build on it again, each with the settings with
            which it was learned.
        dry_run: Whether to change nothing.
        data: Folder of the data of later tasks, to score them as well; where a run stands beside
            the bank, `retrain` finds them without.
        sets: Settings of re-training that differ from those, as in ``"steps=200"``.
        model: Folder or hub name of the base, if it is no longer the one that the bank recorded.
        device: Device to compute on; None means the kind of device that the bank recorded, or the
            CPU if that is not here.
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
    announce: Callable[[str, int], None] | None = None
    with ExitStack() as held:
        if not dry_run:
            held.enter_context(lock_bank(where))
            _refuse_unfinished(where)
            announce = held.enter_context(track_change(where))
        bank = open_stored_bank(where)
        name, gone = _find_removed(bank, where, task, latest=latest, dry_run=dry_run)
        first = gone[0] if gone else len(bank)
        report, left, later = _plan_removal(bank, where, name, gone, done=not dry_run)
        if not later:
            if not dry_run:
                replace_entries(left, where, first=first, announce=announce)
            return report
        base = {"model": model, "trust_remote_code": trust_remote_code}
        found: dict[int, EntryData] = {}
        if retrain or data is not None:
            found = {
                place: find_data(where, bank.entries[place], bank, data, sets, left=left)
                for place in later
            }
        device = device or recorded_device(bank)
        opened = open_bank(where, device=pick_device(device), **base)
        dependents = _compare_answers(opened, gone, later, found, progress)
        if retrain and not dry_run:
            scores = train_again(
                where,
                left,
                [found.get(place) for place in range(len(bank)) if place not in gone],
                announce,
                first=first,
                sets=sets,
                device=device,
                progress=progress,
                **base,
            )
            pairs = zip(dependents, scores, strict=True)
            dependents = [replace(one, retrained=value) for one, value in pairs]
        known = all("settings_sha256" in bank.entries[place].metadata for place in later)
        return replace(
            report,
            exact=retrain and known,
            done=retrain and not dry_run,
            dependents=tuple(dependents),
        )


def _find_removed(
    bank: GraftBank, where: Path, task: str | int, *, latest: bool, dry_run: bool
) -> tuple[str, tuple[int, ...]]:
    """Return the name of the task that is meant, and the positions of its entries that go.

    A name whose task was forgotten before has none.

    Raises:
        InputError: If there is no such task or entry, or a killed call for one left files.
    """
    positions = find_entries(bank, task) if isinstance(task, str) else []
    if positions and not latest:
        return bank.entries[positions[0]].task, tuple(positions)
    if (
        isinstance(task, str)
        and not positions
        and (_find_traces(where, task) or _holds_unlisted(where, task))
    ):
        return task, ()
    if not positions and not dry_run:
        delete_unlisted(where, _list_all(where))
    position = find_entry(bank, task)  # says so where there is none
    name = bank.entries[position].task
    if latest and not positions:
        raise InputError(f"latest is for a task's name; {task!r} is a position already")
    if not dry_run and _holds_unlisted(where, name):
        delete_unlisted(where, _list_all(where))
        raise InputError(
            f"a call that changed {where} was killed, and may have removed an entry of {name!r}; "
            "what it left is deleted now. See what the bank holds (cl-graft inspect), and call "
            "again if an entry is still to go"
        )
    return name, (position,)


def _plan_removal(
    bank: GraftBank, where: Path, task: str, gone: tuple[int, ...], *, done: bool
) -> tuple[Forgotten, GraftBank, tuple[int, ...]]:
    """Return the report of a removal, the bank that is left, and the entries that build on it."""
    later = _find_dependents(bank, gone)
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
    kept = tuple(
        entry.renumber(label=labels[entry.label], builds_on=entry.builds_on)
        for entry in left.entries
    )
    return report, replace(left, entries=kept), later


def _count_changed(then: Tensor, now: Tensor) -> int:
    """Count the rows whose likeliest label, tags, or ends of an answer, or number, changed."""
    if then.shape[-1] == 1:
        return int((then != now).reshape(len(then), -1).any(1).sum())
    return int((then.argmax(-1) != now.argmax(-1)).reshape(len(then), -1).any(1).sum())


def _compare_answers(
    opened: OpenBank,
    gone: Sequence[int],
    later: Sequence[int],
    data: Mapping[int, EntryData],
    progress: Progress,
) -> list[Dependent]:
    """Compare the answers of later entries with the task in place and without it."""
    bank = opened.bank
    kept = [place for place in range(len(bank)) if place not in gone]
    other = replace(opened, switch=Switch(opened.loaded.model, bank.without(gone)))

    def answers(rows: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """Answer a batch with the task in place, and without it."""
        then = opened.logits(rows, place)
        opened.switch.to(None)
        now = other.logits(rows, kept.index(place))
        other.switch.to(None)
        return then, now

    found: list[Dependent] = []
    for number, place in enumerate(later):
        entry = bank.entries[place]
        dependent = Dependent(place, entry.task, 0, 0, None)
        if entry.recorded_batch is not None:
            then, now = answers(entry.recorded_batch.inputs, place)
            if is_text_head(entry.head):
                others, (then, now) = compare_generated(then, now)
                changed = int(others.sum())
            else:
                changed = _count_changed(then, now)
            difference = float((then - now).abs().max())
            dependent = replace(dependent, rows=len(then), changed=changed, difference=difference)
        if place in data:
            rows, targets, scorer = encode_test_rows(opened.loaded, data[place])
            parts = [
                answers(part, place) for part in rows.split(data[place].config.training.eval_batch)
            ]
            metric = data[place].task.scored_by
            before, without = (
                score(torch.cat(logits), targets, scorer) for logits in zip(*parts, strict=True)
            )
            scores = {"before": before, "without": without}
            dependent = replace(dependent, metric=metric, test_rows=len(targets), **scores)
        found.append(dependent)
        progress(Step("compare", number + 1, len(later), entry.task, "grafting", 0))
    return found


def _new_labels(bank: GraftBank, gone: Sequence[int]) -> dict[int, int]:
    """Return the labels of entries that stay, new ones by old ones.

    `run` and `add` number tasks in the order in which they come, without gaps. A bank whose labels
    are its owner's keeps them.
    """
    kept = [entry.label for place, entry in enumerate(bank.entries) if place not in gone]
    seen = list(dict.fromkeys(entry.label for entry in bank.entries))
    numbered = seen == list(range(len(seen)))
    return {old: new if numbered else old for new, old in enumerate(dict.fromkeys(kept))}


def _find_dependents(bank: GraftBank, gone: Sequence[int]) -> tuple[int, ...]:
    """Return the entries that build on some, or on one that does."""
    found: list[int] = []
    for place in range(len(bank)):
        if place not in gone and {*gone, *found} & {*bank.builds_on(place)}:
            found.append(place)
    return tuple(found)


def _refuse_unfinished(where: Path) -> None:
    """Refuse a bank whose run is not finished: `--resume` would learn the task again.

    Raises:
        InputError: If the run is not finished.
    """
    run = find_run_of_bank(where)
    if run and not ((run / RESULTS).is_file() and read_record(run).complete):
        raise InputError(
            f"the run {run} is not finished; go on with it (cl-graft run --resume {run}), and let "
            "its bank forget afterwards"
        )


def _holds_unlisted(where: Path, task: str) -> bool:
    """Tell whether the bank's folder holds files of a task that its `bank.json` does not list.

    They are left where a process is killed after the bank was replaced and before the files of the
    forgotten entries were deleted.
    """
    listed = _list_all(where)
    for path in sorted((where / "entries").glob("*.safetensors")):
        if f"entries/{path.name}" not in listed:
            with suppress(BankError):  # a file that nobody can read tells nothing
                data = read_file(path, format=ENTRY_FORMAT)
                if unpack(data, format=ENTRY_FORMAT, name=str(path))[0].get("task") == task:
                    return True
    return False


def _list_all(where: Path) -> set[str]:
    """Return the names of the files that a bank lists."""
    return {name for record in read_index(where)[0] for name in list_files(record)}


def _find_traces(where: Path, task: str) -> tuple[Path, ...]:
    """Return the folders beside the bank that hold a task."""
    run = find_run_of_bank(where)
    if run is None or not (run / RESULTS).is_file() or task not in read_record(run).tasks:
        return ()
    cache = run.parent.parent / CACHE
    return (run, cache) if cache.is_dir() else (run,)
