"""Claims of the grafting paper on what single grafts score, and how surely.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600; numbers are those of its tables.
"""

from __future__ import annotations

from collections.abc import Callable

from papers.claims.rule import Claim, Rule
from papers.claims.view import MissingReading, View

__all__ = ["SCORES"]

_MANY_ROWS = 1000
"""Rows a class from which on a task has a few thousand."""


def _less(a: str, b: str, measure: str = "score") -> Callable[[View], float]:
    """Return a's number less b's."""
    return lambda v: v(a, measure) - v(b, measure)


def _over(a: str, b: str, measure: str = "score") -> Callable[[View], float]:
    """Return a's number over b's."""
    return lambda v: v(a, measure) / v(b, measure)


def _taken_away(view: View) -> float:
    """Return the share of the calibration error that a graft takes away which keeps the score."""
    if view("grafting") <= 0.95 * view("fine-tuning"):
        raise MissingReading("task whose graft loses less than 5 % of the score")
    return 1 - view("grafting", "ECE") / view("fine-tuning", "ECE")


def _gap_of_many_rows(view: View) -> float:
    """Return the gap between train and test where a task has a few thousand rows."""
    shots = view.config.get("stream.shots")
    if shots is not None and shots < _MANY_ROWS:
        raise MissingReading("task of a few thousand rows")
    return view("re-trained graft", "gap")


SCORES = (
    Claim(
        name="grafts-keep-the-score",
        source="Table 2",
        words="A sparse graft has more than 95 % of fine-tuning's score on every task.",
        paper="at 0.01 %: 91.3 against 92.0 on single sentences, 80.9 against 84.3 on pairs",
        experiments=("table2",),
        rule=Rule(
            what="score of the graft / of fine-tuning", number=_over("grafting", "fine-tuning"),
            above=0.95, unit="%",
        ),
    ),
    Claim(
        name="grafts-are-calibrated",
        source="Table 2",
        words="A graft is better calibrated than fine-tuning on every task.",
        paper="ECE 7.5 to 2.5 on single sentences, 13.2 to 3.6 on pairs",
        experiments=("table2",),
        rule=Rule(
            what="ECE of fine-tuning − of the graft",
            number=_less("fine-tuning", "grafting", "ECE"), above=0.0,
        ),
    ),
    Claim(
        name="calibration-by-how-much",
        source="Sec. 4.1",
        words="On average, grafts that lose less than 5 % of the score have 40 % less ECE.",
        paper="40 to 90 % less",
        experiments=("table2",),
        rule=Rule(
            what="ECE that grafting takes away / ECE of fine-tuning",
            number=_taken_away, over="mean", least=0.4, unit="%",
        ),
    ),
    Claim(
        name="grafts-agree",
        source="Sec. 3.1, Table 2",
        words="Grafts answer as the fine-tuned models do.",
        paper="agreement 93 % on single sentences, 86 % on pairs (Table 2: 95.2 and 88.9)",
        experiments=("table2",),
        rule=Rule(
            what="agreement", number=lambda v: v("grafting", "agreement"), over="mean",
            least=0.86, unit="%",
        ),
    ),
    Claim(
        name="re-training-improves",
        source="Table 1",
        words="Re-training the region from the base is almost always better than the graft.",
        paper="92.2/91.2/87.4/78.1 against 92.4/91.1/84.7/76.3",
        experiments=("table1",),
        rule=Rule(
            what="score of the re-trained graft − of the graft",
            number=_less("re-trained graft", "grafting"), share=0.75, least=0.0,
        ),
    ),
    Claim(
        name="re-training-stays-calibrated",
        source="Table 1",
        words="Calibration persists after re-training.",
        paper="ECE 3.9/1.0/2.0/4.3 against fine-tuning's 7.4/6.8/10.2/10.1",
        experiments=("table1",),
        rule=Rule(
            what="ECE of fine-tuning − of the re-trained graft",
            number=_less("fine-tuning", "re-trained graft", "ECE"), above=0.0,
        ),
    ),
    Claim(
        name="bitfit-scores",
        source="Table 1",
        words="BitFit scores slightly better than grafting.",
        paper="92.4/93.0/87.8/79.4 against 92.4/91.1/84.7/76.3",
        experiments=("table1",),
        rule=Rule(
            what="score of BitFit − of the graft", number=_less("BitFit", "grafting"),
            over="mean", above=0.0,
        ),
    ),
    Claim(
        name="bitfit-is-worse-calibrated",
        source="Table 1",
        words="BitFit's calibration error is significantly worse than grafting's.",
        paper="ECE 6.7/4.4/8.1/9.7 against 3.1/0.9/1.0/3.5",
        experiments=("table1",),
        rule=Rule(
            what="ECE of BitFit − of the graft", number=_less("BitFit", "grafting", "ECE"),
            least=0.02,
        ),
    ),
    Claim(
        name="bitfit-is-better-calibrated",
        source="Sec. 4.1, Table 1",
        words="BitFit is better calibrated than fine-tuning.",
        paper="ECE 6.7/4.4/8.1/9.7 against 7.4/6.8/10.2/10.1",
        experiments=("table1",),
        rule=Rule(
            what="ECE of fine-tuning − of BitFit", number=_less("fine-tuning", "BitFit", "ECE"),
            above=0.0,
        ),
    ),
    Claim(
        name="re-training-is-better-calibrated",
        source="Sec. 4.1, Table 1",
        words="A re-trained region is better calibrated than BitFit.",
        paper="ECE 3.9/1.0/2.0/4.3 against 6.7/4.4/8.1/9.7",
        experiments=("table1",),
        rule=Rule(
            what="ECE of BitFit − of the re-trained graft",
            number=_less("BitFit", "re-trained graft", "ECE"), above=0.0,
        ),
    ),
    Claim(
        name="fine-tuning-is-sure",
        source="Fig. 6",
        words="Fine-tuning gives most answers a probability above 0.9.",
        paper="a figure",
        experiments=("fig6",),
        rule=Rule(
            what="share of answers above 0.9",
            number=lambda v: v("fine-tuning", "share of rows", x=0.95), above=0.5, unit="%",
        ),
    ),
    Claim(
        name="grafts-are-less-sure",
        source="Fig. 6",
        words="A graft's probabilities differ more: most are not above 0.9.",
        paper="a figure",
        experiments=("fig6",),
        rule=Rule(
            what="share of answers above 0.9",
            number=lambda v: v("grafting", "share of rows", x=0.95), most=0.5, unit="%",
        ),
    ),
    Claim(
        name="more-data",
        source="Table 5",
        words="With more data, too, sparse regions keep more than 95 % of the score.",
        paper="50,000 rows a class, 0.03 %: 89.5/91.9/88.9/85.9 against 89.2/92.8/91.8/88.6",
        experiments=("table5",),
        rule=Rule(
            what="score of the graft of 0.12 % (half as many weights as there) / of fine-tuning",
            number=lambda v: v("grafting", x=1.2e-3) / v("fine-tuning"), above=0.95, unit="%",
        ),
    ),
    Claim(
        name="more-data-calibration",
        source="Table 5",
        words="With more data, too, sparse regions are better calibrated than fine-tuning.",
        paper="ECE 2.7/0.8/1.2/1.4 against 9.3/6.1/5.5/5.1",
        experiments=("table5",),
        rule=Rule(
            what="ECE of fine-tuning − of the graft of 0.12 %",
            number=lambda v: v("fine-tuning", "ECE") - v("grafting", "ECE", x=1.2e-3), above=0.0,
        ),
    ),
    Claim(
        name="causal-models-localize",
        source="Table 9",
        words="Sparse regions keep more than 95 % of a causal model's score.",
        paper="GPT-2 small: 90.6/92.2/81.9/76.1 to 88.8/88.6/79.8/73.0; of its twelve tasks MNLI, "
        "SNLI and MRPC keep less",
        experiments=("table9",),
        rule=Rule(
            what="score of the graft / of fine-tuning", number=_over("grafting", "fine-tuning"),
            share=0.75, above=0.95, unit="%",
        ),
    ),
    Claim(
        name="causal-models-calibrate",
        source="Table 9",
        words="Grafts of a causal model are better calibrated than it.",
        paper="ECE 5.8/2.8/6.1/13.5 to 3.4/1.6/2.5/5.9",
        experiments=("table9",),
        rule=Rule(
            what="ECE of fine-tuning − of the graft",
            number=_less("fine-tuning", "grafting", "ECE"), above=0.0,
        ),
    ),
    Claim(
        name="small-gap",
        source="Sec. 4.3, App. D",
        words="With a few thousand rows, re-training a region leaves a gap between train and test "
        "of at most 1 %.",
        paper="about 1 %, fine-tuning about 12 %",
        experiments=("theorem_d2",),
        rule=Rule(
            what="train − test score of the re-trained graft, from a thousand rows a class on,",
            number=_gap_of_many_rows, over="mean", most=0.01,
        ),
    ),
    Claim(
        name="smaller-gap",
        source="App. D",
        words="The gap of a re-trained region is smaller than fine-tuning's.",
        paper="about 1 % against 12 %",
        experiments=("theorem_d2",),
        rule=Rule(
            what="gap of fine-tuning − of the re-trained graft",
            number=_less("fine-tuning", "re-trained graft", "gap"), above=0.0,
        ),
    ),
)  # fmt: skip
"""Tables 1, 2, 5, 9, Fig. 6 and Sec. 4.3."""
