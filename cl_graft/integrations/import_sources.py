"""The sources of an import: their kinds, and the tuned model that each makes of the base.

Every source becomes a tuned model of the same architecture, which is then compared with the base.
So an adapter counts as what PEFT computes of it, and every change is seen.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cl_graft.errors import InputError, first_line
from cl_graft.integrations import class_heads
from cl_graft.models import Loaded, graftable_parameters, load_model
from cl_graft.models.config_settings import config_settings, describe_other_settings
from cl_graft.models.heads import PooledHead
from cl_graft.models.quiet import quiet
from cl_graft.storage.metadata_schema import check_metadata

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

PREFIX = "base_model.model."
"""Prefix of the names of a wrapped model's parameters in files of PEFT."""

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
        held = _read_adapter_tensors(path / ADAPTER)
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


def _read_adapter_tensors(path: Path) -> dict[str, Tensor]:
    held = _load(path)
    for name, tensor in held.items():
        if not bool(tensor.isfinite().all()):
            raise InputError(f"{path} holds NaN or infinities in {name!r}")
    return held


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
    """Read backbone and head off a tuned model of transformers."""
    inner = cast("PreTrainedModel", whole).base_model if source.classifier else whole
    tensors = {f"backbone.{name}": tensor for name, tensor in inner.named_parameters()}
    _check_form(tensors, inner.config, loaded, source)
    if not source.classifier:
        metadata = {k: source.record[k] for k in ("activation",) if k in source.record}
        names = tuple(source.record.get("label_names", ()))
        return Tuned(tensors, head or {}, metadata, names)
    classifier = cast("PreTrainedModel", whole)
    found = class_heads.head_from(classifier, loaded.model)
    if found is None:
        raise InputError(
            f"the head of {type(whole).__name__} in {source.path} is none that can be kept: "
            "expected at most a dense layer, an activation and a linear layer over the first "
            f"token, and a base with pooling 'first' (this one has {loaded.model.pooling!r})"
        )
    state = {name: tensor.detach().clone() for name, tensor in found.state_dict().items()}
    metadata = {"activation": found.activation} if isinstance(found, PooledHead) else {}
    return Tuned(tensors, state, metadata, class_heads.read_label_names(classifier))


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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no JSON object")
    return found


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
