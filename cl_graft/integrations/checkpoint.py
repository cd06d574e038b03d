"""A task as a whole checkpoint of transformers: the base with the graft written into it.

A prompted model is a masked or causal language model as it was. Of an encoder with a head,
transformers has a class only where its classifier computes what the head does; `as_classifier`
finds out by answering the same rows both ways. Any other head stands beside the encoder in
`head.safetensors`, and the README has the lines that apply it.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from cl_graft.banks.open_bank import OpenBank
from cl_graft.grafts.bank import Entry
from cl_graft.integrations.classifiers import as_classifier
from cl_graft.integrations.written import Written
from cl_graft.models.quiet import quiet

__all__ = ["save_head", "skips_pooler", "write_checkpoint"]


def write_checkpoint(opened: OpenBank, position: int, into: Path | str) -> Written:
    """Write the model that answers an entry, with its tokenizer and, where needed, its head.

    Args:
        opened: The bank on its model, which carries the entry afterwards.
        position: The entry.
        into: A folder that exists.
    """
    into = Path(into)
    opened.carry(position)
    model, entry = opened.loaded.model, opened.bank.entries[position]
    backbone: Any = model.backbone
    record: dict[str, Any] = {"class": type(backbone).__name__}
    if model.family == "encoder":
        classifier = as_classifier(model, entry)
        if classifier is None:
            save_head(entry, into)
            record["without_pooler"] = skips_pooler(backbone)
        else:
            backbone = classifier
            record = {"class": type(classifier).__name__, "classifier": True}
    with quiet():
        backbone.save_pretrained(into)
        opened.loaded.tokenizer.save_pretrained(into)
    return Written(record=record)


def save_head(entry: Entry, into: Path | str) -> None:
    """Write an encoder's head as `head.safetensors` into a folder."""
    into = Path(into)
    head = {name: tensor.contiguous() for name, tensor in entry.head.items()}
    save_file(head, into / "head.safetensors", metadata={"format": "pt"})


def skips_pooler(backbone: object) -> bool:
    """Tell whether the class makes a pooler, which no head uses here, unless told not to."""
    return "add_pooling_layer" in inspect.signature(type(backbone).__init__).parameters
