"""The parts of a graft in single parameters, and the files of an adapter, for exports to PEFT.

An adapter adds differences to the base, a graft sets values: where no difference gives a value, its
last bits are others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cl_graft.grafts.bank import BaseIdentity
from cl_graft.grafts.graft import Graft
from cl_graft.integrations.import_sources import ADAPTER, ADAPTER_CONFIG


@dataclass(frozen=True, eq=False)
class Part:
    """The part of a graft in one parameter: flat numbers of its elements, and new values."""

    path: str
    name: str
    module: nn.Module
    index: Tensor
    values: Tensor

    @property
    def kind(self) -> str:
        """Class of the module and name of the parameter, as ``"LayerNorm.bias"``."""
        return f"{type(self.module).__name__}.{self.name}"

    @property
    def shape(self) -> torch.Size:
        """Shape of the parameter."""
        return self.module.get_parameter(self.name).shape


def split_graft(backbone: nn.Module, graft: Graft) -> list[Part]:
    """Return the parts of a graft in the parameters of a model."""
    parts: list[Part] = []
    for full, inside, part in graft.region.by_parameter():
        path, _, name = full.removeprefix("backbone.").rpartition(".")
        module = backbone.get_submodule(path)
        parts.append(Part(path, name, module, inside, graft.values[part]))
    return parts


def count_kinds(parts: Sequence[Part]) -> dict[str, int]:
    """Return the number of coordinates by kind, the most first."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts[part.kind] += len(part.index)
    return dict(counts.most_common())


def save_adapter(
    into: Path, tensors: Mapping[str, Tensor], base: BaseIdentity, **config: object
) -> None:
    """Write the tensors of an adapter, and its config beside what every adapter's says."""
    shared = {
        "task_type": None,
        "base_model_name_or_path": base.model,
        "revision": base.metadata.get("revision"),
        "inference_mode": True,
    }
    save_file(dict(tensors), into / ADAPTER, metadata={"format": "pt"})
    text = json.dumps({**shared, **config}, indent=2)
    (into / ADAPTER_CONFIG).write_text(f"{text}\n", encoding="utf-8")
