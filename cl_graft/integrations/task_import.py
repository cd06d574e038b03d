"""The import of a model or adapter that another tool fine-tuned, as a task of a bank.

    import_task("adapter", "my_bank", task="tickets", base="FacebookAI/roberta-base")

The coordinates that the source changed become the region, and the tuned values its graft; a density
keeps the coordinates that changed most. Such a task was tuned on the bare base, so it needs a bank
in isolated mode, whose tasks do not build on each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from cl_graft.banks.add import choose_label
from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.banks.open_bank import open_bank
from cl_graft.data import Prompt, label_token_ids
from cl_graft.errors import InputError, join_names
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.grafts.graft import Graft, find_parameters, gather, grafted
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.region import Layout, Region
from cl_graft.grafts.selection import top_k
from cl_graft.integrations.import_sources import Source, Tuned, find_source, read_source
from cl_graft.kinds.prompts import Family
from cl_graft.kinds.text_task import MAX_LENGTH
from cl_graft.models import Loaded, check_head, graftable_parameters, make_head
from cl_graft.settings import config_from
from cl_graft.settings.bank_metadata import base_identity, load_base_model
from cl_graft.settings.run_files import lock_bank
from cl_graft.storage import append_entry
from cl_graft.storage.bank_folder import holds_no_bank_yet
from cl_graft.storage.metadata_schema import check_name
from cl_graft.storage.serialization import check_fingerprint


@dataclass(frozen=True)
class Imported:
    """The entry that a bank gained.

    Attributes:
        bank: Folder of the bank.
        task: Name of the task.
        label: Task label that the entry answers.
        position: Place of the entry in the bank, from 0.
        kind: Kind of the source, as in `Source`.
        label_names: Labels of the task.
        moved: Graftable coordinates that the source changed.
        coordinates: Number of these that the graft holds.
        density: Share of the graftable coordinates in the graft, in (0, 1].
        left_out: Number of changed elements that no graft can hold, by the parameter's name.
        new: Whether the entry was written now; the same source is not imported twice.
    """

    bank: Path
    task: str
    label: int
    position: int
    kind: str
    label_names: tuple[str, ...]
    moved: int
    coordinates: int
    density: float
    left_out: Mapping[str, int]
    new: bool = True


def import_task(
    source: Path | str,
    bank: Path | str,
    *,
    task: str,
    base: str | None = None,
    family: str | None = None,
    density: float | None = None,
    label_names: Sequence[str] = (),
    prompt: Prompt | None = None,
    pair: bool | None = None,
    max_length: int | None = None,
    leave_out: bool = False,
    trust_remote_code: bool = False,
) -> Imported:
    """Add a model or adapter that another tool fine-tuned to a bank.

    Settings that are not given are taken from the `task.json` of an export of this package, or from
    the source's own config. A source that the latest entry of that name holds is not added again.

    Args:
        source: Folder of an adapter of PEFT, or of a checkpoint that was tuned from the base.
        bank: The bank's folder. If it holds none, one is made in isolated mode.
        task: The task's name.
        base: The model that was fine-tuned; needed for a new bank, and where the base has moved.
        family: Family of a new bank's base: ``"encoder"`` (the default), ``"masked_lm"`` or
            ``"causal_lm"``.
        density: Share of the graftable coordinates to keep, those that moved most; None keeps all
            that moved.
        label_names: The labels in the order of the logits.
        prompt: Template of the texts and words of the labels; for prompted families.
        pair: Whether the task is on pairs of texts.
        max_length: Tokens a row; None means 128.
        leave_out: Import a source although it moved parameters that are not graftable (embeddings,
            for example), without what it did there.
        trust_remote_code: Whether to run Python code that comes with a checkpoint.

    Raises:
        InputError: If the source cannot be read, does not fit the base, moves nothing or what no
            graft can hold, or the task could not be answered.
        BankError: If the bank cannot be read, or the base is another one.
    """
    try:
        check_name(task, what="the task's name")
    except ValueError as error:
        raise InputError(str(error)) from None
    if density is not None and not 0 < density <= 1:
        raise InputError(f"density must be in (0, 1], got {density}")
    origin = find_source(source)
    record = origin.record
    folder, held, loaded = _open_or_begin(
        Path(bank), origin, task, base=base, family=family, trust_remote_code=trust_remote_code
    )
    check_fingerprint(held.base, record.get("base", {}).get("fingerprint"), name=str(folder))
    tuned = read_source(origin, loaded, trust_remote_code=trust_remote_code)
    graft, count = _make_graft(loaded, tuned, density=density, path=origin.path)
    left_out = _count_left_out(loaded, tuned, allowed=leave_out, path=origin.path)
    if prompt is None and "prompt" in record:
        prompt = Prompt(record["prompt"]["template"], record["prompt"]["words"])
    names = tuple(label_names) or tuple(record.get("label_names", ())) or tuned.label_names
    names, head = _make_head(loaded, tuned, prompt, names, path=origin.path)
    # A temperature was fitted to the logits of the whole graft, and is not that of a part.
    whole = count == len(graft) and not left_out
    measures = ("metric", "temperature") if whole else ("metric",)
    metadata: dict[str, Any] = {
        "label_names": list(names),
        "pair": bool(record.get("pair", False) if pair is None else pair),
        "prompt": prompt and {"template": prompt.template, "words": dict(prompt.words)},
        "max_length": max_length or int(record.get("max_length", MAX_LENGTH)),
        **tuned.metadata,
        **{key: record[key] for key in measures if record.get(key) is not None},
        "imported": {"kind": origin.kind, "moved": count},
    }
    with grafted(loaded.model, graft):
        weights = hash_tensors(find_parameters(loaded.model, held.layout))
    entry = Entry(
        task=task,
        label=choose_label(held, task, metadata["label_names"]),
        owned=graft,
        owned_before=Region.empty(held.layout),
        head=head,
        weights_sha256=weights,
        metadata=metadata,
    )
    position = held.find(label=entry.label)
    new = position is None or not _is_same(entry, held.entries[position])
    with lock_bank(folder):
        if new or position is None:
            position = len(held)
            append_entry(held.append(entry), folder)
    return Imported(
        bank=folder,
        task=task,
        label=entry.label,
        position=position,
        kind=origin.kind,
        label_names=names,
        moved=count,
        coordinates=len(graft),
        density=graft.region.density,
        left_out=left_out,
        new=new,
    )


def _is_same(entry: Entry, other: Entry) -> bool:
    """Tell whether two entries of a label hold the same bits and say the same."""
    return (
        entry.task == other.task
        and entry.owned.same_bits(other.owned)
        and hash_tensors(entry.head) == hash_tensors(other.head)
        and json.loads(json.dumps(dict(entry.metadata))) == dict(other.metadata)
    )


def _open_or_begin(
    folder: Path,
    source: Source,
    task: str,
    *,
    base: str | None,
    family: str | None,
    trust_remote_code: bool,
) -> tuple[Path, GraftBank, Loaded]:
    if folder.exists() and not holds_no_bank_yet(folder):
        folder = find_bank_folder(folder)
        opened = open_bank(folder, model=base, trust_remote_code=trust_remote_code)
        known = opened.loaded.model.family
        if opened.bank.mode != "isolated":
            raise InputError(
                f"the bank {folder} is in prefix mode, whose tasks build on each other; {task!r} "
                "was tuned on the bare base and would be answered otherwise: name a new folder"
            )
        if family not in (None, known):
            raise InputError(f"the bank {folder} is of family {known!r}, not {family!r}")
        return folder, opened.bank, opened.loaded
    if base is None:
        raise InputError(
            f"{folder} holds no bank yet: say which model was fine-tuned, with --base (in Python "
            "base=...)"
        )
    record = source.record
    pooling = record.get("pooling", "first" if source.classifier else "mean")
    config = config_from(
        {
            "stream": {"tasks": [task]},
            "model": {
                "name": base,
                "family": family or record.get("family", "encoder"),
                "pooling": pooling,
                "dtype": record.get("base", {}).get("dtype", "float32"),
                "precision": record.get("base", {}).get("precision", "fp32"),
                "trust_remote_code": trust_remote_code,
            },
            "grafting": {"mode": "isolated"},
        }
    )
    loaded = load_base_model(config.model)
    layout = Layout.of(graftable_parameters(loaded.model))
    bank = GraftBank(layout, base_identity(loaded, config, seed=0), "isolated")
    return folder, bank, loaded


def _make_graft(
    loaded: Loaded, tuned: Tuned, *, density: float | None, path: Path
) -> tuple[Graft, int]:
    """Return the tuned values where they moved most, and how many coordinates moved."""
    base = graftable_parameters(loaded.model)
    values: dict[str, Tensor] = {}
    for name, parameter in base.items():
        values[name] = tuned.tensors[name].detach().to(parameter.dtype)
        if not bool(values[name].isfinite().all()):
            raise InputError(f"{path} makes {name.removeprefix('backbone.')} NaN or infinite")
    scores = {n: (values[n].float() - base[n].detach().float()).abs() for n in base}
    count = sum(int((score > 0).sum()) for score in scores.values())
    if not count:
        raise InputError(
            f"{path} moves no graftable weight of {loaded.name!r}: is it the base itself, or was "
            "only a head tuned?"
        )
    total = sum(score.numel() for score in scores.values())
    size = count if density is None else min(count, max(1, round(density * total)))
    return gather(values, top_k(scores, size)), count


def _count_left_out(loaded: Loaded, tuned: Tuned, *, allowed: bool, path: Path) -> dict[str, int]:
    """Count the elements that the source moved outside of the graftable parameters."""
    graftable = graftable_parameters(loaded.model)
    counts: dict[str, int] = {}
    for name, parameter in loaded.model.named_parameters():
        other = tuned.tensors.get(name)
        if name in graftable or other is None:
            continue
        if moved := int((other != parameter).sum()):
            counts[name.removeprefix("backbone.")] = moved
    if counts and not allowed:
        raise InputError(
            f"{path} moved {sum(counts.values()):,} elements that no graft holds "
            f"({join_names(counts)}), as only the model's blocks are graftable; --leave-out (in "
            "Python leave_out=True) imports it without them, and it will answer otherwise"
        )
    return counts


def _make_head(
    loaded: Loaded, tuned: Tuned, prompt: Prompt | None, names: tuple[str, ...], *, path: Path
) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """Return the names of the labels, and the head's state as an entry keeps it."""
    model = loaded.model
    if model.family != "encoder":
        if prompt is None:
            raise InputError(
                f"a {model.family} answers by a prompt, and {path} does not say which: give "
                "--template, --labels and --words (in Python prompt=...)"
            )
        names = names or tuple(prompt.words)
        family = cast(Family, model.family)
        tokens = label_token_ids(loaded.tokenizer, prompt, names, family=family)
        made = make_head(model, classes=len(names), label_token_ids=tokens, seed=0)
        return names, dict(made.state_dict())
    weight = tuned.head.get("out.weight", tuned.head.get("weight"))
    if weight is None:
        raise InputError(
            f"{path} holds no head, so the task could not be answered: expected a sequence "
            "classifier of transformers, or head.safetensors beside the files"
        )
    try:
        check_head(tuned.head, model)
    except ValueError as error:
        raise InputError(f"{path} holds no head of {loaded.name!r}: {error}") from None
    classes = len(weight)
    names = names or tuple(str(number) for number in range(classes) if classes > 1)
    for name in names:
        try:
            check_name(name, what="a label's name")
        except ValueError as error:
            raise InputError(str(error)) from None
    if len(set(names)) != len(names):
        raise InputError(f"the labels must differ from each other, got {list(names)}")
    if len(names) != classes and classes > 1:
        raise InputError(f"{path} answers with {classes} logits, and there are {len(names)} labels")
    return names, dict(tuned.head)
