"""Scores by how far weights moved, by what their move gained, by their size, and by chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from cl_graft.grafts.drawn_order import find_places
from cl_graft.grafts.region import Parameters
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import RANDOM_RATE_FACTOR, SHORT_DENSE_SHARE, register_localizer


@register_localizer(
    name="movement",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Sec. 2.3 (gamma_base)",
    needs_gradients=False,
    dense_share=SHORT_DENSE_SHARE,
)
def movement(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score coordinates by |tuned − base|, computed when asked for, so none are held."""
    return _Movement(inputs)


register_localizer(
    name="movement_by_tensor",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Sec. 2.3, by tensor",
    needs_gradients=False,
    dense_share=SHORT_DENSE_SHARE,
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
    return {name: value.float().abs() for name, value in inputs.base.items()}


@register_localizer(
    name="random",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Fig. 2 (control)",
    needs_gradients=False,
    needs_dense_run=False,
    rate_factor=RANDOM_RATE_FACTOR,
    stored_as="seed",
)
def uniform(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by their places in the order of the seed; `localize` needs no scores."""
    layout = inputs.layout
    places = find_places(torch.arange(layout.total), seed=inputs.seed, total=layout.total)
    parts = zip(inputs.parameters, layout.shapes, (-places).split(layout.sizes), strict=True)
    return {name: part.double().view(shape) for name, shape, part in parts}


@register_localizer(
    name="path_integral",
    source="Zenke et al., 2017, https://arxiv.org/abs/1703.04200, Eq. 3",
    needs_gradients=False,
    needs_path=True,
)
def path_integral(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score coordinates by Σ −g·Δθ over the steps of the dense run, gathered while it ran."""
    return inputs.path
