"""A task as a SHiRA adapter of PEFT: sparse differences of weights of `nn.Linear`.

SHiRA (Bhardwaj et al., 2024, https://arxiv.org/abs/2406.13175) holds r · (inputs + outputs) entries
of every matrix that it changes, with one r for all, so short regions are filled up with differences
of 0. It knows no biases, no LayerNorms and no GPT-2 (whose layers are `Conv1D`); whole copies of
these modules stand beside it.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from cl_graft.banks.open_bank import OpenBank
from cl_graft.errors import InputError
from cl_graft.integrations.adapter_files import Part, count_kinds, save_adapter, split_graft
from cl_graft.integrations.export_record import format_counts
from cl_graft.integrations.import_sources import PREFIX


def write_shira(opened: OpenBank, position: int, into: Path) -> dict[str, int]:
    """Write the adapter that turns the base into the model that answers an entry.

    Returns:
        The number of coordinates that are in whole copies of their modules, by kind of parameter.
    """
    bank, model = opened.bank, opened.loaded.model
    opened.carry(None)
    if bank.base.dtype != "float32":
        raise InputError(
            f"a SHiRA adapter adds fp32 differences, and this base is {bank.base.dtype}: export it "
            "as hf"
        )
    parts = split_graft(model.backbone, bank.answer(position))
    copied, matrices = _split_parts(parts)
    rank = max(_least_rank(part) for part in matrices)
    tensors = _copies(copied)
    for part in matrices:
        index, differences = _differences(part, rank)
        tensors[f"{PREFIX}{part.path}.shira_weight"] = differences
        tensors[f"{PREFIX}{part.path}.shira_indices"] = index
    copies = sorted({part.path for part in copied})
    save_adapter(
        into,
        tensors,
        bank.base,
        peft_type="SHIRA",
        r=rank,
        # PEFT draws a mask on loading and then takes the indices of the file.
        mask_type="random",
        random_seed=0,
        target_modules=[part.path for part in matrices],
        modules_to_save=copies or None,
        fan_in_fan_out=False,
        init_weights=True,
    )
    return count_kinds(copied)


def _is_matrix(part: Part) -> bool:
    return isinstance(part.module, nn.Linear) and part.name == "weight"


def _least_rank(part: Part) -> int:
    return math.ceil(len(part.index) / sum(part.shape))


def _split_parts(parts: list[Part]) -> tuple[list[Part], list[Part]]:
    """Return the parts that are copied with their modules, and those that SHiRA holds."""
    matrices = [part for part in parts if _is_matrix(part)]
    most = min((math.prod(part.shape) // sum(part.shape) for part in matrices), default=0)
    copies = {part.path for part in parts if not _is_matrix(part) or _least_rank(part) > most}
    held = [part for part in matrices if part.path not in copies]
    if not held:
        raise InputError(
            "a SHiRA adapter holds weights of nn.Linear, and of this graft it would hold none "
            f"({format_counts(count_kinds(parts))}): export it as hf"
        )
    return [part for part in parts if part.path in copies], held


def _differences(part: Part, rank: int) -> tuple[Tensor, Tensor]:
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


def _copies(copied: list[Part]) -> dict[str, Tensor]:
    """Return the whole state of each module that is copied, with the graft's values in it."""
    state: dict[str, Tensor] = {}
    for part in copied:
        for name, tensor in part.module.state_dict().items():
            state.setdefault(f"{part.path}.{name}", tensor.detach().clone())
        state[f"{part.path}.{part.name}"].view(-1)[part.index] = part.values
    return {f"{PREFIX}{name}": tensor for name, tensor in state.items()}
