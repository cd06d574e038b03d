"""Write one task of a bank as files that other tools read.

    export_task("runs/demo/grafting/seed0", "sentiment", form="hf", out="sentiment")

The folder appears when it is complete. Beside the files of the format it holds `task.json`, with
the labels and how texts are posed, and a README with the lines that load it, without this package.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cl_graft.banks.bank_of_run import bank_folder
from cl_graft.banks.open_bank import open_bank
from cl_graft.errors import InputError, InUse, find
from cl_graft.grafts.bank import find_entry
from cl_graft.integrations.checkpoint import write_checkpoint
from cl_graft.integrations.export_readme import manual
from cl_graft.integrations.overlay import write_overlay
from cl_graft.integrations.shira import Rest, write_shira
from cl_graft.integrations.task_record import task_record
from cl_graft.integrations.written import Written
from cl_graft.storage import load_bank, only_writer, told_of_full_disks, writing
from cl_graft.storage.files import is_partial

__all__ = ["FORMATS", "Exported", "export_task"]

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "hf": "a whole checkpoint, which transformers loads",
        "peft-shira": "a SHiRA adapter, which peft lays over the base",
        "safetensors-overlay": "flat numbers and values, which any tool can lay over the base",
    }
)
"""The formats, and what each is."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: Where.
        task: The task's name.
        form: The format.
        coordinates: Coordinates of the graft that answers the task.
        written: What the files hold of them.
        files: Bytes by name.
    """

    folder: Path
    task: str
    form: str
    coordinates: int
    written: Written
    files: Mapping[str, int]


def export_task(
    folder: Path | str,
    task: str | int,
    *,
    form: str,
    out: Path | str,
    rest: Rest = "refuse",
    model: str | None = None,
    trust_remote_code: bool = False,
) -> Exported:
    """Write one task of a bank for other tools.

    Args:
        folder: A bank, or a run that holds one.
        task: A task's name (its latest entry) or the position of an entry.
        form: One of `FORMATS`.
        out: The folder to make; it may exist if it is empty.
        rest: What to do with coordinates that ``"peft-shira"`` cannot express, as its adapters hold
            weights of `nn.Linear` alone: ``"refuse"``, ``"leave-out"``, or ``"copy"`` the modules
            they are in as wholes, which is exact and larger.
        model: Where the base is now, if not under the name that the bank recorded.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.

    Raises:
        InputError: If there is no such task or format, the folder is in use, or the format cannot
            express the graft.
        BankError: If the bank cannot be read, or the base is another one.
    """
    find(FORMATS, form, missing="no format")
    where, out = bank_folder(folder), Path(out)
    bank = load_bank(where)
    position = find_entry(bank, task)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already; name a folder that does not, or an empty one")
    if bank.base.metadata.get("family") is None:
        raise InputError(
            "the bank does not record its model's family: it was made in Python around a model of "
            "one's own, so write the graft into that model and save it yourself"
        )
    record, graft = task_record(bank, position), bank.answer(position)
    if record["family"] != "encoder" and not {"prompt", "label_token_ids"} <= record.keys():
        raise InputError(
            f"the bank does not record the prompt of {bank.entries[position].task!r}, or the "
            "tokens of its labels, so nobody could be told how to ask it"
        )
    with _appearing(out) as into:
        if form == "safetensors-overlay":
            write_overlay(graft, bank.entries[position], record, into / "overlay.safetensors")
            written = Written()
        else:
            opened = open_bank(where, model=model, trust_remote_code=trust_remote_code)
            if form == "hf":
                written = write_checkpoint(opened, position, into)
            else:
                written = write_shira(opened, position, into, rest=rest)
        record |= written.record
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (into / "task.json").write_text(f"{text}\n", encoding="utf-8")
        (into / "README.md").write_text(manual(record, form=form), encoding="utf-8")
    return Exported(
        folder=out,
        task=bank.entries[position].task,
        form=form,
        coordinates=len(graft),
        written=written,
        files={path.name: path.stat().st_size for path in sorted(out.iterdir())},
    )


@contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """Give a folder to fill, which becomes `out` when the block ends without an exception.

    What a killed process left of such a folder is deleted first.
    """
    for left in out.absolute().parent.glob(f".{glob.escape(out.name)}.*.tmp"):
        if is_partial(left) and left.is_dir() and not left.is_symlink():
            with suppress(InUse):  # it is being filled
                with only_writer(left):
                    pass
                shutil.rmtree(left)
    aside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    with writing(out), told_of_full_disks(out):
        aside.mkdir(parents=True)
        try:
            with only_writer(aside):
                yield aside
            if out.exists():
                out.rmdir()
            os.replace(aside, out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
