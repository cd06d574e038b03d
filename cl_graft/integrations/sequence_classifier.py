"""The conversion between heads of this package and sequence classifiers of transformers.

`AutoModelForSequenceClassification` puts on most encoders a dense layer, an activation and a linear
layer, over the first token. Their names and the activation differ by architecture, so they are
found by their shapes, and accepted only if both models answer the same rows alike.

A head that was learned here is one linear layer. Its classifier gets a dense layer that scales and
shifts features to where the activation is a straight line, which the last layer takes back.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cl_graft.grafts.bank import Entry
from cl_graft.integrations.whole_models import classifier_layers, make_whole
from cl_graft.kinds.multi_label import LabelsHead
from cl_graft.models import TaskModel, load_head
from cl_graft.models.heads import ACTIVATIONS, PooledHead
from cl_graft.runtime.seeding import generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["as_classifier", "head_from"]

_TOLERANCE = 1e-4
"""Largest difference, relative to the largest logit: sums may be in another order."""

_STRAIGHT = ((2.0**-13, 0.0), (1.0, 64.0))
"""Scales and shifts at which an activation is a straight line: tanh near 0, relu and gelu far above
it. Features, which a layer norm has scaled, are a few units large."""


def as_classifier(model: TaskModel, entry: Entry) -> PreTrainedModel | None:
    """Make the classifier of transformers that answers as an encoder with an entry's head.

    Args:
        model: The encoder, carrying the entry.
        entry: Entry with the head and the label names.

    Returns:
        The classifier, in eval mode, on the CPU; None if transformers has none.
    """
    from transformers import AutoModelForSequenceClassification

    if model.pooling != "first":
        return None
    head, backbone = load_head(entry, family="encoder").eval(), model.backbone
    several = isinstance(head, LabelsHead)
    head = head.labels if isinstance(head, LabelsHead) else head
    config: Any = copy.deepcopy(backbone.config)
    classes = int(next(reversed(list(head.parameters()))).shape[0])
    names = entry.metadata.get("label_names") or [f"LABEL_{number}" for number in range(classes)]
    config.id2label = dict(enumerate(map(str, names)))  # pyright: ignore[reportArgumentType]
    config.label2id = {name: number for number, name in config.id2label.items()}
    how = "multi" if several else "single"
    config.problem_type = "regression" if classes == 1 else f"{how}_label_classification"
    whole = make_whole(AutoModelForSequenceClassification, config, backbone)
    if whole is None:
        return None
    layers = classifier_layers(whole, backbone)
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    choices = [linears] if len(linears) == len(layers) else _add_straight_layer(linears)
    device = model.device
    expected = _answer(model.cpu(), head)
    model.to(device)
    for choice in choices:
        if [m.weight.shape for m in layers] == [m.weight.shape for m in choice]:
            for layer, linear in zip(layers, choice, strict=True):
                layer.load_state_dict(linear.state_dict())
            if _alike(whole, expected, model):
                return whole
    return None


def _add_straight_layer(linears: Sequence[nn.Linear]) -> list[list[nn.Linear]]:
    """Return two layers that answer as a single one, for each of `_STRAIGHT`; none for others."""
    if len(linears) != 1:
        return []
    weight, bias = linears[0].weight.detach().double(), linears[0].bias.detach().double()
    choices = []
    for scale, shift in _STRAIGHT:
        first, last = copy.deepcopy(linears[0]), copy.deepcopy(linears[0])
        first.weight = nn.Parameter(scale * torch.eye(weight.shape[1]))
        first.bias = nn.Parameter(torch.full((weight.shape[1],), shift))
        last.weight = nn.Parameter((weight / scale).float())
        last.bias = nn.Parameter((bias - shift / scale * weight.sum(1)).float())
        choices.append([first, last])
    return choices


def head_from(whole: PreTrainedModel, model: TaskModel) -> nn.Module | None:
    """Read the head off a classifier of transformers.

    Args:
        whole: The classifier, on the CPU.
        model: An encoder of its architecture with pooling ``"first"``; its values do not matter.

    Returns:
        The head; None if it is none that this package knows.
    """
    layers = classifier_layers(whole, model.backbone)
    backbone = copy.deepcopy(model.backbone)
    backbone.load_state_dict(whole.base_model.state_dict(), strict=False)
    tuned = TaskModel(backbone, family="encoder", pooling=model.pooling).eval()
    heads: list[nn.Module] = []
    if len(layers) == 1:
        heads = [layers[0]]
    elif len(layers) == 2:
        heads = [PooledHead(*layers, activation=name) for name in ACTIVATIONS]
    return next((head for head in heads if _alike(whole, _answer(tuned, head), tuned)), None)


def _probe(model: TaskModel) -> Tensor:
    """Return rows of random tokens, of two lengths, as `TaskModel` takes them."""
    vocabulary = int(model.text_config.vocab_size)
    drawn = generator(0, "probe of a classifier")
    rows = torch.randint(vocabulary // 2, vocabulary, (4, 12), generator=drawn)
    segments = torch.ones_like(rows)
    segments[2:, 9:] = 0
    return torch.stack([rows, segments], 1)


def _answer(model: TaskModel, head: nn.Module) -> Tensor:
    with torch.no_grad():
        features = model.text_features(_probe(model))
        return head(features.to(next(head.parameters()).dtype)).float()


def _alike(whole: nn.Module, expected: Tensor, model: TaskModel) -> bool:
    ids, segments = _probe(model).unbind(1)
    with torch.no_grad():
        found = whole(input_ids=ids, attention_mask=(segments != 0).long()).logits.float()
    room = _TOLERANCE * float(expected.abs().max())
    return found.shape == expected.shape and bool((found - expected).abs().max() <= room)
