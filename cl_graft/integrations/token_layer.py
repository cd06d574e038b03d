"""Heads read off models of transformers that tag words or answer questions.

`AutoModelForTokenClassification` and `AutoModelForQuestionAnswering` put one linear layer on the
last states of all tokens on most encoders, as heads of tokens do. Others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError, first_line, join_names
from cl_graft.integrations.whole_models import classifier_layers
from cl_graft.metrics.span_scores import list_tags
from cl_graft.models import TaskModel
from cl_graft.models.graftable import find_text_config
from cl_graft.models.quiet import quiet

__all__ = ["TokenLayer", "find_token_kind", "order_tags", "read_label_names", "read_token_layer"]

_PROBE = 12
"""Tokens of the row with which layer and model are compared."""


@dataclass(frozen=True, eq=False)
class TokenLayer:
    """A model of transformers that answers at tokens.

    Attributes:
        backbone: Parameters of its encoder.
        head: State of the head, as an entry keeps it; tags in the order of the model.
        label_names: Names of the tags in that order; empty where the model names none.
    """

    backbone: Mapping[str, Tensor]
    head: Mapping[str, Tensor]
    label_names: tuple[str, ...]


def find_token_kind(architecture: str) -> str:
    """Return the kind of tasks of a class of transformers that answers at tokens; else nothing."""
    kinds = {"ForQuestionAnswering": "extractive_qa", "ForTokenClassification": "tagging"}
    return next((kind for ending, kind in kinds.items() if architecture.endswith(ending)), "")


def read_token_layer(
    path: Path, kind: str, model: TaskModel, *, dtype: torch.dtype, trust_remote_code: bool
) -> TokenLayer:
    """Read a checkpoint.

    Args:
        path: Folder of the checkpoint.
        kind: Kind of tasks, ``"tagging"`` or ``"extractive_qa"``.
        model: The base, of the same architecture.
        dtype: Type of the parameters.
        trust_remote_code: Whether to run Python code that comes with the checkpoint.

    Raises:
        InputError: If it cannot be read, or its head is more than a linear layer.
    """
    import transformers

    tags = kind == "tagging"
    auto: Any = (
        transformers.AutoModelForTokenClassification
        if tags
        else transformers.AutoModelForQuestionAnswering
    )
    try:
        with quiet():
            whole = auto.from_pretrained(path, dtype=dtype, trust_remote_code=trust_remote_code)
    except Exception as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error
    whole.eval()
    layers = classifier_layers(whole, model.backbone)
    if len(layers) != 1 or layers[0].bias is None or not _is_alone(whole, layers[0]):
        raise InputError(
            f"the head of {type(whole).__name__} in {path} is none that can be kept: expected one "
            "linear layer on the last states of all tokens"
        )
    part = "tags" if tags else "ends"
    head = {f"{part}.{name}": value.detach() for name, value in layers[0].named_parameters()}
    return TokenLayer(
        dict(whole.base_model.named_parameters()),
        {name: value.clone() for name, value in head.items()},
        read_label_names(whole) if tags else (),
    )


def order_tags(names: Sequence[str]) -> list[int]:
    """Return the places of tags in the order of a tagging task: O, then B and I of each type.

    Raises:
        InputError: If they are not O, and B- and I- of each type.
    """
    types = list(dict.fromkeys(name[2:] for name in names if name != "O"))
    wanted = list_tags(types)
    if sorted(names) != sorted(wanted) or not types:
        raise InputError(
            f"the tags must be 'O', and B- and I- of each type, got {join_names(names)}; name them "
            "in the order of the logits with --labels (in Python label_names=...)"
        )
    return [list(names).index(name) for name in wanted]


def read_label_names(model: Any) -> tuple[str, ...]:
    """Return the names of a model's labels, by number; none if its config only numbers them.

    Args:
        model: A `PreTrainedModel`.
    """
    labels: Mapping[int, str] = model.config.id2label
    names = tuple(labels[number] for number in sorted(labels))
    return () if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names


def _is_alone(whole: Any, layer: nn.Linear) -> bool:
    """Tell whether a model's answers are those of one layer on the last states."""
    ids = torch.arange(_PROBE)[None] % int(find_text_config(whole).vocab_size)
    mask = torch.ones_like(ids)
    with torch.no_grad():
        expected = layer(whole.base_model(input_ids=ids, attention_mask=mask).last_hidden_state)
        found = whole(input_ids=ids, attention_mask=mask)
    starts = getattr(found, "start_logits", None)
    logits = found.logits if starts is None else torch.stack([starts, found.end_logits], -1)
    return logits.shape == expected.shape and torch.allclose(logits, expected, atol=1e-4, rtol=1e-4)
