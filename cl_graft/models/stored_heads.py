"""Heads as entries of a bank keep them: their tensors by name, checked and rebuilt."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cl_graft.errors import first_line
from cl_graft.grafts.bank import Entry
from cl_graft.models.heads import HEADS, LabelStrings, LabelWords, PooledHead
from cl_graft.models.task_model import TaskModel
from cl_graft.models.text_generation import TextHead


def load_head(entry: Entry, *, family: str) -> nn.Module:
    """Rebuild an entry's task head from its stored state."""
    return _make_head(entry.head, family, activation=str(entry.metadata.get("activation")))


def check_head(head: Mapping[str, Tensor], model: TaskModel) -> None:
    """Refuse the stored state of a head that a model cannot answer with.

    Args:
        head: Tensors by name, as an entry keeps them.
        model: The model, without the head.

    Raises:
        ValueError: If names or shapes are none of a head of this family and width, values are NaN
            or infinite, or tokens are not in the vocabulary.
    """
    is_encoder = model.family == "encoder"
    sizes = {name: tuple(tensor.shape) for name, tensor in head.items()}
    what = f"a head of shapes {sizes} does not fit the family {model.family!r}"
    if not all(tensor.numel() for tensor in head.values()):
        raise ValueError(what)
    try:
        hidden = model.hidden_size if is_encoder else None
        module = _make_head(head, model.family, hidden=hidden)
        if is_encoder and {"weight", "dense.weight"} & head.keys():
            module(torch.zeros(1, model.hidden_size, dtype=next(module.parameters()).dtype))
    except (IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what}: {first_line(error)}") from error
    made = module.state_dict()
    if {name: tuple(tensor.shape) for name, tensor in made.items()} != sizes:
        raise ValueError(what)
    for name, tensor in head.items():
        if is_encoder and not (tensor.is_floating_point() and bool(tensor.isfinite().all())):
            raise ValueError(f"{name} of the head is NaN or infinite, or no floating-point tensor")
        if not is_encoder and not (tensor.dtype == torch.int64 and torch.equal(made[name], tensor)):
            raise ValueError(f"{what}: {name} holds other numbers than such a head keeps")
    tokens = head.get("token_ids", head.get("stops"))
    if not is_encoder and tokens is not None:
        vocabulary = model.text_config.vocab_size
        if bool(((tokens < 0) | (tokens >= vocabulary)).any()):
            raise ValueError(f"tokens of a head that are not in the vocabulary of {vocabulary:,}")


def _make_head(
    state: Mapping[str, Tensor], family: str, *, activation: str = "tanh", hidden: int | None = None
) -> nn.Module:
    """Make a head of its tensors by name; `hidden` is the size of states, by default theirs."""
    if family == "encoder":
        name = next((name for name in HEADS if name in state), None)
        if name is not None:
            head = HEADS[name](state, state[name].shape[-1] if hidden is None else hidden)
            head.load_state_dict(dict(state))
            return head
        if "dense.weight" in state:
            layers = [_make_layer(state, f"{part}.") for part in ("dense", "out")]
            return PooledHead(*layers, activation=activation)
        return _make_layer({name: tensor.float() for name, tensor in state.items()})
    if family == "masked_lm":
        return LabelWords(state["token_ids"].tolist())
    if "stops" in state:
        return TextHead.of(state)
    rows, lengths = state["token_ids"].tolist(), state["lengths"].tolist()
    return LabelStrings([row[:length] for row, length in zip(rows, lengths, strict=True)])


def _make_layer(state: Mapping[str, Tensor], prefix: str = "") -> nn.Linear:
    """Make a linear layer of copies of a stored weight, (outputs, inputs), and bias."""
    weight, bias = (state[f"{prefix}{name}"].clone() for name in ("weight", "bias"))
    # On no device, so that nothing is drawn.
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype, device="meta")
    layer.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return layer
