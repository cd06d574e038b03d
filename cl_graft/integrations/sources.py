"""What can be imported, and what each source makes of the base.

Every source becomes a tuned model of the same architecture; where it moved the base is then seen by
comparing. That way an adapter counts as what its own library computes, and nothing that it changes
goes unseen.
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
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from cl_graft.errors import InputError, first_line
from cl_graft.grafts.region import check_index
from cl_graft.integrations.classifiers import head_from
from cl_graft.integrations.overlay import read_overlay
from cl_graft.integrations.sparse_tunings import SPARSE_TUNING, read_sparse_tuning
from cl_graft.models import Loaded, graftable_parameters, load_model
from cl_graft.models.heads import PooledHead
from cl_graft.models.quiet import quiet
from cl_graft.storage.metadata_schema import check_exported_metadata

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Source", "Tuned", "find_source", "read_source"]

_ADAPTER, _ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PEFT_KEY = "base_model.model."
_OWN = re.compile(r"\.(lora_\w+|shira_\w+|modules_to_save)\b.*$|\.(weight|bias)$")
"""What follows a module's path in the names of an adapter's tensors."""
_WRAPPED = re.compile(r"\.(base_layer|modules_to_save\.default)(?=\.)")
"""What PEFT puts into the names of the parameters of modules that it wraps."""


@dataclass(frozen=True)
class Source:
    """A source that was recognised.

    Attributes:
        kind: ``"adapter"``, ``"sparse tuning"``, ``"overlay"`` or ``"checkpoint"``.
        path: Its folder or file.
        classifier: Whether it is of a sequence classifier of transformers, with a head in it.
        classes: How many logits such a classifier has; 0 if it does not say.
        record: What a `task.json` beside it says.
    """

    kind: str
    path: Path
    classifier: bool = False
    classes: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a source makes of the base.

    Attributes:
        tensors: Parameters of the tuned backbone, by their names in `TaskModel`.
        head: State of the head, as an entry keeps it; empty if the source has none.
        metadata: What the entry is to record of it.
        label_names: By the source's own account; empty if it has none.
    """

    tensors: Mapping[str, Tensor]
    head: Mapping[str, Tensor] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()


def find_source(path: Path | str) -> Source:
    """Recognise a source by its files.

    Raises:
        InputError: If it is none of those that can be imported.
    """
    path = Path(path)
    record: dict[str, Any] = {}
    folder = path if path.is_dir() else path.parent
    if (folder / "task.json").is_file():
        record = _task_record(folder / "task.json")
    if (path / _ADAPTER_CONFIG).is_file():
        if not (path / _ADAPTER).is_file():
            raise InputError(
                f"{path} holds no {_ADAPTER}: adapters are read from safetensors alone, so save a "
                "pickled one (adapter_model.bin) again with safe_serialization=True"
            )
        heads = _heads_of_adapter(path / _ADAPTER)
        task = _json(path / _ADAPTER_CONFIG).get("task_type")
        classifier = task == "SEQ_CLS" or bool(heads)
        return Source("adapter", path, classifier, _classes(heads), record)
    if path.name == SPARSE_TUNING or (path / SPARSE_TUNING).is_file():
        file = path if path.is_file() else path / SPARSE_TUNING
        heads = {name: tuple(t.shape) for name, t in read_sparse_tuning(file).head.items()}
        return Source("sparse tuning", file, bool(heads), _classes(heads), record)
    if path.suffix == ".safetensors" or (path / "overlay.safetensors").is_file():
        file = path if path.is_file() else path / "overlay.safetensors"
        return Source("overlay", file, record=record)
    if (path / "config.json").is_file():
        names = _json(path / "config.json").get("architectures") or [""]
        return Source("checkpoint", path, names[0].endswith("ForSequenceClassification"), 0, record)
    if not path.exists():
        raise InputError(f"there is no file or folder {path}")
    raise InputError(
        f"{path} is nothing that can be imported: expected a folder with {_ADAPTER_CONFIG} (PEFT), "
        f"{SPARSE_TUNING} (composable-sft), overlay.safetensors, or config.json and weights"
    )


def read_source(source: Source, loaded: Loaded, *, trust_remote_code: bool = False) -> Tuned:
    """Apply a source to the base.

    Args:
        source: What `find_source` found.
        loaded: The base, which stays as it is.
        trust_remote_code: Whether to run Python code that comes with a checkpoint.

    Raises:
        InputError: If the source does not fit the base.
    """
    if source.kind == "checkpoint":
        return _read_checkpoint(source, loaded, trust_remote_code=trust_remote_code)
    if source.kind == "adapter":
        return _read_adapter(source, loaded)
    if source.kind == "overlay":
        overlay = read_overlay(source.path)
        whole = copy.deepcopy(loaded.model.backbone)
        _change(whole, overlay.changes, source, add=False)
        return _tuned(whole, loaded, source, head=overlay.head)
    tuning = read_sparse_tuning(source.path)
    whole = _model_with([*tuning.changes, *tuning.head], loaded, source)
    _change(whole, tuning.changes, source, add=True)
    for name, value in tuning.head.items():
        parameter = whole.get_parameter(name).detach()
        if value.shape != parameter.shape:
            raise InputError(
                f"{source.path} holds {name!r} of shape {tuple(value.shape)}, expected "
                f"{tuple(parameter.shape)}"
            )
        parameter.copy_(value)
    return _tuned(whole, loaded, source)


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
        return _tuned(whole.eval(), loaded, source)
    other = load_model(
        str(source.path),
        family=loaded.model.family,
        pooling=loaded.model.pooling,
        dtype=str(_dtype(loaded)).removeprefix("torch."),
        trust_remote_code=trust_remote_code,
    )
    return _tuned(other.model.backbone, loaded, source, head=_head_file(source.path))


def _read_adapter(source: Source, loaded: Loaded) -> Tuned:
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as error:
        raise InputError("adapters are read with peft: pip install 'cl-graft[peft]'") from error

    held = _adapter_tensors(source.path / _ADAPTER)
    names = [name.removeprefix(_PEFT_KEY) for name in held]
    whole = _model_with({_OWN.sub("", name) for name in names}, loaded, source, modules=True)
    try:
        with quiet(), warnings.catch_warnings():
            # PEFT asks transformers by a name that is on its way out, and torch for sparse tensors.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly")
            adapted: Any = PeftModel.from_pretrained(cast(Any, copy.deepcopy(whole)), source.path)
            adapted.merge_adapter()
    except (AttributeError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(
            f"{source.path} cannot be merged into {loaded.name!r}: {first_line(error)}"
        ) from error
    if unknown := sorted(held.keys() - get_peft_model_state_dict(adapted).keys()):
        raise InputError(
            f"{source.path / _ADAPTER} holds {unknown[0]!r}{_more(unknown)}, which the adapter "
            f"that {_ADAPTER_CONFIG} describes does not have"
        )
    merged = {
        _WRAPPED.sub("", name.removeprefix(_PEFT_KEY)): tensor
        for name, tensor in adapted.named_parameters()
        if ".original_module." not in name
    }
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            parameter.copy_(merged[name])
    return _tuned(whole, loaded, source, head=_head_file(source.path))


def _adapter_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of an adapter.

    Raises:
        InputError: If one is NaN or infinite, or the places of a sparse one are none.
    """
    try:
        held = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error
    for name, tensor in held.items():
        if not bool(tensor.isfinite().all()):
            raise InputError(f"{path} holds NaN or infinities in {name!r}")
        if name.endswith(".shira_indices"):
            _check_places(tensor, name, path)
    return held


def _check_places(places: Tensor, name: str, path: Path) -> None:
    """Refuse rows and columns, (2, n), that are no whole numbers from 0 or repeat themselves."""
    if places.dim() != 2 or len(places) != 2 or places.is_floating_point():
        raise InputError(
            f"{path}: {name!r} must be rows and columns as whole numbers, (2, n), got "
            f"{tuple(places.shape)} of {places.dtype}"
        )
    rows, columns = places.long()
    width = int(columns.max()) + 1 if places.numel() else 1
    flat = rows * width + columns
    if bool((places < 0).any()) or len(flat.unique()) != len(flat):
        raise InputError(f"{path}: {name!r} holds places below 0, or one of them twice")


def _model_with(
    names: Iterable[str], loaded: Loaded, source: Source, *, modules: bool = False
) -> nn.Module:
    """Return the base as a class of transformers that has all these parameters (or modules).

    Raises:
        InputError: If no class has.
    """
    whole: nn.Module = copy.deepcopy(loaded.model.backbone)
    if source.classifier:
        whole = _classifier(loaded, source)
    known = {name for name, _ in (whole.named_modules() if modules else whole.named_parameters())}
    missing = sorted(name for name in names if name not in known)
    if missing:
        raise InputError(
            f"{source.path} changes {missing[0]!r}{_more(missing)}, which {type(whole).__name__} "
            f"of {loaded.name!r} does not have: it belongs to another architecture or family"
        )
    return whole


def _classifier(loaded: Loaded, source: Source) -> nn.Module:
    """Return the base as a sequence classifier.

    Raises:
        InputError: If parts of it would be random that the source does not bring.
    """
    from transformers import AutoModelForSequenceClassification

    options: Any = {"num_labels": source.classes} if source.classes else {}
    with quiet():
        whole, info = AutoModelForSequenceClassification.from_pretrained(
            loaded.path, dtype=_dtype(loaded), output_loading_info=True, **options
        )
    brought = {name.removeprefix(_PEFT_KEY) for name in _tensor_names(source)}
    missing = sorted(name for name in info["missing_keys"] if name not in brought)
    if missing:
        raise InputError(
            f"{source.path} is of a classifier whose {missing[0]!r}{_more(missing)} neither it nor "
            f"the base {loaded.name!r} holds: it was random when the source was trained"
        )
    return whole.eval()


def _tensor_names(source: Source) -> set[str]:
    if source.kind == "sparse tuning":
        return set(read_sparse_tuning(source.path).head)
    with safe_open(source.path / _ADAPTER, framework="pt") as file:
        return {name.replace(".modules_to_save.", ".") for name in file.keys()}  # noqa: SIM118


def _change(
    whole: nn.Module,
    changes: Mapping[str, tuple[Tensor, Tensor]],
    source: Source,
    *,
    add: bool,
) -> None:
    """Add differences to parameters, or set values, in place."""
    parameters = dict(whole.named_parameters())
    for name, (index, values) in changes.items():
        parameter = parameters.get(name)
        if parameter is None:
            raise InputError(
                f"{source.path} changes {name!r}, which {type(whole).__name__} does not have: it "
                "belongs to another architecture or family"
            )
        try:
            check_index(index, parameter.numel())
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{source.path} changes {name!r} at places that {type(whole).__name__} does not "
                f"have: {error}"
            ) from None
        if not values.is_floating_point() or not bool(values.isfinite().all()):
            raise InputError(f"{source.path} makes {name!r} NaN or infinite, or holds no floats")
        flat = parameter.detach().view(-1)
        now, place = values.to(flat.dtype), index.long()
        flat[place] = flat[place] + now if add else now


def _tuned(
    whole: nn.Module, loaded: Loaded, source: Source, *, head: Mapping[str, Tensor] | None = None
) -> Tuned:
    """Read backbone and head off a tuned model of transformers.

    Raises:
        InputError: If it is of another architecture, or its head is none that this package knows.
    """
    inner = cast("PreTrainedModel", whole).base_model if source.classifier else whole
    tensors = {f"backbone.{name}": tensor for name, tensor in inner.named_parameters()}
    _check_form(tensors, loaded, source)
    if not source.classifier:
        metadata = {k: source.record[k] for k in ("activation",) if k in source.record}
        names = tuple(source.record.get("label_names", ()))
        return Tuned(tensors, head or {}, metadata, names)
    classifier = cast("PreTrainedModel", whole)
    found = head_from(classifier, loaded.model)
    if found is None:
        raise InputError(
            f"the head of {type(whole).__name__} in {source.path} is none that can be kept: "
            "expected at most a dense layer, an activation and a linear layer over the first "
            f"token, and a base with pooling 'first' (this one has {loaded.model.pooling!r})"
        )
    state = {name: tensor.detach().clone() for name, tensor in found.state_dict().items()}
    metadata = {"activation": found.activation} if isinstance(found, PooledHead) else {}
    labels: Mapping[int, str] = cast(Any, classifier.config).id2label
    names = tuple(labels[number] for number in sorted(labels))
    told = not all(re.fullmatch(r"LABEL_\d+", name) for name in names)
    return Tuned(tensors, state, metadata, names if told else ())


def _check_form(tensors: Mapping[str, Tensor], loaded: Loaded, source: Source) -> None:
    """Refuse tensors of another architecture, or of another vocabulary."""
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


def _head_file(folder: Path) -> dict[str, Tensor]:
    path = folder / "head.safetensors"
    try:
        return load_file(path) if path.is_file() else {}
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error


def _heads_of_adapter(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in an adapter that are a classifier's."""
    with safe_open(path, framework="pt") as file:
        return {
            name: tuple(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118
            if re.search(r"\.(classifier|score|pre_classifier)\.", name)
        }


def _classes(heads: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of logits: the rows of the last matrix of the head."""
    rows = [
        shape[0]
        for name, shape in heads.items()
        if re.search(r"(classifier|out_proj|score)\.weight$", name) and "pre_classifier" not in name
    ]
    return rows[-1] if rows else 0


def _dtype(loaded: Loaded) -> torch.dtype:
    return next(loaded.model.backbone.parameters()).dtype


def _task_record(path: Path) -> dict[str, Any]:
    """Return what a `task.json` of this package says; nothing of another's."""
    record = _json(path)
    if not str(record.get("written_by")).startswith("cl_graft "):
        return {}
    try:
        check_exported_metadata(record)
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
