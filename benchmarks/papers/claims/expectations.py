"""What this project expected of its own experiments before it ran them, beside the papers' claims.

Densities and bounds are those of a model of ten million coordinates and standard fine-tuning.
"""

from __future__ import annotations

from papers.claims.rule import Claim, Rule
from papers.claims.view import MissingReading, View

__all__ = ["EXPECTATIONS"]

_AT_BEST = "score at the rate that dev chooses"
_FIXED = (1e-3, 3e-3)


def _worse_of_both(view: View, a: str, b: str) -> float:
    """Return a's score less b's at the fixed density where that is less."""
    return min(view(a, x=x) - view(b, x=x) for x in _FIXED)


def _many_gains(view: View) -> float:
    """Count tasks with a relative gain of 0.9 where fine-tuning gains 5 points or more."""
    found = [
        one("re-trained graft", "relative gain") >= 0.9
        for one in view.tasks()
        if one("fine-tuning") - one("best constant answer") >= 0.05
    ]
    if not found:
        raise MissingReading("task where fine-tuning gains 5 points")
    return float(sum(found))


def _calibration(view: View) -> float:
    return view("fine-tuning", "ECE") - view("grafting", "ECE")


def _calibration_by_heart(view: View) -> float:
    if view("fine-tuning", "training loss") >= 0.2:
        raise MissingReading("training loss below 0.2")
    return _calibration(view)


EXPECTATIONS = (
    Claim(
        name="expected-learned",
        source="grafts without re-training",
        words="The learned region beats the most moved coordinates at 0.1 and 0.3 %.",
        paper="–",
        experiments=("fig3",),
        rule=Rule(
            what="lower one of the differences of scores, learned − most moved",
            number=lambda v: _worse_of_both(v, v.learned, "movement"), share=0.75, above=0.0,
        ),
    ),
    Claim(
        name="expected-movement",
        source="grafts without re-training",
        words="The most moved coordinates beat random ones at 0.1 and 0.3 %.",
        paper="–",
        experiments=("fig3",),
        rule=Rule(
            what="lower one of the differences of scores, most moved − random",
            number=lambda v: _worse_of_both(v, "movement", "random"), share=0.75, above=0.0,
        ),
    ),
    Claim(
        name="expected-gain",
        source="re-trained grafts",
        words="Re-trained grafts of 0.3 % keep nine tenths of fine-tuning's gain on 8 tasks.",
        paper="–",
        experiments=("majority_gain",),
        rule=Rule(
            what="tasks with a relative gain of at least 0.9, where fine-tuning gains 5 points:",
            number=_many_gains, over="once", least=8, unit="",
        ),
    ),
    Claim(
        name="expected-calibration",
        source="grafts without re-training",
        words="Grafts are better calibrated than fine-tuning on most tasks.",
        paper="–",
        experiments=("majority_gain",),
        rule=Rule(
            what="ECE of fine-tuning − of the graft", number=_calibration, share=0.7, above=0.0,
        ),
    ),
    Claim(
        name="expected-calibration-at-no-loss",
        source="grafts without re-training",
        words="Grafts are better calibrated where fine-tuning knows its training rows by heart.",
        paper="–",
        experiments=("memorized",),
        rule=Rule(
            what="ECE of fine-tuning − of the graft, where the training loss is below 0.2,",
            number=_calibration_by_heart, share=0.7, above=0.0,
        ),
    ),
    Claim(
        name="expected-worth",
        source="after re-training",
        words="A learned region is worth more than a random one, each at its best rate.",
        paper="–",
        experiments=("region_rates",),
        rule=Rule(
            what="score, learned − random", number=lambda v: v(v.learned, _AT_BEST)
            - v("random", _AT_BEST),
            over="mean", least=0.01,
        ),
    ),
    Claim(
        name="expected-movement-is-enough",
        source="after re-training",
        words="The most moved coordinates do as well as a learned region.",
        paper="–",
        experiments=("region_rates",),
        rule=Rule(
            what="score, learned − most moved", number=lambda v: v(v.learned, _AT_BEST)
            - v("movement", _AT_BEST),
            over="mean", most=0.01,
        ),
    ),
    Claim(
        name="expected-no-dense-run",
        source="after re-training",
        words="A region found without a dense run does as well as a learned one.",
        paper="–",
        experiments=("region_rates",),
        rule=Rule(
            what="score, learned − base gradient", number=lambda v: v(v.learned, _AT_BEST)
            - v("base_gradient", _AT_BEST),
            over="mean", most=0.01,
        ),
    ),
)  # fmt: skip
"""Decided as the papers' claims are."""
