"""Heads as entries of a bank keep them: their tensors by name, checked and rebuilt."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cl_graft.grafts.bank import Entry
from cl_graft.models.heads import HEADS, LabelStrings, LabelWords, PooledHead
from cl_graft.models.task_model import WRITING, TaskModel
from cl_graft.models.text_generation import MOST_BEAMS, MOST_TOKENS, TextHead


def load_head(entry: Entry, *, family: str) -> nn.Module:
    """Rebuild an entry's task head from its stored state."""
    state = dict(entry.head)
    if family == "encoder" and (made := _make_registered(state)) is not None:
        head: nn.Module = made
    elif "dense.weight" in state:
        layers = [_make_layer(state, f"{part}.") for part in ("dense", "out")]
        return PooledHead(*layers, activation=str(entry.metadata.get("activation")))
    elif family == "encoder":
        return _make_layer({name: tensor.float() for name, tensor in state.items()})
    elif family == "masked_lm":
        head = LabelWords(state["token_ids"].tolist())
    elif "stops" in state:
        head = TextHead.of(state)
    else:
        lengths = state["lengths"].tolist()
        rows = state["token_ids"].tolist()
        head = LabelStrings([row[:n] for row, n in zip(rows, lengths, strict=True)])
    head.load_state_dict(state)
    return head


def check_head(head: Mapping[str, Tensor], model: TaskModel) -> None:
    """Refuse the stored state of a head that a model cannot answer with.

    Args:
        head: Tensors by name, as an entry keeps them.
        model: The model, without the head.

    Raises:
        ValueError: If names or shapes are none of a head of this family and width, values are NaN
            or infinite, or tokens are not in the vocabulary.
    """
    sizes = {name: tuple(tensor.shape) for name, tensor in head.items()}
    if model.family != "encoder":
        _check_tokens(head, sizes, model)
        return
    if (made := _make_registered(head, model.hidden_size)) is not None:
        shapes = {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()}
        _check_values(head, sizes, shapes)
        return
    last = "out.weight" if "dense.weight" in head else "weight"
    classes = sizes[last][0] if sizes.get(last) else 0
    expected: dict[str, tuple[int, ...]] = {
        "weight": (classes, model.hidden_size),
        "bias": (classes,),
    }
    if "dense.weight" in head:
        inner = sizes["dense.weight"][0] if sizes["dense.weight"] else 0
        expected = {
            "dense.weight": (inner, model.hidden_size),
            "dense.bias": (inner,),
            "out.weight": (classes, inner),
            "out.bias": (classes,),
        }
    if not classes:
        raise ValueError(f"a head of shapes {sizes}, expected {expected}")
    _check_values(head, sizes, expected)


def _make_registered(state: Mapping[str, Tensor], hidden: int | None = None) -> nn.Module | None:
    """Make the registered head that tensors, by name, are of; None if they are of another head.

    Args:
        state: The tensors.
        hidden: Size of the states; None takes that of the tensors.

    Raises:
        ValueError: If they are of no such head.
    """
    name = next((name for name in HEADS if name in state), None)
    if name is None:
        return None
    try:
        return HEADS[name](state, state[name].shape[-1] if hidden is None else hidden)
    except (IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        sizes = {key: tuple(tensor.shape) for key, tensor in state.items()}
        raise ValueError(f"a head of shapes {sizes}, which is none of {name!r}: {error}") from error


def _check_values(
    head: Mapping[str, Tensor],
    sizes: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse tensors of other shapes than expected, or that are not finite."""
    if sizes != expected:
        raise ValueError(f"a head of shapes {sizes}, expected {expected}")
    for name, tensor in head.items():
        if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} of the head is NaN or infinite, or no floating-point tensor")


def _check_tokens(
    head: Mapping[str, Tensor], sizes: Mapping[str, tuple[int, ...]], model: TaskModel
) -> None:
    """Refuse the labels' tokens that `LabelWords` or `LabelStrings` would not keep."""
    if "stops" in sizes:
        _check_text_head(head, sizes, model)
        return
    labels = next(iter(sizes.get("token_ids", ())), 0)
    wanted = {"token_ids": 1} if model.family == "masked_lm" else {"token_ids": 2, "lengths": 1}
    whole = all(tensor.dtype == torch.int64 for tensor in head.values())
    if {n: len(size) for n, size in sizes.items()} != wanted or not labels or not whole:
        raise ValueError(f"labels of shapes {sizes}, expected whole numbers in {list(wanted)}")
    vocabulary = model.text_config.vocab_size
    tokens = head["token_ids"]
    if bool((tokens < 0).any()) or bool((tokens >= vocabulary).any()):
        raise ValueError(f"tokens of labels that are not in the vocabulary of {vocabulary:,}")
    if "lengths" not in head:
        return
    lengths, longest = head["lengths"], tokens.shape[1]
    if lengths.shape != (labels,) or not bool(((lengths > 0) & (lengths <= longest)).all()):
        raise ValueError(f"lengths of labels {lengths.tolist()[:10]}, expected 1 to {longest}")


def _check_text_head(
    head: Mapping[str, Tensor], sizes: Mapping[str, tuple[int, ...]], model: TaskModel
) -> None:
    """Refuse numbers that `TextHead` would not keep, or that no answer needs."""
    whole = all(tensor.dtype == torch.int64 for tensor in head.values())
    wanted = {"stops": sizes["stops"], "limits": (2,)}
    if sizes != wanted or len(sizes["stops"]) != 1 or not whole or model.family not in WRITING:
        raise ValueError(f"a head of text of shapes {sizes} on a {model.family}")
    vocabulary = model.text_config.vocab_size
    stops, (longest, beams) = head["stops"], head["limits"].tolist()
    if not len(stops) or bool((stops < 0).any()) or bool((stops >= vocabulary).any()):
        raise ValueError(f"ends of answers that are not in the vocabulary of {vocabulary:,}")
    if not 1 <= longest <= MOST_TOKENS or not 1 <= beams <= MOST_BEAMS:
        raise ValueError(f"answers of {longest:,} tokens by {beams:,} beams")


def _make_layer(state: Mapping[str, Tensor], prefix: str = "") -> nn.Linear:
    """Make a linear layer of copies of a stored weight, (outputs, inputs), and bias."""
    weight, bias = (state[f"{prefix}{name}"].clone() for name in ("weight", "bias"))
    # On no device, so that nothing is drawn.
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype, device="meta")
    layer.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return layer
