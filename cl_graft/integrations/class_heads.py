"""The conversion between heads of this package and the classes of transformers.

`AutoModelForTokenClassification` and `AutoModelForQuestionAnswering` put one linear layer on the
last states of all tokens, as heads of tags and of spans do. `AutoModelForSequenceClassification`
puts on most encoders a dense layer, an activation and a linear layer, over the first token; such
heads are imported, too. Their names and the activation differ by architecture, so they are found by
their shapes, and accepted only if both models answer the same rows alike.

A head of classes that was learned here is one linear layer. Its classifier gets a dense layer that
scales and shifts features to where the activation is a straight line, which the last layer takes
back.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cl_graft.errors import DamagedFile
from cl_graft.grafts.bank import Entry
from cl_graft.kinds import find_kind
from cl_graft.kinds.multi_label import LabelsHead
from cl_graft.models import TaskModel, load_head
from cl_graft.models.heads import ACTIVATIONS, PooledHead
from cl_graft.models.quiet import quiet
from cl_graft.runtime.seeding import generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TOKEN_PARTS = {"extractive_qa": "ends", "tagging": "tags"}
"""Names of the layer in the head of an entry, by kind."""

_TOLERANCE = 1e-4
"""Largest difference, relative to the largest logit: sums may be in another order."""

_STRAIGHT = ((2.0**-13, 0.0), (1.0, 64.0))
"""Scales and shifts at which an activation is a straight line: tanh near 0, relu and gelu far above
it. Features, which a layer norm has scaled, are a few units large."""


def as_transformers_model(model: TaskModel, entry: Entry) -> PreTrainedModel | None:
    """Make the model of transformers that answers as an encoder with an entry's head.

    It is in eval mode, on the CPU, without a layer of intents; None if transformers has none.
    """
    kind = find_kind(entry.metadata).name
    if kind not in _TOKEN_PARTS:
        return as_classifier(model, entry)
    config: Any = copy.deepcopy(model.backbone.config)
    if kind == "tagging":
        names: Any = entry.metadata.get("label_names")
        if not names:
            raise DamagedFile("the entry is damaged: it does not say what its tags are called")
        config.id2label = dict(enumerate(map(str, names)))
        config.label2id = {name: number for number, name in config.id2label.items()}
    else:
        config.num_labels = 2
    whole = _make_whole(_auto_class(kind), config, model.backbone)
    if whole is None:
        return None
    layers = _classifier_layers(whole, model.backbone)
    layer = {part: entry.head[f"{_TOKEN_PARTS[kind]}.{part}"] for part in ("weight", "bias")}
    weight = layer["weight"]
    if [(m.weight.shape, m.weight.dtype) for m in layers] != [(weight.shape, weight.dtype)]:
        return None
    layers[0].load_state_dict(layer)
    return whole


def as_classifier(model: TaskModel, entry: Entry) -> PreTrainedModel | None:
    """Make the sequence classifier that answers as an entry; None if transformers has none."""
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
    whole = _make_whole(_auto_class("classification"), config, backbone)
    if whole is None:
        return None
    layers = _classifier_layers(whole, backbone)
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
    """Read the head off a classifier of transformers; None if it is none that this package knows.

    The model is an encoder of its architecture with pooling ``"first"``; its values do not matter.
    """
    layers = _classifier_layers(whole, model.backbone)
    backbone = copy.deepcopy(model.backbone)
    backbone.load_state_dict(whole.base_model.state_dict(), strict=False)
    tuned = TaskModel(backbone, family="encoder", pooling=model.pooling).eval()
    heads: list[nn.Module] = []
    if len(layers) == 1:
        heads = [layers[0]]
    elif len(layers) == 2:
        heads = [PooledHead(*layers, activation=name) for name in ACTIVATIONS]
    return next((head for head in heads if _alike(whole, _answer(tuned, head), tuned)), None)


def read_label_names(model: Any) -> tuple[str, ...]:
    """Return the names of a model's labels, by number; none if its config only numbers them."""
    labels: Mapping[int, str] = model.config.id2label
    names = tuple(labels[number] for number in sorted(labels))
    return () if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names


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


def _auto_class(kind: str) -> Any:
    """Return the class of transformers that reads and makes models of a kind of tasks."""
    import transformers

    names = {"extractive_qa": "QuestionAnswering", "tagging": "TokenClassification"}
    return getattr(transformers, f"AutoModelFor{names.get(kind, 'SequenceClassification')}")


def _make_whole(auto: Any, config: Any, backbone: nn.Module) -> PreTrainedModel | None:
    """Make a model with a backbone's weights and a new head; None without a class for it."""
    try:
        with quiet():
            whole = auto.from_config(config, dtype=next(backbone.parameters()).dtype).eval()
    except ValueError:
        return None
    whole.base_model.load_state_dict(backbone.state_dict(), strict=False)
    return whole


def _classifier_layers(whole: nn.Module, backbone: nn.Module) -> list[nn.Linear]:
    """Return the linear layers that a classifier has beyond its backbone, in their order."""
    inner = {f"{whole.base_model_prefix}.{name}" for name, _ in backbone.named_modules()}
    return [
        module
        for name, module in whole.named_modules()
        if isinstance(module, nn.Linear) and name not in inner
    ]
