"""Metadata of a bank on its base and its tasks, to rebuild the model and to learn more tasks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from cl_graft.data import TextTask
from cl_graft.data.encoded_task import serialize_tokenizer
from cl_graft.errors import InputError
from cl_graft.grafts.bank import BaseIdentity
from cl_graft.grafts.hashing import file_sha256, fingerprint_weights, model_sha256
from cl_graft.models import Loaded, load_model
from cl_graft.models.answering_config import Setting, config_settings
from cl_graft.models.load import NAMED_MODELS
from cl_graft.settings import ExperimentConfig, config_from, merge_configs, to_dotted, to_nested
from cl_graft.settings.parts import ModelSettings
from cl_graft.storage.serialization import base_record
from cl_graft.strategies import TaskMetadata

BASE_HASHES = ("weights_sha256", "tokenizer_sha256", "files", "config")
"""Names of what `base_identity` records beside the fingerprint, to tell what differs."""

_NOT_LEARNING = {
    "stream": ("name", "tasks", "data", "task_settings", "text", "text_pair", "label"),
    "model": ("name", "device"),
    "comparison": ("strategies", "strategy_settings", "seeds"),
}
_DECIDED = {
    "model": ("name", "family", "pooling", "dtype", "precision", "device", "trust_remote_code"),
    "stream": ("tasks", "scenario", "classes_per_experience"),
    "grafting": ("mode",),
    "comparison": ("strategies", "strategy_settings", "sweep", "tune", "orders", "bytes_per_task"),
}
DECIDED = frozenset(f"{part}.{name}" for part, names in _DECIDED.items() for name in names)
"""Settings that the bank, the name of the task or the command decides where a task is added."""

_READ = re.compile(
    r"(config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|(vocab|merges)\.txt|.+\.(safetensors|bin|model|py|index\.json)"
)
"""Files of a checkpoint that transformers reads, its Python code included."""


@dataclass(frozen=True)
class BaseHashes:
    """SHA-256 hashes of a base, and the settings of its config that answers depend on."""

    fingerprint: str
    weights: str
    tokenizer: str
    config: Mapping[str, Setting]


def load_base_model(settings: ModelSettings) -> Loaded:
    """Load a model, in eval mode, without heads."""
    loaded = load_model(
        settings.name,
        family=settings.family,
        pooling=settings.pooling,
        dtype=settings.dtype,
        precision=settings.precision,
        trust_remote_code=settings.trust_remote_code,
    )
    if settings.gradient_checkpointing:
        loaded.model.recompute_()
    return loaded


def base_hashes(loaded: Loaded) -> BaseHashes:
    """Hash a base: parameters and buffers outside the heads, and its tokenizer.

    How the model answers counts, too: the same weights read otherwise are another base.
    """
    model, text = loaded.model, serialize_tokenizer(loaded.tokenizer)
    weights = model_sha256(model)
    reading = f"{model.family}|{model.pooling if model.family == 'encoder' else ''}"
    if model.precision != "fp32":
        reading = f"{reading}|{model.precision}"
    return BaseHashes(
        fingerprint=fingerprint_weights(weights, tokenizer=f"{reading}|{text}"),
        weights=weights,
        tokenizer=hashlib.sha256(text.encode()).hexdigest(),
        config=config_settings(model.backbone),
    )


def checkpoint_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a checkpoint, by name.

    Fingerprints go over what was loaded. Files hold more (an epsilon in the config, a tensor that
    the family does not use), and every bit of them counts here. Weights as pickles are left out
    where there are safetensors, as in loading.
    """
    if not (folder / "config.json").is_file():
        return {}
    files = [path for path in folder.iterdir() if path.is_file()]
    names = [path.name for path in files if _READ.fullmatch(path.name)]
    if any(name.endswith(".safetensors") for name in names):
        names = [name for name in names if not name.endswith((".bin", ".bin.index.json"))]
    return {name: file_sha256(folder / name) for name in sorted(names)}


def base_identity(loaded: Loaded, config: ExperimentConfig, *, seed: int) -> BaseIdentity:
    """Describe the base for a bank; an InputError if, say, its name holds control characters."""
    folder, hashes, model = Path(loaded.name).expanduser(), base_hashes(loaded), config.model
    is_own_folder = loaded.name not in NAMED_MODELS and folder.exists()
    identity = BaseIdentity(
        fingerprint=hashes.fingerprint,
        model=str(folder.resolve()) if is_own_folder else loaded.name,
        dtype=model.dtype,
        metadata={
            "family": model.family,
            "pooling": model.pooling,
            "precision": model.precision,
            "trust_remote_code": model.trust_remote_code,
            "max_length": config.stream.max_length,
            "seed": seed,
            "weights_sha256": hashes.weights,
            "tokenizer_sha256": hashes.tokenizer,
            "files": checkpoint_files(loaded.path),
            "config": hashes.config,
            **({"revision": loaded.revision} if loaded.revision else {}),
            "settings": _learning_settings(config),
        },
    )
    try:
        base_record(identity)
    except ValueError as error:
        raise InputError(f"no bank can record the base {loaded.name!r}: {error}") from error
    return identity


def stored_settings(base: BaseIdentity) -> dict[str, Any]:
    """Return the settings of learning that a bank records, by part; {} if it records none."""
    stored = base.metadata.get("settings", {})
    return dict(stored) if isinstance(stored, Mapping) else {}


def restore_config(
    base: BaseIdentity,
    *,
    tasks: list[str],
    settings: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
) -> ExperimentConfig:
    """Return the config with which a bank learns more tasks: its own settings, for these tasks."""
    fixed = {
        "stream": {"tasks": tasks},
        "model": {"name": base.model},
        "comparison": {"strategies": ["grafting"], "seeds": [base.metadata.get("seed", 0)]},
    }
    values = merge_configs(merge_configs(stored_settings(base), fixed), settings or {})
    return config_from(values, source="the bank's settings", origins=origins)


def record_own_settings(
    task: TaskMetadata, base: BaseIdentity, config: ExperimentConfig, *, seed: int
) -> TaskMetadata:
    """Add the settings of learning in which a task's config differs from its bank's, by part.

    Left out are rows a class and tokens a row, which `task_metadata` records, and where data are.
    """
    usual, settings = to_dotted(stored_settings(base)), to_dotted(_learning_settings(config))
    elsewhere = ("stream.shots", "stream.max_length")
    differing = {
        name: value
        for name, value in settings.items()
        if name not in elsewhere and (name not in usual or usual[name] != value)
    }
    if seed != base.metadata.get("seed", 0):
        differing["comparison.seeds"] = [seed]
    if not differing:
        return task
    return replace(task, metadata={**task.metadata, "settings": to_nested(differing)})


def read_own_settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of what `record_own_settings` recorded, without what `DECIDED` holds."""
    recorded = to_dotted(deepcopy(dict(metadata.get("settings") or {})))
    return to_nested({name: value for name, value in recorded.items() if name not in DECIDED})


def task_metadata(
    task: TextTask,
    config: ExperimentConfig,
    *,
    seed: int,
    max_length: int | None = None,
    builds_on: Sequence[str] | None = None,
    targets: Tensor | None = None,
) -> TaskMetadata:
    """Describe a task for its bank entry; `targets` are those of its encoded training rows."""
    kind, by_kind = task.own_kind, {}
    if not kind.one_label:  # else label names tell the kind
        learned = {} if targets is None else kind.metadata_of_targets(targets)
        by_kind = {"kind": task.kind, **kind.metadata(task), **learned}
    prompt = kind.find_prompt(task, config.model.family)
    return TaskMetadata(
        name=task.name,
        metric=task.scored_by,
        metadata={
            "label_names": list(task.label_names),
            "pair": task.pair,
            "prompt": prompt and {"template": prompt.template, "words": dict(prompt.words)},
            "max_length": max_length or config.stream.max_length or task.max_length,
            "rows": {split: len(rows) for split, rows in task.splits.items()},
            "shots": config.stream.shots,
            "data_fingerprint": task.fingerprint,
            "settings_sha256": _settings_sha256(config, seed=seed, builds_on=builds_on),
            **_columns(task),
            **by_kind,
        },
    )


def _columns(task: TextTask) -> dict[str, Any]:
    """Return the columns that the texts of a task are from; nothing where they have no names."""
    text, pair, _ = cast(Sequence[str | None], task.source.get("columns") or (None, None, None))
    columns = {"text": text, "text_pair": pair, "inputs": task.source.get("inputs")}
    named = {name: value for name, value in columns.items() if value}
    # A bank refuses names with control characters.
    return {"columns": named} if named and str(named).isprintable() else {}


def is_recorded(task: TaskMetadata, *, by: Mapping[str, object]) -> bool:
    """Tell whether an entry was learned from the data of a task with the same settings."""
    described = {"metric": task.metric, **task.metadata}
    return all(by.get(key) == value for key, value in described.items() if key != "columns")


def _learning_settings(config: ExperimentConfig) -> dict[str, Any]:
    values = config.values()
    for part, names in _NOT_LEARNING.items():
        for name in names:
            del values[part][name]
    del values["output"]
    return values


def _settings_sha256(
    config: ExperimentConfig, *, seed: int, builds_on: Sequence[str] | None
) -> str:
    """Hash the settings of learning that are not recorded one by one."""
    values = {"seed": seed, **_learning_settings(config)}
    if builds_on is not None:
        values["builds_on"] = list(builds_on)
    for name in ("shots", "max_length"):
        del values["stream"][name]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
