"""Claims of the grafting paper on single tasks.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600; numbers are those of its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from cl_graft.laboratory.claims.rule import Claim, Rule
from cl_graft.laboratory.claims.view import MissingReading, View

__all__ = ["SINGLE_TASKS"]

LOW = (1e-4, 3e-4, 1e-3)
"""Densities that count as low on a model of ten million coordinates."""

AS_MANY = 1e-3
"""The density at which a model of ten million coordinates has about as many of them in a region as
the paper's 0.01 % of 85 million, 8,505."""

_MANY_ROWS = 1000
"""Rows a class from which on a task has a few thousand."""


def _less(a: str, b: str, measure: str = "score") -> Callable[[View], float]:
    """Return a's number less b's."""
    return lambda v: v(a, measure) - v(b, measure)


def _over(a: str, b: str, measure: str = "score") -> Callable[[View], float]:
    """Return a's number over b's."""
    return lambda v: v(a, measure) / v(b, measure)


def _at_low(view: View, a: str, b: str) -> float:
    """Return by how much the curve of a lies above that of b at low densities."""
    return sum(view(a, x=x) - view(b, x=x) for x in LOW) / len(LOW)


def _kept(view: View, method: str, *, x: float, experiment: str | None = None) -> float:
    """Return the share of fine-tuning's score that a graft keeps."""
    kept, whole = (
        view(method, x=x, experiment=experiment),
        view("fine-tuning", experiment=experiment),
    )
    return kept / whole


def _behind(view: View, other: str, *, x: float) -> float:
    """Return by how much another graft's score is behind the learned one's."""
    return view(view.learned, x=x) - view(other, x=x)


def _concentrated(view: View) -> float:
    """Return the share of a region in value matrices, first feed-forward layers and LayerNorms."""
    names = [
        method
        for method in view.methods("share of the region")
        if any(part in method for part in (".value.", "intermediate.", "LayerNorm"))
    ]
    if not names:
        raise MissingReading("share of the region of such parameters")
    return sum(view(name, "share of the region") for name in names)


def _in_the_middle(view: View) -> float:
    """Return the share of a region in the middle third of the layers."""
    shares = view.curve("region", "share of the region")
    layers = [layer for layer in shares if layer >= 0]
    third = len(layers) // 3
    return sum(shares[layer] for layer in layers[third : len(layers) - third])


def _taken_away(view: View) -> float:
    """Return the share of the calibration error that a graft takes away which keeps the score."""
    if view("grafting") <= 0.95 * view("fine-tuning"):
        raise MissingReading("task whose graft loses less than 5 % of the score")
    return 1 - view("grafting", "ECE") / view("fine-tuning", "ECE")


def _followed(view: View) -> tuple[float, float]:
    """Follow a region found at a checkpoint, in each seed at its own.

    Returns:
        The share of the model's score that it has there, and how much more than it the model gains
        after that.
    """
    shares, later = [], []
    for one in view.seeds():
        found = one("checkpoint", "step")
        whole, alone = (one.curve(method) for method in ("whole model", "region alone"))
        there, last = min(whole, key=lambda step: abs(step - found)), max(whole)
        shares.append(alone[there] / whole[there])
        later.append((whole[last] - whole[there]) - (alone[last] - alone[there]))
    return fmean(shares), fmean(later)


def _gain_kept(view: View, method: str) -> float:
    """Return the share of fine-tuning's gain that a graft of 0.1 % keeps."""
    base = view("best constant answer")
    gain = view(f"{method}: fine-tuning") - base
    if gain < 0.02:
        raise MissingReading(f"task where {method} gains 2 points over the best constant answer")
    return (view(method, x=AS_MANY) - base) / gain


def _gap_of_many_rows(view: View) -> float:
    """Return the gap between train and test where a task has a few thousand rows."""
    shots = view.config.get("shots")
    if shots is not None and shots < _MANY_ROWS:
        raise MissingReading("task of a few thousand rows")
    return view("re-trained graft", "gap")


SINGLE_TASKS = (
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
            above=0.0,
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
        name="learned-beats-movement",
        source="Fig. 2",
        words="The learned region is much better than the most moved coordinates at low density.",
        paper="a figure",
        experiments=("fig2",),
        rule=Rule(
            what="score, learned − most moved, over densities of 0.01 to 0.1 %",
            number=lambda v: _at_low(v, v.learned, "movement"), above=0.0,
        ),
    ),
    Claim(
        name="random-regions-carry-nothing",
        source="Fig. 2",
        words="Random regions do not carry the skill.",
        paper="a figure; Table 8: SST-2 77.8, QNLI 50.7 at 0.01 %",
        experiments=("fig2",),
        rule=Rule(
            what="score, learned − random, over densities of 0.01 to 0.1 %",
            number=lambda v: _at_low(v, v.learned, "random"), least=0.05,
        ),
    ),
    Claim(
        name="standard-fine-tuning-localizes",
        source="Fig. 3",
        words="Skills of standard fine-tuning are localized as well as those of prompts.",
        paper="a figure: equally good",
        experiments=("fig3", "fig2"),
        rule=Rule(
            what="share of fine-tuning's score that a learned graft of 0.1 % keeps, standard − "
            "prompts,",
            number=lambda v: _kept(v, v.learned, x=AS_MANY)
            - _kept(v, v.learned, x=AS_MANY, experiment="fig2"),
            least=-0.05,
        ),
    ),
    Claim(
        name="biases-are-no-regions",
        source="Fig. 4a",
        words="Regions of biases alone do not carry the skill.",
        paper="a figure",
        experiments=("fig4a",),
        rule=Rule(
            what="score of a graft of anything − of biases only, at 0.1 %",
            number=lambda v: v("any parameter", x=AS_MANY) - max(v.curve("biases only").values()),
            least=0.05,
        ),
    ),
    Claim(
        name="tickets-fail",
        source="Fig. 4b",
        words="With 0 outside the region, even 90 % of the weights capture no skill.",
        paper="a figure",
        experiments=("fig4b",),
        rule=Rule(
            what="score with the base outside − with 0 outside, at 90 %",
            number=lambda v: v("base outside (graft)", x=0.9)
            - v("0 outside (lottery ticket)", x=0.9),
            least=0.1,
        ),
    ),
    Claim(
        name="adamw-is-not-sparse",
        source="Fig. 5",
        words="Models fine-tuned by AdamW have no sparse grafts.",
        paper="a figure",
        experiments=("fig5",),
        rule=Rule(
            what="share of the gain over the best constant answer that a graft of 0.1 % keeps, "
            "SGD − AdamW",
            number=lambda v: _gain_kept(v, "SGD") - _gain_kept(v, "AdamW"), least=0.05,
        ),
    ),
    Claim(
        name="l1-makes-it-sparse",
        source="Fig. 5",
        words="A small L1 penalty on the movement brings sparse grafts back.",
        paper="a figure; 0.001",
        experiments=("fig5",),
        rule=Rule(
            what="share of that gain that a graft of 0.1 % keeps, AdamW + L1 − AdamW",
            number=lambda v: _gain_kept(v, "AdamW + L1") - _gain_kept(v, "AdamW"), above=0.0,
        ),
    ),
    Claim(
        name="fine-tuning-is-sure",
        source="Fig. 6",
        words="Fine-tuning gives most answers a probability above 0.9.",
        paper="a figure",
        experiments=("fig6",),
        rule=Rule(
            what="share of such answers",
            number=lambda v: v("fine-tuning", "share of rows", x=0.95), above=0.5, unit="%",
        ),
    ),
    Claim(
        name="grafts-are-less-sure",
        source="Fig. 6",
        words="A graft's probabilities differ more: most answers have less.",
        paper="a figure",
        experiments=("fig6",),
        rule=Rule(
            what="share of answers above 0.9",
            number=lambda v: v("grafting", "share of rows", x=0.95), most=0.5, unit="%",
        ),
    ),
    Claim(
        name="regions-lie-in-the-middle",
        source="Fig. 9",
        words="Most of a region lies in the middle layers, for most tasks.",
        paper="a figure; AG News is an exception",
        experiments=("fig9",),
        rule=Rule(
            what="share of the region in the middle third of the layers", number=_in_the_middle,
            share=0.75, above=0.5, unit="%",
        ),
    ),
    Claim(
        name="regions-lie-in-three-kinds",
        source="Fig. 10",
        words="Regions lie in value matrices, first feed-forward layers and LayerNorms.",
        paper="a figure: most of the parameters",
        experiments=("fig10",),
        rule=Rule(
            what="share of the region there", number=_concentrated, above=0.5, unit="%",
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
            number=lambda v: _kept(v, "grafting", x=1.2e-3), above=0.95, unit="%",
        ),
    ),
    Claim(
        name="more-data-calibration",
        source="Table 5",
        words="There, too, they are better calibrated.",
        paper="ECE 2.7/0.8/1.2/1.4 against 9.3/6.1/5.5/5.1",
        experiments=("table5",),
        rule=Rule(
            what="ECE of fine-tuning − of the graft of 0.12 %",
            number=lambda v: v("fine-tuning", "ECE") - v("grafting", "ECE", x=1.2e-3), above=0.0,
        ),
    ),
    Claim(
        name="fish-overlaps-little",
        source="Table 8",
        words="FISH's regions and learned ones share less than 10 %.",
        paper="IoU 1.1 to 11.4 %",
        experiments=("table8",),
        rule=Rule(
            what="IoU of FISH's and the learned region, over densities of 0.01 to 1 %",
            number=lambda v: v("fish", "IoU with the learned region"), over="mean", most=0.1,
            unit="%",
        ),
    ),
    Claim(
        name="fish-is-no-graft",
        source="Table 8",
        words="FISH's regions make much worse grafts at low density.",
        paper="12.8 points on average at 0.01 % (said to be 10)",
        experiments=("table8",),
        rule=Rule(
            what="score of the learned graft − of FISH's, at 0.1 % (as many weights as there)",
            number=lambda v: _behind(v, "fish", x=AS_MANY), over="mean", least=0.05,
        ),
    ),
    Claim(
        name="fish-comes-closer",
        source="Table 8",
        words="The gap to FISH's regions becomes smaller as regions grow.",
        paper="12.8/4.6/7.6 points at 0.01/0.1/1 %",
        experiments=("table8",),
        rule=Rule(
            what="gap at 0.1 % (as many weights as the paper's 0.01 %) − gap at 1 %",
            number=lambda v: _behind(v, "fish", x=AS_MANY) - _behind(v, "fish", x=1e-2),
            over="mean", above=0.0,
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
    Claim(
        name="core-skills-first",
        source="Fig. 15",
        words="A region found at a checkpoint does as well as the model up to there.",
        paper="a figure",
        experiments=("fig15",),
        rule=Rule(
            what="score of the region / of the whole model there",
            number=lambda v: _followed(v)[0], least=0.95, unit="%",
        ),
    ),
    Claim(
        name="core-skills-saturate",
        source="Fig. 15",
        words="After that it saturates, while the model goes on.",
        paper="a figure",
        experiments=("fig15",),
        rule=Rule(
            what="gain after that, whole model − region", number=lambda v: _followed(v)[1],
            above=0.0,
        ),
    ),
)  # fmt: skip
"""Tables 1, 2, 5, 8, 9 and Figs. 2 to 6, 9, 10, 15."""
