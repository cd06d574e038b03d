"""Settings of how a task becomes a graft: its dense run, its region and how the region trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cl_graft.errors import InputError
from cl_graft.localization.registry import Score, find_localizer
from cl_graft.training.fine_tuning import FineTuning

__all__ = ["GraftingSettings", "check_dense_run"]


@dataclass(frozen=True)
class GraftingSettings:
    """How a task becomes a graft.

    Attributes:
        density: Share of the graftable coordinates in a task's region, in (0, 1], or ``"auto"``
            for the smallest of `budgets` whose graft keeps `auto_share` of the dense dev score.
        localizer: Name of a localizer in `cl_graft.localization.LOCALIZERS`, or a score function
            (`cl_graft.localization.registry.Score`).
        fine_tuning: The dense run; a localizer that does not look at one does without it.
        warmup_rows: Training rows on which a head is fitted to the base before a localizer that
            does without a dense run looks at gradients; 0 leaves the head as it is.
        mask_steps: Gradient batches that the localizer looks at.
        mask_batch: Rows of such a batch.
        mask_candidates: Let only the coordinates that moved most be chosen, this many times the
            region's size (and as many more as earlier tasks own): the localizer's memory and
            gradients are theirs alone. None means all; localizers that cannot look at some
            coordinates alone look at all.
        micro_batch: Rows computed at a time.
        refill: Rank among the coordinates that no earlier task owns, so that late tasks keep
            their whole budget; off, a region loses what earlier tasks own, as in the paper.
        region_start: Where region training starts: ``"base"`` (re-training, the reading that
            fits the paper's Table 4) or ``"tuned"`` (the values of the independent run).
        retrain: Whether the region is trained; off, it keeps the values of the independent run, as
            it does the head's.
        region_dropout: Whether the model's dropout acts while the region trains; so few weights
            overfit little, and without it a step is cheaper.
        look_every: Steps between looks at dev while the region trains; the best values are kept,
            of equal ones the later, as in the dense run. 0 keeps the last.
        mode: ``"prefix"`` or ``"isolated"``.
        auto_share: For ``density="auto"``, in (0, 1].
        budgets: The densities that ``"auto"`` tries, ascending.
        keep_standalone: Keep the whole γ_n with the values of the independent run, too.
        seed: Every random choice is a function of it.
    """

    density: float | Literal["auto"] = 0.002
    localizer: str | Score = "learned_mask"
    fine_tuning: FineTuning = field(default_factory=FineTuning)
    warmup_rows: int = 0
    mask_steps: int = 12
    mask_batch: int = 128
    mask_candidates: int | None = 20
    micro_batch: int = 32
    refill: bool = True
    region_start: Literal["base", "tuned"] = "base"
    retrain: bool = True
    region_dropout: bool = True
    look_every: int = 0
    mode: Literal["prefix", "isolated"] = "prefix"
    auto_share: float = 0.98
    budgets: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    keep_standalone: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.density != "auto" and not 0 < self.density <= 1:
            raise ValueError(f"density must be in (0, 1] or 'auto', got {self.density}")
        if not 0 < self.auto_share <= 1:
            raise ValueError(f"auto_share must be in (0, 1], got {self.auto_share}")
        if self.mask_steps < 1 or self.mask_batch < 1 or self.micro_batch < 1:
            raise ValueError("mask_steps, mask_batch and micro_batch must be at least 1")
        if self.mask_candidates is not None and self.mask_candidates < 1:
            raise ValueError(f"mask_candidates must be at least 1, got {self.mask_candidates}")
        if self.warmup_rows < 0:
            raise ValueError(f"warmup_rows must be at least 0, got {self.warmup_rows}")
        check_dense_run(
            self.localizer,
            density=self.density,
            region_start=self.region_start,
            retrain=self.retrain,
            keep_standalone=self.keep_standalone,
        )

    def coordinates(self, total: int) -> int:
        """Return the largest budget k among `total` coordinates; at least 1."""
        density = max(self.budgets) if self.density == "auto" else self.density
        return max(1, round(density * total))

    def candidates(self, total: int, *, k: int, owned: int = 0) -> int | None:
        """Return how many of `total` coordinates may be chosen for a budget k; None means all."""
        if self.mask_candidates is None or find_localizer(self.localizer).score_candidates is None:
            return None
        count = self.mask_candidates * k + owned
        return count if count < total else None


def check_dense_run(
    localizer: str | Score,
    *,
    density: float | str,
    region_start: str,
    retrain: bool,
    keep_standalone: bool,
) -> None:
    """Refuse settings that need a dense run beside a localizer that does without one.

    Raises:
        InputError: If there is no localizer of this name, or a setting needs tuned values.
    """
    row = find_localizer(localizer)
    if row.needs_dense_run:
        return
    asks = {
        "density='auto'": density == "auto",
        "region_start='tuned'": region_start == "tuned",
        "retrain=False": not retrain,
        "keep_standalone": keep_standalone,
    }
    refused = ", ".join(name for name, asked in asks.items() if asked)
    if refused:
        raise InputError(
            f"{refused} needs densely fine-tuned weights, but the localizer {row.name!r} chooses "
            "a region without a dense run; choose another localizer, such as 'learned_mask'"
        )
