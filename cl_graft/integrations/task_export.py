"""The export of one task of a bank as files that other tools read.

Beside the files of the format the folder holds `task.json`, with the labels and how the model reads
texts, and a README with the lines of Python that load the task without this package.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.banks.open_bank import OpenBank, open_bank
from cl_graft.errors import InputError, find
from cl_graft.grafts.bank import find_entry
from cl_graft.integrations.export_readme import make_readme
from cl_graft.integrations.export_record import describe_task, save_head, skips_pooler
from cl_graft.integrations.import_sources import as_transformers_model
from cl_graft.integrations.peft_adapters import write_lora, write_shira
from cl_graft.models.quiet import quiet
from cl_graft.models.text_generation import is_text_head
from cl_graft.storage import explain_write_errors, load_bank

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "hf": "a whole checkpoint, which transformers loads",
        "peft-shira": "a SHiRA adapter, which peft lays over the base",
        "peft-lora": "a LoRA of a graft of whole columns or rows, which many servers take",
    }
)
"""The formats, and what each is."""

_ADAPTERS = {"peft-shira": write_shira, "peft-lora": write_lora}


@dataclass(frozen=True)
class Exported:
    """A written export.

    Attributes:
        folder: Folder of the files.
        task: Name of the task.
        format: Name in `FORMATS`.
        coordinates: Coordinates of the graft that answers the task.
        copied: Coordinates that are in whole copies of their modules, by kind of parameter.
        files: Size of each file in bytes, by name.
    """

    folder: Path
    task: str
    format: str
    coordinates: int
    copied: Mapping[str, int]
    files: Mapping[str, int]


def export_task(
    folder: Path | str,
    task: str | int,
    *,
    format: str,
    out: Path | str,
    model: str | None = None,
    trust_remote_code: bool = False,
) -> Exported:
    """Write one task of a bank for other tools.

    Args:
        folder: A bank, or a run that holds one.
        task: A task's name (its latest entry) or the position of an entry.
        format: A name in `FORMATS`.
        out: The folder to make; it may exist if it is empty.
        model: Folder or hub name of the base, if it is no longer the one that the bank recorded.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.

    Raises:
        InputError: If there is no such task or format, the folder is in use, or the format cannot
            express the graft.
        BankError: If the bank cannot be read, or the base is another one.
    """
    find(FORMATS, format, missing="no format")
    where, out = find_bank_folder(folder), Path(out)
    bank = load_bank(where)
    position = find_entry(bank, task)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already; name a folder that does not, or an empty one")
    if bank.base.metadata.get("family") is None:
        raise InputError(
            "the bank does not record its model's family: it was made in Python around a model of "
            "one's own, so write the graft into that model and save it yourself"
        )
    entry = bank.entries[position]
    record, graft = describe_task(bank, position), bank.answer(position)
    asked = {"stop_token_ids"} if is_text_head(entry.head) else {"prompt", "label_token_ids"}
    if record["family"] != "encoder" and not asked <= record.keys():
        raise InputError(
            f"the bank does not record the prompt of {entry.task!r}, or the "
            "tokens of its labels, so nobody could be told how to ask it"
        )
    with _make_folder(out) as into:
        opened = open_bank(where, model=model, trust_remote_code=trust_remote_code)
        if format == "hf":
            more, copied = _write_checkpoint(opened, position, into), {}
        else:
            copied = _ADAPTERS[format](opened, position, into)
            more = _describe_adapted(opened, position, into)
        record |= more
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (into / "task.json").write_text(f"{text}\n", encoding="utf-8")
        (into / "README.md").write_text(make_readme(record, format=format), encoding="utf-8")
    return Exported(
        folder=out,
        task=entry.task,
        format=format,
        coordinates=len(graft),
        copied=copied,
        files={path.name: path.stat().st_size for path in sorted(out.iterdir())},
    )


@contextmanager
def _make_folder(out: Path) -> Iterator[Path]:
    """Make a folder to fill, which becomes `out` when the block ends without an exception."""
    aside = out.with_name(f".{out.name}.tmp")
    with explain_write_errors(out):
        shutil.rmtree(aside, ignore_errors=True)  # which a killed process left
        aside.mkdir(parents=True)
        try:
            yield aside
            if out.exists():
                out.rmdir()
            os.replace(aside, out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _describe_adapted(opened: OpenBank, position: int, into: Path) -> dict[str, Any]:
    """Return what `task.json` says of an adapted class, and save an encoder's head."""
    backbone = opened.loaded.model.backbone
    record: dict[str, Any] = {"class": type(backbone).__name__}
    if opened.loaded.model.family == "encoder":
        record["without_pooler"] = skips_pooler(backbone)
        save_head(opened.bank.entries[position], into)
    return record


def _write_checkpoint(opened: OpenBank, position: int, into: Path) -> dict[str, Any]:
    """Write the model that answers an entry, with its tokenizer and, where needed, its head."""
    opened.carry(position)
    model, entry = opened.loaded.model, opened.bank.entries[position]
    backbone: Any = model.backbone
    record: dict[str, Any] = {"class": type(backbone).__name__}
    if model.family == "encoder":
        classifier = as_transformers_model(model, entry)
        if classifier is None:
            save_head(entry, into)
            record["without_pooler"] = skips_pooler(backbone)
        else:
            backbone = classifier
            record = {"class": type(classifier).__name__, "classifier": True}
            if entry.metadata.get("intent_names"):  # there is no place for them in the class
                save_head(entry, into)
    with quiet():
        backbone.save_pretrained(into)
        opened.loaded.tokenizer.save_pretrained(into)
    return record
