"""The proof that a bank answers every task with the bits that it was learned with.

Every entry is rebuilt from the base and the bank alone. Its graftable weights must have the
recorded hash, and its recorded batch must get the recorded logits: bit for bit where threads,
device and versions are the recorded ones, to a tolerance elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from cl_graft.banks.bank_of_run import (
    Check,
    check_checkpoint,
    check_run,
    find_bank_folder,
    read_run_config,
)
from cl_graft.banks.base_model_check import check_hashes
from cl_graft.banks.open_bank import OpenBank, open_bank, recorded_device
from cl_graft.errors import DamagedFile, InputError, a_or_an
from cl_graft.grafts.bank import GraftBank, RecordedBatch, find_entries, pick_recorded
from cl_graft.grafts.graft import find_parameters
from cl_graft.grafts.hashing import environment, hash_tensors
from cl_graft.kinds import KINDS, find_kind
from cl_graft.models.text_generation import compare_generated, is_text_head
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.seeding import lock_generators
from cl_graft.settings.bank_metadata import base_hashes, load_base_model
from cl_graft.settings.run_files import CHECKPOINTS, RESULTS, RunRecord, is_run, read_record

TOLERANCE = {
    "float32": 1e-4,
    "bfloat16": 5e-2,
    "float16": 1e-2,
    "fp32": 1e-4,
    "bf16": 5e-2,
    "fp16": 1e-2,
}
"""By dtype of the parameters and by precision, whichever gives more: the largest difference of a
logit, absolute and relative, that another environment may cause."""

_MOST_THREADS = 64

Outcome = Literal["same bits", "within tolerance", "differs", "not recorded"]


@dataclass(frozen=True)
class EntryCheck:
    """The comparison of one entry with its record: graftable weights, and logits of recorded rows.

    `difference` is the largest of these logits. Where `elsewhere`, the differences of the
    environment, is empty, bits must be equal. `run` compares the logits of the run's test rows when
    the task was learned with those at its end.
    """

    position: int
    task: str
    weights: Outcome
    recorded_batch: Outcome
    difference: float | None
    elsewhere: tuple[str, ...] = ()
    run: Outcome = "not recorded"

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return "differs" not in (self.weights, self.recorded_batch, self.run)


@dataclass(frozen=True)
class VerifyReport:
    """The comparison of a bank, or of a run that has none, with what was recorded.

    Attributes:
        folder: Folder of the bank, or of the run.
        model: Name of the base that was loaded.
        fingerprint: Fingerprint of that base, equal to the recorded one.
        tolerance: Largest difference of a logit that is ``"within tolerance"``.
        entries: One an entry, in the bank's order; empty without a bank.
        checks: Checks of files, settings, data and versions.
    """

    folder: Path
    model: str
    fingerprint: str
    tolerance: float
    entries: tuple[EntryCheck, ...] = field(default=())
    checks: tuple[Check, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether every entry answers as on the day it was learned, and nothing else differs."""
        outcomes = {check.outcome for check in self.checks}
        return all(entry.ok for entry in self.entries) and "differs" not in outcomes


@lock_generators()  # it sets torch's number of threads, on which what others train depends
def verify(
    folder: Path | str,
    *,
    model: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> VerifyReport:
    """Rebuild and check every entry of a bank, and the records of its run.

    Args:
        folder: A bank, or a run; of a run without a bank everything else is checked.
        model: Folder or hub name of the base, if it is no longer the one that was recorded.
        device: Device to compute on; None means the kind of device that the bank recorded, or the
            CPU where there is none.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.
        progress: Called as (task, entry, entries).

    Raises:
        InputError: If there is neither bank nor run there, or the base cannot be loaded.
        BankError: If a file is damaged or foreign, or the base is another one.
    """
    bank = Path(folder).resolve()
    places = (Path(folder), bank.parent) if bank.name == "bank" else (Path(folder),)
    run = next((p for p in places if (p / RESULTS).is_file() or is_run(p)), None)
    has_results = run is not None and (run / RESULTS).is_file()
    result = read_record(run) if run and has_results else None
    if run and result and not (run / "bank" / "bank.json").is_file():
        return _verify_run(run, result, model=model, trust_remote_code=trust_remote_code)
    where = find_bank_folder(folder)
    chosen = pick_device(device) if device else None
    opened = open_bank(where, model=model, trust_remote_code=trust_remote_code)
    opened.loaded.model.to(chosen or recorded_device(opened.bank))
    # A router has more tasks to pick from at the end, so other rows may be answered elsewhere.
    hashes = result.logit_hashes if result and result.routed is None else {}
    entries: list[EntryCheck] = []
    for position, entry in enumerate(opened.bank.entries):
        if progress:
            progress(f"verify {entry.task}", position + 1, len(opened.bank))
        entries.append(_check_entry(opened, position, hashes))
    opened.switch.to(None)
    base = opened.bank.base
    checks = [*check_checkpoint(base.metadata, opened.loaded.path), *_check_kinds(opened.bank)]
    if run and not result:  # which is no fault while it is not finished
        checks.append(
            Check(RESULTS, "not checked", "the run is not finished")
            if (run / CHECKPOINTS).is_dir()
            else Check(RESULTS, "differs", f"is missing in {run}")
        )
    if run and result:
        at = opened.loaded.model.device
        checks += check_run(run, result, fingerprint=base.fingerprint, device=at)
    about = opened.loaded.name, base.fingerprint, _tolerance(opened)
    return VerifyReport(where, *about, tuple(entries), tuple(checks))


def _check_kinds(bank: GraftBank) -> Iterator[Check]:
    """Find entries that name a kind of tasks which there is not, or which has other heads."""
    own_heads = {kind.head_tensor for kind in KINDS.values()} - {""}
    for entry in bank.entries:
        what = f"kind of {entry.task}"
        try:
            kind = find_kind(entry.metadata)
        except InputError as error:
            yield Check(what, "differs", str(error))
            continue
        if own_heads & entry.head.keys() != {kind.head_tensor} - {""}:
            yield Check(what, "differs", f"the head is none of {a_or_an(kind.name)} task")


def _verify_run(
    run: Path, result: RunRecord, *, model: str | None, trust_remote_code: bool
) -> VerifyReport:
    """Check a run that has no bank: its base, its files and its data."""
    config = read_run_config(run, result)
    name = model or config.model.name
    loaded = load_base_model(replace(config.model, name=name, trust_remote_code=trust_remote_code))
    fingerprint, where = result.model["fingerprint"], f"{run} is of another base model:"
    check_hashes(fingerprint, result.model, base_hashes(loaded), where=where)
    checks = [*check_checkpoint(result.model, loaded.path)]
    device = torch.device(result.versions.get("device", "cpu"))
    at = device if device.type == "cpu" or torch.cuda.is_available() else torch.device("cpu")
    checks += check_run(run, result, fingerprint=fingerprint, device=at)
    tolerance = max(TOLERANCE[config.model.dtype], TOLERANCE[config.model.precision])
    return VerifyReport(run, loaded.name, fingerprint, tolerance, checks=tuple(checks))


def _tolerance(opened: OpenBank) -> float:
    return max(TOLERANCE[opened.bank.base.dtype], TOLERANCE[opened.loaded.model.precision])


def _check_entry(
    opened: OpenBank, position: int, hashes: Mapping[str, Mapping[str, str]]
) -> EntryCheck:
    entry, bank = opened.bank.entries[position], opened.bank
    opened.carry(position)
    weights: Outcome = "not recorded"
    if entry.weights_sha256:
        digest = hash_tensors(find_parameters(opened.loaded.model, bank.layout))
        weights = "same bits" if digest == entry.weights_sha256 else "differs"
    run: Outcome = "not recorded"
    # A run learns a task once; a later entry of its name was added since.
    first = find_entries(bank, entry.task)[0] == position
    if entry.task in hashes and first:
        measured = hashes[entry.task]
        run = "same bits" if measured.get("learned") == measured.get("end") else "differs"
    if entry.recorded_batch is None:
        return EntryCheck(position, entry.task, weights, "not recorded", None, run=run)
    batch, difference, elsewhere = _check_recorded_batch(opened, position, entry.recorded_batch)
    return EntryCheck(position, entry.task, weights, batch, difference, elsewhere, run)


def _check_recorded_batch(
    opened: OpenBank, position: int, recorded_batch: RecordedBatch
) -> tuple[Outcome, float, tuple[str, ...]]:
    """Compare the logits of the recorded batch: outcome, difference and other environment."""
    with _threads(recorded_batch.environment.get("threads")):
        inputs = recorded_batch.inputs
        try:
            logits = pick_recorded(opened.logits(inputs, position), inputs)
        except (IndexError, ValueError) as error:
            task = opened.bank.entries[position].task
            raise DamagedFile(
                f"{opened.folder}, task {task!r} is damaged: its recorded batch: {error}"
            ) from error
        here = environment(opened.loaded.model.device)
    keys = sorted(here.keys() | recorded_batch.environment.keys())
    elsewhere = tuple(
        f"{key} {recorded_batch.environment.get(key)}, here {here.get(key)}"
        for key in keys
        if recorded_batch.environment.get(key) != here.get(key)
    )
    if logits.shape != recorded_batch.logits.shape:
        return "differs", float("inf"), elsewhere
    compared, other = torch.stack([logits, recorded_batch.logits]), False
    if is_text_head(opened.bank.entries[position].head):
        changed, compared = compare_generated(logits, recorded_batch.logits)
        other = bool(changed.any())
    difference = float((compared[0] - compared[1]).abs().max())
    if torch.equal(logits, recorded_batch.logits):
        return "same bits", difference, elsewhere
    allowed = _tolerance(opened)
    close = not other and torch.allclose(*compared, rtol=allowed, atol=allowed)
    return ("within tolerance" if elsewhere and close else "differs"), difference, elsewhere


@contextmanager
def _threads(recorded: str | None) -> Iterator[None]:
    """Compute with the recorded number of threads: sums over threads depend on it.

    A number that this machine cannot start is ignored, and reported as another environment.
    """
    before = torch.get_num_threads()
    wanted = int(recorded) if recorded and recorded.isdecimal() else before
    most = max(_MOST_THREADS, 4 * (os.cpu_count() or 1))
    torch.set_num_threads(wanted if 1 <= wanted <= most else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
