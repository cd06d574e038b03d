"""The base model of an experiment: what a bank must know to rebuild it, and to go on learning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_graft.bank import BaseIdentity
from cl_graft.experiments.config import ExperimentConfig, config_from
from cl_graft.fingerprint import model_fingerprint
from cl_graft.models import Loaded, load_model
from cl_graft.tasks.tokenizer import tokenizer_text

__all__ = ["base_fingerprint", "base_identity", "config_of", "load_base_model"]

_NOT_LEARNING = {"tasks", "data", "task_settings", "strategies", "model", "device"}


def load_base_model(config: ExperimentConfig) -> Loaded:
    """Load the model of a config, in eval mode, without heads.

    Raises:
        InputError: If there is no such checkpoint, or it does not fit the family.
    """
    loaded = load_model(
        config.model,
        family=config.family,
        pooling=config.pooling,
        dtype=config.dtype,
        precision=config.precision,
        trust_remote_code=config.trust_remote_code,
    )
    if config.gradient_checkpointing:
        loaded.model.recompute_()
    return loaded


def base_fingerprint(loaded: Loaded) -> str:
    """Return the SHA-256 that says which base a bank belongs to.

    It goes over every parameter and buffer outside the heads, the tokenizer, and how the model
    answers (family, pooling, precision): the same weights read otherwise are another base.
    """
    model = loaded.model
    reading = f"{model.family}|{model.pooling if model.family == 'encoder' else ''}"
    if model.precision != "fp32":
        reading = f"{reading}|{model.precision}"
    return model_fingerprint(
        model, exclude=("heads",), tokenizer=f"{reading}|{tokenizer_text(loaded.tokenizer)}"
    )


def base_identity(loaded: Loaded, config: ExperimentConfig, *, seed: int) -> BaseIdentity:
    """Describe the base for a bank; `config_of` reads the settings back.

    Args:
        loaded: The model at its base.
        config: The experiment's settings.
        seed: The run's seed.
    """
    folder = Path(loaded.name).expanduser()
    return BaseIdentity(
        fingerprint=base_fingerprint(loaded),
        model=str(folder.resolve()) if folder.is_dir() else loaded.name,
        dtype=config.dtype,
        facts={
            "family": config.family,
            "pooling": config.pooling,
            "precision": config.precision,
            "trust_remote_code": config.trust_remote_code,
            "max_length": config.max_length,
            "seed": seed,
            "settings": config.model_dump(mode="json", exclude={*_NOT_LEARNING, "seeds"}),
        },
    )


def config_of(base: BaseIdentity, *, tasks: list[str], **settings: Any) -> ExperimentConfig:
    """Return the config that goes on with a bank: its own settings, for other tasks.

    Args:
        base: What `base_identity` wrote.
        tasks: The tasks to learn now.
        **settings: Fields of `ExperimentConfig` to set otherwise (data, device, …).

    Raises:
        InputError: If a setting is wrong.
    """
    stored = base.facts.get("settings", {})
    kept: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    values = {**kept, "model": base.model, "tasks": tasks, "strategies": ["grafting"]}
    values["seeds"] = [base.facts.get("seed", 0)]
    return config_from({**values, **settings}, source="the bank's settings")
