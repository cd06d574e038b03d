"""Claims of the grafting paper on regions of single tasks: which carry a skill, and where they lie.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600; numbers are those of its tables.
"""

from __future__ import annotations

from statistics import fmean

from cl_graft.metrics.relative_gain import relative_gain
from papers.claims.rule import Claim, Rule
from papers.claims.view import MissingReading, View

__all__ = ["REGIONS"]

LOW = (1e-4, 3e-4, 1e-3)
"""Densities that count as low on a model of ten million coordinates."""

AS_MANY = 1e-3
"""The density at which a model of ten million coordinates has about as many of them in a region as
the paper's 0.01 % of 85 million, 8,505."""


def _at_low(view: View, a: str, b: str) -> float:
    """Return by how much the curve of a lies above that of b at low densities."""
    return sum(view(a, x=x) - view(b, x=x) for x in LOW) / len(LOW)


def _localized(view: View, experiment: str) -> float:
    """Return the share of fine-tuning's gain that a learned graft of 0.1 % keeps.

    The gain is that over about a hundred random weights, which carry nothing: a share of the score
    would hardly tell a learned region from a random one.
    """
    return _part_of_gain(
        view(view.learned, x=AS_MANY, experiment=experiment),
        base=view("random", x=1e-5, experiment=experiment),
        full=view("fine-tuning", experiment=experiment),
        what="fine-tuning gains 2 points over random weights",
    )


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
    return _part_of_gain(
        view(method, x=AS_MANY),
        base=view("best constant answer"),
        full=view(f"{method}: fine-tuning"),
        what=f"{method} gains 2 points over the best constant answer",
    )


def _part_of_gain(score: float, *, base: float, full: float, what: str) -> float:
    """Return the relative gain, of which little can be said where the whole gain is small."""
    gain = relative_gain(score, base=base, full=full)
    if gain is None or full - base < 0.02:
        raise MissingReading(f"task where {what}")
    return gain


REGIONS = (
    Claim(
        name="learned-beats-movement",
        source="Fig. 2",
        words="The learned region is much better than the most moved coordinates at low density.",
        paper="a figure",
        experiments=("fig2",),
        rule=Rule(
            what="score, learned − most moved, over densities of 0.01 to 0.1 %",
            number=lambda v: _at_low(v, v.learned, "movement"), least=0.05,
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
            what="share of fine-tuning's gain over 0.001 % at random that a learned graft of 0.1 % "
            "keeps, standard − prompts,",
            number=lambda v: _localized(v, "fig3") - _localized(v, "fig2"), least=-0.1,
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
            what="share of the gain over the best constant answer that a graft of 0.1 % keeps, "
            "AdamW + L1 − AdamW",
            number=lambda v: _gain_kept(v, "AdamW + L1") - _gain_kept(v, "AdamW"), above=0.0,
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
        words="A region found at a checkpoint saturates after it, while the model goes on.",
        paper="a figure",
        experiments=("fig15",),
        rule=Rule(
            what="gain after that, whole model − region", number=lambda v: _followed(v)[1],
            above=0.0,
        ),
    ),
)  # fmt: skip
"""Table 8 and Figs. 2 to 5, 9, 10, 15."""
