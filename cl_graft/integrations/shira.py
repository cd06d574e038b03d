"""A task as a SHiRA adapter of PEFT: sparse differences of weights of `nn.Linear`.

SHiRA (Bhardwaj et al., 2024, https://arxiv.org/abs/2406.13175) holds r · (inputs + outputs) entries
of every matrix that it changes, with one r for all, so short regions are filled up with differences
of 0. It knows no biases, no LayerNorms and no GPT-2 (whose layers are `Conv1D`); whole copies of
these modules stand beside it.

An adapter adds differences, a graft sets values: where no difference gives a value, its last bits
are others.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cl_graft.banks.open_bank import OpenBank
from cl_graft.errors import InputError
from cl_graft.grafts.graft import Graft
from cl_graft.integrations.export_record import format_counts, save_head, skips_pooler
from cl_graft.integrations.import_sources import ADAPTER_CONFIG, PREFIX


@dataclass(frozen=True, eq=False)
class _Part:
    """The part of a graft in one parameter: flat numbers of its elements, and new values."""

    path: str
    name: str
    module: nn.Module
    index: Tensor
    values: Tensor

    @property
    def kind(self) -> str:
        return f"{type(self.module).__name__}.{self.name}"

    @property
    def is_matrix(self) -> bool:
        return isinstance(self.module, nn.Linear) and self.name == "weight"

    @property
    def shape(self) -> torch.Size:
        return self.module.get_parameter(self.name).shape

    @property
    def least_rank(self) -> int:
        return math.ceil(len(self.index) / sum(self.shape))


def write_shira(
    opened: OpenBank, position: int, into: Path | str
) -> tuple[dict[str, Any], dict[str, int]]:
    """Write the adapter that turns the base into the model that answers an entry.

    Returns:
        Items of `task.json`, and the number of coordinates that are in whole copies of their
        modules, by kind of parameter.
    """
    into = Path(into)
    bank, model = opened.bank, opened.loaded.model
    opened.carry(None)
    if bank.base.dtype != "float32":
        raise InputError(
            f"a SHiRA adapter adds fp32 differences, and this base is {bank.base.dtype}: export it "
            "as hf"
        )
    parts = _parts(model.backbone, bank.answer(position))
    copied, matrices = _split_parts(parts)
    rank = max(part.least_rank for part in matrices)
    tensors = _copies(copied)
    for part in matrices:
        index, differences = _differences(part, rank)
        tensors[f"{PREFIX}{part.path}.shira_weight"] = differences
        tensors[f"{PREFIX}{part.path}.shira_indices"] = index
    save_file(tensors, into / "adapter_model.safetensors", metadata={"format": "pt"})
    copies = sorted({part.path for part in copied})
    config = _config(opened, rank=rank, targets=[part.path for part in matrices], copies=copies)
    (into / ADAPTER_CONFIG).write_text(f"{json.dumps(config, indent=2)}\n", encoding="utf-8")
    record: dict[str, Any] = {"class": type(model.backbone).__name__}
    if model.family == "encoder":
        record["without_pooler"] = skips_pooler(model.backbone)
        save_head(bank.entries[position], into)
    return record, _count(copied)


def _parts(backbone: nn.Module, graft: Graft) -> list[_Part]:
    parts: list[_Part] = []
    for full, inside, part in graft.region.by_parameter():
        path, _, name = full.removeprefix("backbone.").rpartition(".")
        module = backbone.get_submodule(path)
        parts.append(_Part(path, name, module, inside, graft.values[part]))
    return parts


def _split_parts(parts: list[_Part]) -> tuple[list[_Part], list[_Part]]:
    """Return the parts that are copied with their modules, and those that SHiRA holds."""
    matrices = [part for part in parts if part.is_matrix]
    most = min((math.prod(part.shape) // sum(part.shape) for part in matrices), default=0)
    copies = {part.path for part in parts if not part.is_matrix or part.least_rank > most}
    held = [part for part in matrices if part.path not in copies]
    if not held:
        raise InputError(
            "a SHiRA adapter holds weights of nn.Linear, and of this graft it would hold none "
            f"({format_counts(_count(parts))}): export it as hf"
        )
    return [part for part in parts if part.path in copies], held


def _differences(part: _Part, rank: int) -> tuple[Tensor, Tensor]:
    """Return index, (2, r · (m + n)), and differences."""
    weight = part.module.get_parameter("weight").detach().reshape(-1)
    count = rank * sum(part.shape)
    free = torch.ones(len(weight), dtype=torch.bool)
    free[part.index] = False
    # Beside the graft's own, the first free places: their difference is 0.
    index = torch.cat([part.index, free.nonzero().squeeze(1)[: count - len(part.index)]])
    differences = torch.zeros(count)
    differences[: len(part.index)] = part.values - weight[part.index]
    index, order = index.sort()
    columns = part.shape[1]
    places = torch.stack([index // columns, index % columns]).to(torch.int32)
    return places, differences[order]


def _copies(copied: list[_Part]) -> dict[str, Tensor]:
    """Return the whole state of each module that is copied, with the graft's values in it."""
    state: dict[str, Tensor] = {}
    for part in copied:
        for name, tensor in part.module.state_dict().items():
            state.setdefault(f"{part.path}.{name}", tensor.detach().clone())
        state[f"{part.path}.{part.name}"].view(-1)[part.index] = part.values
    return {f"{PREFIX}{name}": tensor for name, tensor in state.items()}


def _config(opened: OpenBank, *, rank: int, targets: list[str], copies: list[str]) -> object:
    base = opened.bank.base
    return {
        "peft_type": "SHIRA",
        "task_type": None,
        "base_model_name_or_path": base.model,
        "revision": base.metadata.get("revision"),
        "inference_mode": True,
        "r": rank,
        # PEFT draws a mask on loading and then takes the indices of the file.
        "mask_type": "random",
        "random_seed": 0,
        "target_modules": targets,
        "modules_to_save": copies or None,
        "fan_in_fan_out": False,
        "init_weights": True,
    }


def _count(parts: list[_Part]) -> dict[str, int]:
    """Return the number of coordinates by kind, the most first."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts[part.kind] += len(part.index)
    return dict(counts.most_common())
