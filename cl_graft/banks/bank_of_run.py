"""The bank of a run: where it is, and its hash in `results.json`, kept as the bank changes.

A change of the bank is announced before `bank.json` is replaced and settled after, so that a bank
whose writer was killed in between is told from one that was rolled back, shortened or exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cl_graft.banks.file_checks import Finding
from cl_graft.errors import InputError
from cl_graft.experiments.folders import BANK, find_run_of_bank, is_run
from cl_graft.results.run_results import RESULTS, read_bank_record, write_bank_record
from cl_graft.storage.bank_index import INDEX, bank_sha256

__all__ = ["accept_bank", "bank_finding", "bank_folder", "changing_bank"]


def bank_folder(folder: Path | str) -> Path:
    """Return the bank's folder in a run or bank folder.

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
            f"the run {folder} holds no bank: only runs of grafting have one, so there is nothing "
            "to rebuild"
        )
    runs = sorted(str(path.parent.parent) for path in folder.glob("*/seed*/bank/bank.json"))
    if runs:
        raise InputError(f"{folder} holds runs and is none; name one of them: {', '.join(runs)}")
    return folder


@contextmanager
def changing_bank(bank: Path) -> Iterator[Callable[[str, int], None]]:
    """Keep the results of a bank's run in step with it, for a `with` block that changes it.

    The caller is the only writer of both. A bank that is not the one that the results name before
    the change is not taken for theirs by the change.

    Args:
        bank: The bank's folder; one without a run needs nothing.

    Yields:
        What to call before `bank.json` is replaced, with its hash and number of entries.
    """
    run = find_run_of_bank(bank)
    if run is None or not (run / RESULTS).is_file():
        yield lambda sha256, entries: None
        return
    _settle(run)

    def announce(sha256: str, entries: int) -> None:
        record = read_bank_record(run)
        if record is not None and _fits(run, record):
            coming = {"sha256": sha256, "entries": entries}
            write_bank_record(run, {**record, "coming": coming})

    yield announce
    _settle(run)


def accept_bank(bank: Path) -> None:
    """Take a bank for that of its run's results, whatever they name."""
    run = find_run_of_bank(bank)
    if run is not None and (run / RESULTS).is_file():
        record = {"sha256": bank_sha256(bank)[0], "entries": bank_sha256(bank)[1]}
        if read_bank_record(run) != record:
            write_bank_record(run, record)


def bank_finding(run: Path, *, complete: bool) -> Finding:
    """Compare the bank of a run with the one that its results name.

    Args:
        run: The run's folder.
        complete: Whether the run is finished; else its bank may be ahead of its results.
    """
    record = read_bank_record(run)
    if record is None:
        return Finding(BANK, "not recorded")
    if not (run / BANK / INDEX).is_file():
        return Finding(BANK, "differs", f"is missing, though {RESULTS} names one")
    found, count = bank_sha256(run / BANK)
    if found == record["sha256"]:
        return Finding(BANK, "same")
    if "coming" in record and found == record["coming"]["sha256"]:
        detail = f"a change of it was killed before {RESULTS} could say so; the next change does"
        return Finding(BANK, "same", detail)
    named = record["entries"]
    if not complete and bank_sha256(run / BANK, first=named)[0] == record["sha256"]:
        return Finding(BANK, "same", f"is {count - named} entries ahead of the unfinished results")
    what = (
        f"holds {count} entries where {RESULTS} names {named}"
        if count != named
        else f"holds other entries than {RESULTS} names"
    )
    detail = f"{what}: it was rolled back, shortened, exchanged or changed by other means"
    return Finding(BANK, "differs", detail)


def _settle(run: Path) -> None:
    """Let the results name the bank that is there, if it is the one that was announced last."""
    record = read_bank_record(run)
    if record is None or "coming" not in record:
        return
    found, count = bank_sha256(run / BANK)
    if found in (record["sha256"], record["coming"]["sha256"]):
        write_bank_record(run, {"sha256": found, "entries": count})


def _fits(run: Path, record: dict[str, Any]) -> bool:
    return bank_sha256(run / BANK)[0] == record["sha256"]
