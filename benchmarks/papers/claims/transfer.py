"""Claims of the grafting paper beyond a task's own test rows: other distributions, and peers.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600; numbers are those of its tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from papers.claims.rule import Claim, Rule
from papers.claims.view import MissingReading, View

__all__ = ["TRANSFER"]

_OUT = "accuracy out of distribution"
_PEERS = ("LoRA, rank 1", "Houlsby, size 1", "Pfeiffer, size 2")
"""Those of about 0.1 % of MiniLM: 0.09, 0.13 and 0.11 %."""


def _beside_peers(view: View, measure: str, best: Callable[[Iterable[float]], float]) -> float:
    """Return a number of the best peer, less that of the grafts nearest to it in size."""

    def less(peer: str) -> float:
        share = view(peer, "share tuned", task="any")
        nearest = min(
            view.curve("grafting", measure).items(), key=lambda at: abs(math.log(at[0] / share))
        )
        return view(peer, measure) - nearest[1]

    return best(less(peer) for peer in _PEERS)


def _best_point(view: View, method: str) -> tuple[float, float]:
    """Return the score in distribution and the accuracy out of it where their sum is highest."""
    inside, outside = (view.curve(method, m) for m in ("score in distribution", _OUT))
    return max(((inside[x], outside[x]) for x in inside), key=sum)


def _best_points(view: View) -> tuple[float, float]:
    """Return by how much the best point of grafts lies above WiSE-FT's, in and out of QNLI."""
    pair = replace(view, task="qnli → snli")
    if pair.task not in {one.task for one in view.tasks()}:
        raise MissingReading("pair that starts at qnli")
    graft, line = (_best_point(pair, method) for method in ("grafts by density", "WiSE-FT"))
    return graft[0] - line[0], graft[1] - line[1]


def _of_curves(view: View) -> float:
    """Return by how much WiSE-Graft's best point lies above WiSE-FT's, where MPQA was learned."""
    if not str(view.task).startswith("mpqa →"):
        raise MissingReading("pair that starts at mpqa")
    return sum(_best_point(view, "WiSE-Graft")) / 2 - sum(_best_point(view, "WiSE-FT")) / 2


def _where_shifts_are_small(view: View) -> float:
    """Return by how much grafts are better elsewhere than fine-tuning, over two near pairs."""
    reviews, nli = "sst2_sent → imdb", "mnli → snli"

    def whole_way(method: str) -> float:
        return view(method, _OUT, task=nli, x=1.0, experiment="fig7")

    first = view("grafting", _OUT, task=reviews) - view("fine-tuning", _OUT, task=reviews)
    return (first + whole_way("WiSE-Graft") - whole_way("WiSE-FT")) / 2


def _growth_of_gap(view: View) -> float:
    """Return how much more grafts are ahead elsewhere with all rows than with the fewest."""
    grafts, whole = (view.curve(method, _OUT) for method in ("grafting", "fine-tuning"))
    gaps = [grafts[rows] - whole[rows] for rows in grafts]
    return gaps[-1] - gaps[0]


def _from(view: View, source: str, method: str, *, x: float | None = None) -> float:
    """Return the mean accuracy elsewhere of what was learned on a task."""
    own = [one for one in view.tasks() if str(one.task).startswith(f"{source} →")]
    found = [one(method, _OUT, x=x) for one in own]
    if not found:
        raise MissingReading(f"pair that starts at {source}")
    return sum(found) / len(found)


def _growth_of_error(view: View) -> float:
    first, second = (view("grafting", "ECE", x=x) for x in (1e-3, 1e-2))
    return min(second - first, view("fine-tuning", "ECE") - second)


TRANSFER = (
    Claim(
        name="grafts-beat-re-training-elsewhere",
        source="Table 3",
        words="Out of distribution, grafts beat re-trained ones.",
        paper="89.5/81.5/71.8/80.1 against 88.9/81.2/67.0/66.4",
        experiments=("table3",),
        rule=Rule(
            what="accuracy there, graft − re-trained graft",
            number=lambda v: v("grafting", _OUT) - v("re-trained graft", _OUT),
            over="mean", above=0.0,
        ),
    ),
    Claim(
        name="bitfit-fails-elsewhere",
        source="Table 3",
        words="BitFit fails where the shift is large: QNLI to MNLI and SNLI.",
        paper="60.5 and 57.4 against the grafts' 71.8 and 80.1",
        experiments=("table3",),
        rule=Rule(
            what="accuracy there, graft − BitFit, from QNLI",
            number=lambda v: _from(v, "qnli", "grafting") - _from(v, "qnli", "BitFit"),
            over="once", least=0.05,
        ),
    ),
    Claim(
        name="grafts-beat-fine-tuning-on-reviews",
        source="Sec. 4.2, Fig. 7",
        words="Learned on MPQA, grafts are at least 5 points better on reviews than fine-tuning.",
        paper="83.7 and 84.6 against 74.2 and 77.6 (Table 7: Yelp, SST-2)",
        experiments=("fig7",),
        rule=Rule(
            what="accuracy there, graft − fine-tuning, from MPQA",
            number=lambda v: _from(v, "mpqa", "WiSE-Graft", x=1.0)
            - _from(v, "mpqa", "WiSE-FT", x=1.0),
            over="once", least=0.05,
        ),
    ),
    Claim(
        name="grafts-beat-fine-tuning-on-inference",
        source="Sec. 4.2, Fig. 7 b, c",
        words="Learned on QNLI, grafts are about 5 points better on MNLI and SNLI.",
        paper="“around 5 %”; 71.8 and 80.1 against 65.7 and 62.1 (Table 7)",
        experiments=("table3",),
        rule=Rule(
            what="accuracy there, graft − fine-tuning, from QNLI",
            number=lambda v: _from(v, "qnli", "grafting") - _from(v, "qnli", "fine-tuning"),
            over="once", least=0.05,
        ),
    ),
    Claim(
        name="small-shifts-need-no-graft",
        source="Fig. 7",
        words="Where the shift is small, SST-2 to IMDb or MNLI to SNLI, grafts gain little.",
        paper="“little or no advantage”",
        experiments=("table3", "fig7"),
        rule=Rule(
            what="accuracy there, graft − fine-tuning, mean of the two",
            number=_where_shifts_are_small, over="once", most=0.02,
        ),
    ),
    Claim(
        name="more-rows-widen-the-gap",
        source="Fig. 7c",
        words="Where the shift is large, the gap grows with the rows learned.",
        paper="a figure",
        experiments=("fig7c",),
        rule=Rule(
            what="accuracy there, graft − fine-tuning, with all rows − the same with a sixteenth",
            number=_growth_of_gap, over="mean", above=0.0,
        ),
    ),
    Claim(
        name="grafts-beat-wise-on-inference",
        source="Fig. 7 e",
        words="On inference, the best graft beats WiSE-FT's best point in distribution.",
        paper="84.2 against 80.5",
        experiments=("fig7",),
        rule=Rule(
            what="QNLI's score, grafts of any density − WiSE-FT, each where its sum with SNLI's is "
            "highest,",
            number=lambda v: _best_points(v)[0], over="once", above=0.0,
        ),
    ),
    Claim(
        name="grafts-beat-wise-elsewhere",
        source="Fig. 7 e",
        words="On inference, the best graft beats WiSE-FT's best point out of distribution, too.",
        paper="80.0 against 79.6",
        experiments=("fig7",),
        rule=Rule(
            what="SNLI's accuracy, grafts of any density − WiSE-FT, at the same points",
            number=lambda v: _best_points(v)[1], over="once", above=0.0,
        ),
    ),
    Claim(
        name="wise-graft-competes",
        source="Fig. 7 f",
        words="On sentiment, interpolating towards a graft is competitive with WiSE-FT.",
        paper="a figure",
        experiments=("fig7",),
        rule=Rule(
            what="mean of score in and accuracy out of distribution where it is highest over α, "
            "WiSE-Graft − WiSE-FT, from MPQA",
            number=_of_curves, over="mean", least=-0.02,
        ),
    ),
    Claim(
        name="peers-are-worse-calibrated",
        source="Table 6",
        words="Grafts have less calibration error than LoRA and adapters of about their size.",
        paper="4.6 points on average, against the best of them",
        experiments=("table6",),
        rule=Rule(
            what="ECE of the best peer − of the grafts nearest to it in size",
            number=lambda v: _beside_peers(v, "ECE", min), over="mean", least=0.02,
        ),
    ),
    Claim(
        name="peers-score-little-more",
        source="Table 6",
        words="Grafts score only a little less than LoRA and adapters of about their size.",
        paper="1.7 points",
        experiments=("table6",),
        rule=Rule(
            what="score of the best peer − of the grafts nearest to it in size",
            number=lambda v: _beside_peers(v, "score", max), over="mean", most=0.025,
        ),
    ),
    Claim(
        name="calibration-is-smooth",
        source="Table 6",
        words="A graft's calibration error grows with its density.",
        paper="2.2/2.7/3.1/3.6/8.6 at 0.01/0.05/0.1/1/100 %",
        experiments=("table6",),
        rule=Rule(
            what="least growth of the ECE from one to the next of 0.1 % (as many weights as the "
            "paper's 0.01 %), 1 % and fine-tuning",
            number=_growth_of_error, over="mean", above=0.0,
        ),
    ),
    Claim(
        name="peers-are-worse-elsewhere",
        source="Table 7",
        words="Out of distribution, grafts beat LoRA and adapters of about the same size.",
        paper="7.9 points on average",
        experiments=("table7",),
        rule=Rule(
            what="accuracy there, grafts nearest in size − the best peer",
            number=lambda v: -_beside_peers(v, _OUT, max), over="mean", least=0.02,
        ),
    ),
)  # fmt: skip
"""Tables 3, 6, 7 and Fig. 7."""
