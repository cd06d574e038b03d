"""The settings of a model's config that its answers depend on beside its weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


Setting = bool | int | float | str
"""Value of a setting of a config."""

_NO_MATTER = re.compile(
    r"_name_or_path|architectures|transformers_version|(torch_)?dtype|use_cache|problem_type"
    r"|return_dict|output_.*|initializer_.*|.*_token_id|id2label|label2id|.*drop(out)?(_.*)?"
    r"|torchscript|gradient_checkpointing|finetuning_task|chunk_size_feed_forward|tie_.*"
)
"""Names of settings that decide no answer: the origin of a config, the form of what a model
returns, its training, and its tokens and labels, which are recorded elsewhere."""


def config_settings(model: nn.Module | PreTrainedConfig) -> dict[str, Setting]:
    """Return the numbers, texts and switches of a model's config by dotted name; no lists."""
    config: Any = getattr(model, "config", None) if isinstance(model, nn.Module) else model
    values = config.to_dict() if hasattr(config, "to_dict") else {}
    return dict(sorted(_list_settings(values)))


def describe_other_settings(recorded: object, here: object) -> str:
    """Name the settings that differ; what only one of two versions of transformers has does not."""
    if not isinstance(recorded, Mapping) or not isinstance(here, Mapping):
        return ""
    return ", ".join(
        f"{name} was {recorded[name]!r}, is {value!r}"
        for name, value in here.items()
        if name in recorded and recorded[name] != value
    )


def _list_settings(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, Setting]]:
    for name, value in values.items():
        path = f"{before}{name}"
        if _NO_MATTER.fullmatch(str(name)):
            continue
        if isinstance(value, Mapping):
            yield from _list_settings(value, f"{path}.")
        elif isinstance(value, bool | int | str) or (
            isinstance(value, float) and math.isfinite(value)
        ):
            yield path, value
