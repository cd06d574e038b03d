"""The bank of a run: its folder, and its hash in `results.json`, updated as the bank changes.

A change is announced before `bank.json` is replaced and confirmed after. So a bank whose writer was
killed in between can be told from one that was rolled back, shortened or exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cl_graft.banks.file_checks import Check
from cl_graft.errors import InputError
from cl_graft.settings.run_folder import (
    BANK,
    RESULTS,
    find_run_of_bank,
    is_run,
    read_bank_record,
    write_bank_record,
)
from cl_graft.storage.bank_index import INDEX, bank_sha256


def find_bank_folder(folder: Path | str) -> Path:
    """Return the folder of a bank, given the bank or the run that holds it.

    Raises:
        InputError: If there is none; the runs in a folder of runs are named.
    """
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
        raise InputError(f"{folder} holds several runs; name one of them: {', '.join(runs)}")
    return folder


@contextmanager
def track_change(bank: Path) -> Iterator[Callable[[str, int], None]]:
    """Update the bank's hash in the results of its run, for a `with` block that changes the bank.

    The caller is the only writer of both. If the results name another bank before the change, they
    still do after it.

    Args:
        bank: Folder of the bank; where it has no run, nothing is updated.

    Yields:
        A function to call before `bank.json` is replaced, with its hash and number of entries.
    """
    run = find_run_of_bank(bank)
    if run is None or not (run / RESULTS).is_file():
        yield lambda sha256, entries: None
        return
    _confirm_change(run)

    def announce(sha256: str, entries: int) -> None:
        record = read_bank_record(run)
        if record is not None and bank_sha256(run / BANK)[0] == record["sha256"]:
            coming = {"sha256": sha256, "entries": entries}
            write_bank_record(run, {**record, "coming": coming})

    yield announce
    _confirm_change(run)


def accept_bank(bank: Path) -> None:
    """Make the results of a bank's run name the bank as it is."""
    run = find_run_of_bank(bank)
    if run is not None and (run / RESULTS).is_file():
        sha256, entries = bank_sha256(bank)
        record = {"sha256": sha256, "entries": entries}
        if read_bank_record(run) != record:
            write_bank_record(run, record)


def check_bank(run: Path, *, complete: bool) -> Check:
    """Compare the bank of a run with the one that its results name.

    Args:
        run: The run's folder.
        complete: Whether the run is finished; else its bank may be ahead of its results.
    """
    record = read_bank_record(run)
    if record is None:
        return Check(BANK, "not recorded")
    if not (run / BANK / INDEX).is_file():
        return Check(BANK, "differs", f"is missing, though {RESULTS} names one")
    found, count = bank_sha256(run / BANK)
    if found == record["sha256"]:
        return Check(BANK, "same")
    if "coming" in record and found == record["coming"]["sha256"]:
        detail = f"a process was killed as it changed the bank; the next change updates {RESULTS}"
        return Check(BANK, "same", detail)
    named = record["entries"]
    if not complete and bank_sha256(run / BANK, first=named)[0] == record["sha256"]:
        return Check(BANK, "same", f"is {count - named} entries ahead of the unfinished results")
    what = (
        f"holds {count} entries where {RESULTS} names {named}"
        if count != named
        else f"holds other entries than {RESULTS} names"
    )
    detail = f"{what}: it was rolled back, shortened, exchanged or changed by other means"
    return Check(BANK, "differs", detail)


def _confirm_change(run: Path) -> None:
    """Let the results name the bank that is there, if it is the one that was announced last."""
    record = read_bank_record(run)
    if record is None or "coming" not in record:
        return
    found, count = bank_sha256(run / BANK)
    if found in (record["sha256"], record["coming"]["sha256"]):
        write_bank_record(run, {"sha256": found, "entries": count})
