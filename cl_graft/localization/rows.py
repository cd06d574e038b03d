"""Whole rows of weight matrices as units: a row is what one neuron reads.

Rows are compared by what they hold a coordinate, not by their sums: a budget counts coordinates,
and a sum would prefer long rows. The last row may be cut by the budget. Neurons and channels are
the units of structured sparse fine-tuning, such as S2FT (Yang et al., 2024,
https://arxiv.org/abs/2412.06289); these scores are this package's own. A row is what torch stores
as one: in GPT-2, whose matrices are stored the other way round, it is what one neuron writes.
"""

from __future__ import annotations

from cl_graft.grafts.region import Parameters
from cl_graft.localization.base_gradient import base_gradient
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.movement import movement
from cl_graft.localization.parameter_kinds import weight_matrices
from cl_graft.localization.registry import register_localizer

__all__ = ["base_gradient_rows", "movement_rows"]


@register_localizer(
    name="base_gradient_rows",
    source="Yang et al., 2024, https://arxiv.org/abs/2412.06289 (unit), with this package's score",
    needs_dense_run=False,
    allowed=weight_matrices,
)
def base_gradient_rows(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score rows by the energy of their summed gradient at the base, mean of (Σ g)² over a row.

    It costs what `base_gradient` does.
    """
    return _by_row(base_gradient(inputs, k=k, steps=steps))


@register_localizer(
    name="movement_rows",
    source="Yang et al., 2024, https://arxiv.org/abs/2412.06289 (unit), with this package's score",
    needs_gradients=False,
    allowed=weight_matrices,
)
def movement_rows(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score rows by the energy of their movement, mean of (tuned − base)² over a row.

    It costs what `movement` does.
    """
    return _by_row(movement(inputs, k=k, steps=steps))


def _by_row(sizes: Parameters) -> Parameters:
    """Give every coordinate the mean square over its row; vectors, which are not chosen, keep 0."""
    scores = {}
    for name, size in sizes.items():
        energy = size.float().square().flatten(1).mean(1) if size.dim() > 1 else size.new_zeros(1)
        scores[name] = energy.reshape(-1, *[1] * (size.dim() - 1)).expand(size.shape).clone()
    return scores
