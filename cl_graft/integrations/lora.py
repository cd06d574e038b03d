"""A task as a LoRA of PEFT, where its graft lies in few columns and rows of each matrix.

A LoRA (Hu et al., 2021, https://arxiv.org/abs/2106.09685) adds B · A to a weight of shape (outputs,
inputs). For weights in some columns, A picks these inputs, by a one a row, and B holds the
differences; for weights in some rows, B picks these outputs and A holds the differences. Both stand
side by side, and the sum has one term at every weight, so B · A has the differences without
rounding. The rank is the number of columns and rows. The least number that holds all weights is
taken: it is the size of a largest matching of rows and columns (Kőnig, 1931).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor

from cl_graft.banks.open_bank import OpenBank
from cl_graft.errors import InputError
from cl_graft.integrations.adapter_files import Part, count_kinds, save_adapter, split_graft
from cl_graft.integrations.export_record import format_counts
from cl_graft.integrations.import_sources import PREFIX
from cl_graft.training.coordinate_gradient import is_conv1d, is_linear

_ELSE = "export it as peft-shira or hf, or learn the task with the localizer `columns`"

_MOST_SPREAD = 3
"""Weights of the columns and rows for each weight of the graft, at most."""

_TASK_TYPES = {"causal_lm": "CAUSAL_LM", "seq2seq_lm": "SEQ_2_SEQ_LM"}


def write_lora(opened: OpenBank, position: int, into: Path) -> dict[str, int]:
    """Write the adapter that turns the base into the model that answers an entry.

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
    if others or not parts:
        raise InputError(
            "a LoRA holds weights of linear layers alone, and this graft sets "
            f"{format_counts(count_kinds(others)) or 'none of them'}: {_ELSE}"
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
