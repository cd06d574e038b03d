"""Scores without gradients: movement, magnitude, and chance, which each localizer has to beat.

The paper's γ_base is the top of |θ_ft − θ_pre| (Panigrahi et al., 2023, Sec. 2.3,
https://arxiv.org/abs/2302.06600). Magnitude pruning keeps large weights (Han et al., 2015,
https://arxiv.org/abs/1506.02626); MagPruning of Fu et al., 2023 (Sec. 2.2,
https://arxiv.org/abs/2211.15583) lets them be tuned. In the paper they are the base's largest, in
its code the largest after 500 steps of dense training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from cl_graft.grafts.region import Parameters
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator


@register_localizer(
    name="movement",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Sec. 2.3 (gamma_base)",
    needs_gradients=False,
)
def movement(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score coordinates by |tuned − base|; needs no gradients.

    A parameter's scores are computed whenever they are asked for, so none of them are held.
    """
    del k, steps
    return _Movement(inputs)


register_localizer(
    name="movement_by_tensor",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Sec. 2.3, by tensor",
    needs_gradients=False,
    per_tensor=True,
)(movement)


class _Movement(Mapping[str, Tensor]):
    def __init__(self, inputs: LocalizerInputs) -> None:
        self._base, self._tuned = inputs.base, inputs.tuned

    def __getitem__(self, name: str) -> Tensor:
        return (self._tuned[name].float() - self._base[name].float()).abs_()

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)


@register_localizer(
    name="magnitude",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, Sec. 2.2 (MagPruning)",
    needs_gradients=False,
    needs_dense_run=False,
    per_tensor=True,
)
def magnitude(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their weight at the base, |base|."""
    del k, steps
    return {name: value.float().abs() for name, value in inputs.base.items()}


@register_localizer(
    name="tuned_magnitude",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, published code (MagPruning)",
    needs_gradients=False,
    per_tensor=True,
)
def tuned_magnitude(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their weight after fine-tuning, |tuned|."""
    del k, steps
    return {name: value.float().abs() for name, value in inputs.tuned.items()}


@register_localizer(
    name="random",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Fig. 2 (control)",
    needs_gradients=False,
    needs_dense_run=False,
)
def uniform(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by uniform draws, a function of the seed and the names."""
    del k, steps
    return {
        name: torch.rand(base.shape, generator=generator(inputs.seed, "uniform", name))
        for name, base in inputs.base.items()
    }
