"""Movement: how far fine-tuning moved a coordinate, |θ_ft − θ_pre|.

The paper's γ_base is the top of this score (Panigrahi et al., 2023, Sec. 2.3,
https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from cl_graft.grafts.region import Parameters
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import register_localizer

__all__ = ["movement"]


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
