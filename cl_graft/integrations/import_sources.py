"""The sources of an import: their kinds, and the tuned model that each makes of the base.

Every source becomes a tuned model of the same architecture, which is then compared with the base.
So an adapter counts as what PEFT computes of it, and every change is seen.

Heads of this package and classes of transformers become each other. Those of tags and of spans are
one linear layer there, too. `AutoModelForSequenceClassification` puts on most encoders a dense
layer, an activation and a linear layer, over the first token, under names that differ: they are
found by their shapes, and accepted only if both models answer the same rows alike. A head of
classes that was learned here is one linear layer: its classifier gets a dense layer that scales and
shifts features to where the activation is a straight line, which the last layer takes back.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cl_graft.errors import DamagedFile, InputError, first_line
from cl_graft.grafts.bank import Entry
from cl_graft.kinds import find_kind
from cl_graft.kinds.multi_label import LabelsHead
from cl_graft.models import Loaded, TaskModel, graftable_parameters, load_head, load_model
from cl_graft.models.answering_config import config_settings, describe_other_settings
from cl_graft.models.heads import ACTIVATIONS, PooledHead
from cl_graft.models.quiet import quiet
from cl_graft.runtime.seeding import generator
from cl_graft.storage.metadata_schema import check_metadata

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

PREFIX = "base_model.model."
"""Prefix of the names of a wrapped model's parameters in files of PEFT."""

CLASSIFIER = "AutoModelForSequenceClassification"
HEADED_CLASSES = {
    "extractive_qa": "AutoModelForQuestionAnswering",
    "tagging": "AutoModelForTokenClassification",
}
"""Class of transformers that reads an export with its head, by kind; for others a classifier's."""

_OF_TOKENS = r"For(TokenClassification|QuestionAnswering)$"
"""Classes of transformers that answer at tokens."""

_OWN = re.compile(r"\.(lora_\w+|shira_\w+|modules_to_save)\b.*$|\.(weight|bias)$")
"""Suffix after a module's path in the names of an adapter's tensors."""

_WRAPPED = re.compile(r"\.(base_layer|modules_to_save\.default)(?=\.)")
"""Part that PEFT adds to the names of the parameters of modules that it wraps."""


@dataclass(frozen=True, eq=False)
class Source:
    """A recognised source, ``"adapter"`` or ``"checkpoint"``, and what its files say of it.

    `classifier` tells a sequence classifier of transformers, `record` is a `task.json` beside it,
    `held` an adapter.
    """

    kind: str
    path: Path
    classifier: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Tuned:
    """The model that a source makes of the base; tensors have their names in `TaskModel`."""

    tensors: Mapping[str, Tensor]
    head: Mapping[str, Tensor] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()


def find_source(path: Path | str) -> Source:
    """Recognise a source by its files."""
    path = Path(path)
    record: dict[str, Any] = {}
    names: list[str] = [""]
    if (path / "config.json").is_file():
        names = _json(path / "config.json").get("architectures") or names
    adapts = (path / ADAPTER_CONFIG).is_file()
    folder = path if path.is_dir() else path.parent
    if (folder / "task.json").is_file():
        record = _task_record(folder / "task.json")
    kind = record.get("kind", "classification")
    if kind not in ("classification", "regression") or re.search(_OF_TOKENS, names[0]):
        raise InputError(
            f"{path} answers with tags, text, a part of a passage or several labels "
            f"({names[0] or kind}), and only models of classes and numbers are imported; learn the "
            "task with cl-graft add"
        )
    if adapts:
        if not (path / ADAPTER).is_file():
            raise InputError(
                f"{path} holds no {ADAPTER}: adapters are read from safetensors alone, so save a "
                "pickled one (adapter_model.bin) again with safe_serialization=True"
            )
        held = _load(path / ADAPTER)
        for name, tensor in held.items():
            if not bool(tensor.isfinite().all()):
                raise InputError(f"{path / ADAPTER} holds NaN or infinities in {name!r}")
        classifier = _json(path / ADAPTER_CONFIG).get("task_type") == "SEQ_CLS" or any(
            re.search(r"\.(classifier|score|pre_classifier)\.", name) for name in held
        )
        return Source("adapter", path, classifier, record, held=held)
    if (path / "config.json").is_file():
        classifier = names[0].endswith("ForSequenceClassification")
        return Source("checkpoint", path, classifier, record)
    if not path.exists():
        raise InputError(f"there is no file or folder {path}")
    raise InputError(
        f"{path} is nothing that can be imported: expected a folder with {ADAPTER_CONFIG} (PEFT), "
        "or config.json and weights"
    )


def read_source(source: Source, loaded: Loaded, *, trust_remote_code: bool = False) -> Tuned:
    """Apply a source to the base."""
    if source.kind == "checkpoint":
        return _read_checkpoint(source, loaded, trust_remote_code=trust_remote_code)
    return _read_adapter(source, loaded)


def _read_checkpoint(source: Source, loaded: Loaded, *, trust_remote_code: bool) -> Tuned:
    if source.classifier:
        from transformers import AutoModelForSequenceClassification

        try:
            with quiet():
                whole = AutoModelForSequenceClassification.from_pretrained(
                    source.path, dtype=_dtype(loaded), trust_remote_code=trust_remote_code
                )
        except Exception as error:
            raise InputError(f"{source.path} cannot be read: {first_line(error)}") from error
        if whole.config.problem_type == "multi_label_classification":
            raise InputError(
                f"{source.path} answers several labels a text, which is not imported; learn it "
                "with cl-graft add"
            )
        return _read_tuned(whole.eval(), loaded, source)
    other = load_model(
        str(source.path),
        family=loaded.model.family,
        pooling=loaded.model.pooling,
        dtype=str(_dtype(loaded)).removeprefix("torch."),
        trust_remote_code=trust_remote_code,
    )
    return _read_tuned(other.model.backbone, loaded, source, head=_head_file(source.path))


def _read_adapter(source: Source, loaded: Loaded) -> Tuned:
    whole = (
        _classifier(loaded, source) if source.classifier else copy.deepcopy(loaded.model.backbone)
    )
    adapted = {_OWN.sub("", name.removeprefix(PREFIX)) for name in source.held}
    if missing := sorted(adapted - {name for name, _ in whole.named_modules()}):
        raise InputError(
            f"{source.path} changes {missing[0]!r}{_more(missing)}, which {type(whole).__name__} "
            f"of {loaded.name!r} does not have: it belongs to another architecture or family"
        )
    _merge_adapter(whole, source.path, source.held, name=loaded.name)
    return _read_tuned(whole, loaded, source, head=_head_file(source.path))


def _merge_adapter(whole: nn.Module, folder: Path, held: Iterable[str], *, name: str) -> None:
    """Merge an adapter, whose tensors have the names `held`, into a model, in place."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as error:
        raise InputError("adapters are read with peft: pip install 'cl-graft[peft]'") from error

    try:
        with quiet(), warnings.catch_warnings():
            # PEFT asks transformers by a name that is on its way out, and torch for sparse tensors.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly")
            adapted: Any = PeftModel.from_pretrained(cast(Any, copy.deepcopy(whole)), folder)
            adapted.merge_adapter()
    except (AttributeError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{folder} cannot be merged into {name!r}: {first_line(error)}") from error
    if unknown := sorted(set(held) - get_peft_model_state_dict(adapted).keys()):
        raise InputError(
            f"{folder / ADAPTER} holds {unknown[0]!r}{_more(unknown)}, which the adapter that "
            f"{ADAPTER_CONFIG} describes does not have"
        )
    merged = {
        _WRAPPED.sub("", key.removeprefix(PREFIX)): tensor
        for key, tensor in adapted.named_parameters()
        if ".original_module." not in key
    }
    with torch.no_grad():
        for key, parameter in whole.named_parameters():
            parameter.copy_(merged[key])


def _classifier(loaded: Loaded, source: Source) -> nn.Module:
    """Return the base as a sequence classifier, unless parts of it would be random."""
    from transformers import AutoModelForSequenceClassification

    # The rows of the last matrix of the head.
    rows = [
        len(tensor)
        for name, tensor in source.held.items()
        if re.search(r"\.(classifier|score)\.(.*out_proj\.)?weight$", name)
    ]
    options: Any = {"num_labels": rows[-1]} if rows else {}
    with quiet():
        whole, info = AutoModelForSequenceClassification.from_pretrained(
            loaded.path, dtype=_dtype(loaded), output_loading_info=True, **options
        )
    brought = {name.replace(".modules_to_save.", ".").removeprefix(PREFIX) for name in source.held}
    missing = sorted(name for name in info["missing_keys"] if name not in brought)
    if missing:
        raise InputError(
            f"{source.path} is of a classifier whose {missing[0]!r}{_more(missing)} neither it nor "
            f"the base {loaded.name!r} holds: it was random when the source was trained"
        )
    return whole.eval()


def _read_tuned(
    whole: nn.Module, loaded: Loaded, source: Source, *, head: Mapping[str, Tensor] | None = None
) -> Tuned:
    inner = cast("PreTrainedModel", whole).base_model if source.classifier else whole
    tensors = {f"backbone.{name}": tensor for name, tensor in inner.named_parameters()}
    _check_form(tensors, inner.config, loaded, source)
    if not source.classifier:
        metadata = {k: source.record[k] for k in ("activation",) if k in source.record}
        names = tuple(source.record.get("label_names", ()))
        return Tuned(tensors, head or {}, metadata, names)
    classifier = cast("PreTrainedModel", whole)
    head_module = head_from(classifier, loaded.model)
    if head_module is None:
        raise InputError(
            f"the head of {type(whole).__name__} in {source.path} is none that can be kept: "
            "expected at most a dense layer, an activation and a linear layer over the first "
            f"token, and a base with pooling 'first' (this one has {loaded.model.pooling!r})"
        )
    state = {name: tensor.detach().clone() for name, tensor in head_module.state_dict().items()}
    metadata = {"activation": head_module.activation} if isinstance(head_module, PooledHead) else {}
    return Tuned(tensors, state, metadata, read_label_names(classifier))


def _check_form(tensors: Mapping[str, Tensor], config: Any, loaded: Loaded, source: Source) -> None:
    """Refuse tensors of another architecture, vocabulary, or config, where the config is known."""
    graftable = graftable_parameters(loaded.model)
    for name, parameter in loaded.model.named_parameters():
        other = tensors.get(name)
        if (other is None and name in graftable) or (
            other is not None and other.shape != parameter.shape
        ):
            form = "is missing" if other is None else f"has shape {tuple(other.shape)}"
            raise InputError(
                f"{name.removeprefix('backbone.')} has shape {tuple(parameter.shape)} in the base "
                f"and {form} in {source.path}: it belongs to another architecture"
            )
    base = config_settings(loaded.model.backbone)
    if other := describe_other_settings(base, config_settings(config)):
        raise InputError(
            f"{source.path} was tuned under another config than that of {loaded.name!r}: {other}"
        )


def _head_file(folder: Path) -> dict[str, Tensor]:
    path = folder / "head.safetensors"
    return _load(path) if path.is_file() else {}


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error


def _dtype(loaded: Loaded) -> torch.dtype:
    return next(loaded.model.backbone.parameters()).dtype


def _task_record(path: Path) -> dict[str, Any]:
    """Return what a `task.json` of this package says; nothing of another's."""
    record = _json(path)
    if not str(record.get("written_by")).startswith("cl_graft "):
        return {}
    try:
        check_metadata("export", record)
    except ValueError as error:
        raise InputError(f"{path} describes no task: {error}") from None
    return record


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object")
    return content


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


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
        logits = whole(input_ids=ids, attention_mask=(segments != 0).long()).logits.float()
    room = _TOLERANCE * float(expected.abs().max())
    return logits.shape == expected.shape and bool((logits - expected).abs().max() <= room)


def _auto_class(kind: str) -> Any:
    """Return the class of transformers that reads and makes models of a kind of tasks."""
    import transformers

    return getattr(transformers, HEADED_CLASSES.get(kind, CLASSIFIER))


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
