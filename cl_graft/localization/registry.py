"""The registry of localizers, which are score functions; `ranking` does the rest for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol, TypeVar

from torch import Tensor, nn

from cl_graft.grafts.region import Parameters, Region
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.runtime.registry import Registry

_FILES = ("learned_mask", "paper_mask", "movement", "gradient_scores", "gates", "parameter_subsets")
"""Files of this folder that register localizers, in the order in which tables show them."""


SHORT_DENSE_SHARE = 0.2
"""Share of the steps that is enough for a dense run of which only the movement is read."""

RANDOM_RATE_FACTOR = 5.0
"""`Localizer.rate_factor` of random regions, which hold a smaller share of the gradient."""

_Parameters = dict[str, nn.Parameter]


class Score(Protocol):
    """Scores all coordinates, higher is better."""

    def __call__(self, inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
        """Return one float tensor a parameter, in the parameter's shape.

        Args:
            inputs: The base, tuned weights and gradients.
            k: Budget: how many coordinates the region will have.
            steps: Number of gradient batches.
        """
        ...


class CandidateScore(Protocol):
    """Scores some coordinates, higher is better."""

    def __call__(
        self, inputs: LocalizerInputs, candidates: Region, *, k: int, steps: int
    ) -> Tensor:
        """Return one score a candidate, of shape (size of `candidates`,)."""
        ...


_Function = TypeVar("_Function", bound=Score)


@dataclass(frozen=True, kw_only=True)
class Localizer:
    """A way to choose a region.

    Attributes:
        name: Name in settings and on the command line.
        score: The score function.
        source: Paper and place; empty for a function that is not registered.
        needs_gradients: Whether it computes gradients of the task's loss.
        needs_dense_run: Whether it reads densely fine-tuned weights.
        dense_share: Share of the steps of a whole fine-tuning that its dense run takes by default.
        rate_factor: Factor of AdamW's default learning rate of a region, > 0 (`region_rate`).
        needs_path: Whether it reads `LocalizerInputs.path`, which the dense run has to sum up.
        per_tensor: Whether each tensor gives its share of a region (`rank_by_tensor`), in
            proportion to what may be chosen of it; otherwise scores are compared across the whole
            model.
        stored_as: What a file holds of its regions: ``"index"``, ``"lines"`` (the numbers of whole
            columns or rows of matrices) or ``"seed"`` (draws, which `localize` makes unscored).
        allowed: Function of (model, graftable parameters) that returns the parameters that may be
            chosen from; None means all.
        unit: Function of (model, parameters) that returns how many coordinates are ranked one
            after the other as a unit, of which regions have whole ones; None means 1.
        score_candidates: The same scores, computed for given candidates alone; None if there is no
            such function.
    """

    name: str
    score: Score
    source: str = ""
    needs_gradients: bool = True
    needs_dense_run: bool = True
    dense_share: float = 1.0
    rate_factor: float = 1.0
    needs_path: bool = False
    per_tensor: bool = False
    stored_as: Literal["index", "lines", "seed"] = "index"
    allowed: Callable[[nn.Module, Mapping[str, nn.Parameter]], _Parameters] | None = None
    unit: Callable[[nn.Module, Mapping[str, nn.Parameter]], int] | None = None
    score_candidates: CandidateScore | None = None


LOCALIZERS: Registry[Localizer] = Registry(
    "localizer",
    group="cl_graft.localizers",
    load_own=lambda: [import_module(f"cl_graft.localization.{name}") for name in _FILES],
)
"""All localizers by name: those of this package, and those of installed packages."""


def register_localizer(
    *, name: str, source: str, **traits: Any
) -> Callable[[_Function], _Function]:
    """Return a decorator that registers a score function.

    A function that is registered may be used by name wherever a localizer is asked for. Other
    packages name their module in the entry points ``cl_graft.localizers``, so that it is imported
    when a localizer is first looked up.

    Args:
        name: Name in settings and on the command line.
        source: Paper and place.
        **traits: More fields of `Localizer`; each has a default.

    Raises:
        TypeError: If `Localizer` has no such field.
        ValueError: If the name is taken.

    Examples:
        >>> @register_localizer(name="my_score", source="my paper", needs_gradients=False)
        ... def my_score(inputs, *, k, steps):
        ...     return {name: value.float().abs() for name, value in inputs.tuned.items()}
        >>> find_localizer("my_score").score is my_score
        True
    """

    def register(score: _Function) -> _Function:
        LOCALIZERS.register(name, Localizer(name=name, score=score, source=source, **traits))
        return score

    return register


def find_localizer(localizer: str | Score | Localizer) -> Localizer:
    """Return the localizer of a name or of a score function; a localizer is returned as it is.

    A function that is not registered is taken to need gradients and a dense run.

    Raises:
        InputError: If there is none of this name; the nearest one is named.
    """
    if isinstance(localizer, Localizer):
        return localizer
    if isinstance(localizer, str):
        return LOCALIZERS.find(localizer)
    registered = (row for row in LOCALIZERS.values() if row.score is localizer)
    name = getattr(localizer, "__name__", type(localizer).__name__)
    return next(registered, Localizer(name=name, score=localizer))
