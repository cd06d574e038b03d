"""LIFT: the largest entries of a low-rank approximation of every weight matrix of the base.

The first r singular values and vectors of a matrix W give its best approximation W′ of rank r
(Liu et al., 2025, "LIFT the Veil for the Truth: Principal Weights Emerge after Rank Reduction",
https://arxiv.org/abs/2506.00772). It reads no rows, so the regions of tasks differ only because
earlier tasks own coordinates. The published code takes r from 32 to 128 on models 2,048 to 4,096
wide, and makes the mask again from the weights every few hundred steps; here a region is chosen
once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.parameter_kinds import weight_matrices
from cl_graft.localization.registry import register_localizer

_WIDTH_PER_RANK = 32
"""Smaller dimension of a matrix divided by its rank r: 4,096 / 128 in the published code."""


@register_localizer(
    name="lift",
    source="Liu et al., 2025, https://arxiv.org/abs/2506.00772",
    needs_gradients=False,
    needs_dense_run=False,
    per_tensor=True,
    allowed=weight_matrices,
)
def lift(
    inputs: LocalizerInputs, *, k: int, steps: int, rank: int | None = None
) -> dict[str, Tensor]:
    """Score weights by the size of their entry in the rank-r approximation of their matrix, |W′|.

    It costs one singular value decomposition a matrix and no pass. Every matrix gives its share of
    the region, in proportion to its entries; what is no matrix is not chosen.
    """
    del k, steps
    return {
        name: _approximate(value, rank).abs_() if value.dim() > 1 else torch.zeros_like(value)
        for name, value in inputs.base.items()
    }


def _approximate(matrix: Tensor, rank: int | None) -> Tensor:
    """Return the best approximation of a rank, fp32, in the matrix's shape."""
    flat = matrix.detach().float().flatten(1)
    rank = max(1, min(flat.shape) // _WIDTH_PER_RANK) if rank is None else rank
    left, values, right = torch.linalg.svd(flat, full_matrices=False)
    return ((left[:, :rank] * values[:rank]) @ right[:rank]).reshape(matrix.shape)
