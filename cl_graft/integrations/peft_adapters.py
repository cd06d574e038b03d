"""A task as an adapter of PEFT: SHiRA, or LoRA where its graft lies in few columns and rows.

An adapter adds differences to the base, a graft sets values: where no difference gives a value, its
last bits are others.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor, nn

from cl_graft.banks.open_bank import OpenBank
from cl_graft.errors import InputError
from cl_graft.grafts.bank import BaseIdentity
from cl_graft.grafts.graft import Graft
from cl_graft.integrations.export_record import format_counts
from cl_graft.integrations.import_sources import ADAPTER, ADAPTER_CONFIG, PREFIX
from cl_graft.models.load import name_outside
from cl_graft.training.coordinate_gradient import is_conv1d, is_linear

_ELSE = (
    "export it as hf or peft-shira, or learn it, and in prefix mode the tasks before it, with the "
    "localizer `random_columns`"
)

_MOST_SPREAD = 3
"""Weights of the columns and rows for each weight of the graft, at most."""

_TASK_TYPES = {"causal_lm": "CAUSAL_LM", "seq2seq_lm": "SEQ_2_SEQ_LM"}


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
        "base_model_name_or_path": name_outside(base.model),
        "revision": base.metadata.get("revision"),
        "inference_mode": True,
    }
    save_file(dict(tensors), into / ADAPTER, metadata={"format": "pt"})
    text = json.dumps({**shared, **config}, indent=2)
    (into / ADAPTER_CONFIG).write_text(f"{text}\n", encoding="utf-8")


def write_shira(opened: OpenBank, position: int, into: Path) -> dict[str, int]:
    """Write the SHiRA adapter that turns the base into the model that answers an entry.

    SHiRA (Bhardwaj et al., 2024, https://arxiv.org/abs/2406.13175) holds r · (inputs + outputs)
    entries of every matrix of an `nn.Linear` that it changes, with one r for all, so short regions
    are filled up with differences of 0. It knows no biases, no LayerNorms and no GPT-2 (whose
    layers are `Conv1D`); whole copies of these modules stand beside it.

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
            "a SHiRA adapter holds weights of nn.Linear layers whose bias stays, and of this graft "
            f"it would hold none ({format_counts(count_kinds(parts))}): export it as hf"
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


def write_lora(opened: OpenBank, position: int, into: Path) -> dict[str, int]:
    """Write the LoRA that turns the base into the model that answers an entry.

    A LoRA (Hu et al., 2021, https://arxiv.org/abs/2106.09685) adds B · A to a weight of shape
    (outputs, inputs). For weights in some columns, A picks these inputs, by a one a row, and B
    holds the differences; for weights in some rows, B picks these outputs and A holds the
    differences. Both stand side by side, and the sum has one term at every weight, so B · A has the
    differences without rounding. The rank is the number of columns and rows. The least number that
    holds all weights is taken: it is the size of a largest matching of rows and columns (Kőnig,
    1931).

    Returns:
        An empty dictionary: nothing is in whole copies of modules.

    Raises:
        InputError: If the graft sets what is no weight of a linear layer, or lies scattered.
    """
    bank, model = opened.bank, opened.loaded.model
    opened.carry(None)
    graft = bank.answer(position)
    moved = map(_subtract_base, split_graft(model.backbone, graft))
    parts = [part for part in moved if len(part.index)]
    others = [part for part in parts if part.name != "weight" or not is_linear(part.module)]
    if not parts:
        raise InputError("all values of this graft are the base's, so a LoRA of it would be empty")
    if others:
        raise InputError(
            "a LoRA holds weights of linear layers alone, and this graft sets "
            f"{format_counts(count_kinds(others))}: {_ELSE}"
        )
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    held = 0
    for part in parts:
        down, across, (height, width) = _place(part)
        rows, columns = cover_elements(down, across, (height, width))
        held += len(columns) * height + len(rows) * (width - len(columns))
        if held > _MOST_SPREAD * len(graft):
            raise InputError(
                f"the {len(graft):,} weights of this graft lie scattered, and a LoRA would hold "
                f"more than {_MOST_SPREAD} times as many in their columns and rows: {_ELSE}"
            )
        a, b = factorize(down, across, part.values, rows, columns, (height, width))
        ranks[part.path] = len(a)
        tensors[f"{PREFIX}{part.path}.lora_A.weight"] = a
        tensors[f"{PREFIX}{part.path}.lora_B.weight"] = b
    most = max(ranks.values())
    smaller = {path: rank for path, rank in ranks.items() if rank < most}
    save_adapter(
        into,
        tensors,
        bank.base,
        peft_type="LORA",
        task_type=_TASK_TYPES.get(model.family),
        r=most,
        lora_alpha=most,  # so that the scaling, alpha / r, is 1 in every layer
        rank_pattern=smaller,
        alpha_pattern=smaller,
        target_modules=[*ranks],
        lora_dropout=0.0,
        bias="none",
        fan_in_fan_out=any(is_conv1d(part.module) for part in parts),
        init_lora_weights=True,
    )
    return {}


def cover_elements(down: Tensor, across: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return rows and columns, ascending, as few as hold all elements (`down`, `across`)."""
    ones = np.ones(len(down), dtype=np.int32)
    graph = csr_matrix((ones, (down.numpy(), across.numpy())), shape=shape)
    partner = maximum_bipartite_matching(graph, perm_type="column")
    # Rows without a partner, and all that is reached from them by elements and back by partners.
    reached, columns, count = partner == -1, np.zeros(shape[1], dtype=bool), -1
    while count != (count := int(columns.sum())):
        columns = graph.T @ reached.astype(np.int32) > 0
        reached |= (partner >= 0) & columns[partner]
    rows = ~reached & (np.diff(graph.indptr) > 0)
    return torch.from_numpy(np.flatnonzero(rows)), torch.from_numpy(np.flatnonzero(columns))


def factorize(
    down: Tensor,
    across: Tensor,
    values: Tensor,
    rows: Tensor,
    columns: Tensor,
    shape: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Return A, (rank, inputs), and B, (outputs, rank), fp32, of elements in rows and columns."""
    first, rank = len(columns), len(columns) + len(rows)
    a, b = torch.zeros(rank, shape[1]), torch.zeros(shape[0], rank)
    a[torch.arange(first), columns] = 1
    b[rows, torch.arange(first, rank)] = 1
    inside = torch.isin(across, columns)
    b[down[inside], torch.searchsorted(columns, across[inside])] = values[inside]
    a[first + torch.searchsorted(rows, down[~inside]), across[~inside]] = values[~inside]
    return a, b


def _subtract_base(part: Part) -> Part:
    """Return the part of a graft whose values differ from the base's, with the differences."""
    base = part.module.get_parameter(part.name).detach().reshape(-1)[part.index]
    differences = part.values.float() - base.float()
    moved = differences != 0
    return replace(part, index=part.index[moved], values=differences[moved])


def _place(part: Part) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Return outputs and inputs of a part's weights, and the number of both."""
    height, width = part.shape
    down, across = part.index // width, part.index % width
    if is_conv1d(part.module):  # whose weights have the shape (inputs, outputs)
        return across, down, (width, height)
    return down, across, (height, width)
