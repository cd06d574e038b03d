"""Flat configs of earlier versions, and the part in which each setting is now.

Earlier versions wrote settings without parts into runs, banks and results. These are read through
`from_flat`; nothing else accepts the old names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["MOVED", "from_flat"]


def _move(part: str, *same: str, **renamed: str) -> dict[str, str]:
    return {old: f"{part}.{new}" for old, new in {**{n: n for n in same}, **renamed}.items()}


MOVED: Mapping[str, str] = MappingProxyType(
    {
        **_move("stream", "tasks", "scenario", "classes_per_experience", "data", "shots"),
        **_move("stream", "shots_short", "data_seed", "max_train", "max_dev", "max_test"),
        **_move("stream", "max_length", "on_bad_row", "max_megabytes", "task_settings"),
        **_move("model", "family", "pooling", "dtype", "precision", "gradient_checkpointing"),
        **_move("model", "trust_remote_code", "device", model="name"),
        **_move("fine_tuning", "steps", "batch_size", "micro_batch", "lr", "weight_decay", "clip"),
        **_move("fine_tuning", "group_by_length", "evaluations", dense_optimizer="optimizer"),
        **_move("fine_tuning", dense_decay="decay", dense_clip="clip", dense_l1="l1"),
        **_move("fine_tuning", dense_mixout="mixout"),
        **_move("grafting", "density", "localizer", "mask_steps", "mask_batch", "mask_candidates"),
        **_move("grafting", "retrain", "mode", "keep_standalone", warmup_rows="head_fit_rows"),
        **_move("grafting", refill="avoid_owned", region_start="start", region_dropout="dropout"),
        **_move("grafting", region_lr="lr", region_decay="lr_decay"),
        **_move("grafting", region_evaluations="evaluations"),
        **_move("training", "grid", "eval_batch"),
        **_move("comparison", "strategies", "strategy_settings", "seeds", "sweep", "orders"),
        **_move("comparison", "tune", "bytes_per_task"),
        **_move("output", "checkpoint_seconds", "checkpoint_steps"),
    }
)
"""Dotted name of each setting, by its name in flat configs."""

_PARTS = {place.partition(".")[0] for place in MOVED.values()}


def from_flat(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings by part; those that have parts already are returned as they are.

    Args:
        stored: Settings of a run, a bank or results; other names are kept.
    """
    if any(isinstance(stored.get(part), Mapping) for part in _PARTS):
        return _name_decay(stored)
    nested: dict[str, Any] = {}
    flat = dict(stored)
    if "dense_clip" in flat and (dense_clip := flat.pop("dense_clip")) is not None:
        # Flat configs had two: this one for dense runs, `clip` for the loops of strategies.
        nested["training"] = {"clip": flat.get("clip", 1.0)}
        flat["clip"] = dense_clip
    if "steps" in flat:
        by_paper = flat["steps"] is None and flat.get("preset") == "paper"
        nested.setdefault("training", {})["paper_steps"] = by_paper
        if flat["steps"] is None:
            del flat["steps"]
    if isinstance(sweep := flat.get("sweep"), Mapping):
        flat["sweep"] = {MOVED.get(name, name): values for name, values in sweep.items()}
    for name, value in flat.items():
        part, dot, field = MOVED.get(name, name).partition(".")
        if dot:
            nested.setdefault(part, {})[field] = value
        else:
            nested[name] = value
    return _name_decay(nested)


def _name_decay(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with a name for what was once whether a region's rate falls."""
    grafting = stored.get("grafting")
    if not isinstance(grafting, Mapping) or not isinstance(grafting.get("lr_decay"), bool):
        return dict(stored)
    decay = "linear" if grafting["lr_decay"] else "constant"
    return {**stored, "grafting": {**grafting, "lr_decay": decay}}
