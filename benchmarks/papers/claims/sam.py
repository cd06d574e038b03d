"""Claims of the SAM paper: Fu et al., 2023, https://arxiv.org/abs/2211.15583."""

from __future__ import annotations

from papers.claims.rule import Claim, Rule
from papers.claims.view import MissingReading, View

__all__ = ["SAM"]

_FULL = "FullTuning"
_OF_TABLE_1 = 5e-3
_WITH_MASKS = ("MixOut", "Random", "MagPruning", "DiffPruning", "ChildPruning", "SAM", "BitFit")


def _others(view: View) -> list[str]:
    return [method for method in view.methods() if method != "SAM"]


def _lead(view: View) -> float:
    """Return SAM's average score less that of the best other method."""
    return view("SAM") - max(view(method) for method in _others(view))


def _unrest(view: View) -> float:
    """Return SAM's deviation less that of the steadiest other method."""
    return view.deviation("SAM") - min(view.deviation(method) for method in _others(view))


def _rank(view: View) -> float:
    """Return the rank of SAM among the methods on a task; 1 is best."""
    return float(1 + sum(view(method) > view("SAM") for method in view.methods()))


def _of_ranks(view: View, measure: str) -> float:
    return view("stability rank and performance rank", measure, task="all")


def _share_above(view: View, number: dict[str, float]) -> float:
    """Return the share of the other methods whose number is above full tuning's."""
    others = [value for method, value in number.items() if method != _FULL]
    if not others:
        raise MissingReading("number of other methods")
    return sum(value > number[_FULL] for value in others) / len(others)


def _means(view: View) -> dict[str, float]:
    return {method: view(method) for method in view.methods()}


def _steadiness(view: View) -> dict[str, float]:
    return {method: -view.deviation(method) for method in view.methods()}


def _significant(view: View) -> float:
    """Return the share of pairs of task and method in which SAM is better with p < 0.05."""
    found = [
        one(method, "p") < 0.05 and one(method, "mean difference") > 0
        for one in view.tasks()
        for method in one.methods("p", like="SAM against ")
    ]
    if not found:
        raise MissingReading("p of SAM against others")
    return sum(found) / len(found)


def _slower(view: View) -> float:
    """Return the share of the methods with a mask that take longer than full tuning."""
    whole = view(_FULL, "seconds")
    return view.average(_WITH_MASKS, lambda method: float(view(method, "seconds") > whole))


def _losses(view: View, when: str) -> dict[float, float]:
    return view.curve(when, "training loss")


def _least_jump(view: View) -> float:
    before, after = _losses(view, "before a projection"), _losses(view, "after it")
    return min(after[step] - before[step] for step in before)


def _unsteadier(view: View, density: float) -> float:
    """Return by how much SAM's deviation is larger at a density than at Table 1's."""
    there, usual = (view.deviation("SAM", "test score", x=x) for x in (density, _OF_TABLE_1))
    return there - usual


def _least_way_back(view: View) -> float:
    (start,) = _losses(view, "at the start").values()
    return min(_losses(view, "after it").values()) / start


SAM = (
    Claim(
        name="sam-sparse-beats-full",
        source="Table 1",
        words="Most parameter-efficient methods score better than full tuning.",
        paper="5 of 9 averages above 74.78",
        experiments=("sam_table1",),
        rule=Rule(
            what="share of the other methods whose average score lies higher than full tuning's",
            number=lambda v: _share_above(v, _means(v)), over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-sparse-is-stabler",
        source="Table 1",
        words="Most parameter-efficient methods are more stable than full tuning.",
        paper="6 of 9 deviations below 2.60, averaged over the tasks",
        experiments=("sam_table1",),
        rule=Rule(
            what="share of the other methods whose deviation lies lower than full tuning's",
            number=lambda v: _share_above(v, _steadiness(v)), over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-random-beats-full",
        source="Table 1",
        words="Even random sparse tuning scores better than full tuning.",
        paper="said in the text; its Table 1 has 74.55 against 74.78, Table 2 74.83 against 74.81",
        experiments=("sam_table1",),
        rule=Rule(
            what="average score of Random − of full tuning",
            number=lambda v: v("Random") - v(_FULL), over="once", above=0.0,
        ),
    ),
    Claim(
        name="sam-is-best",
        source="Table 1",
        words="SAM has the best average score.",
        paper="77.12 over seven tasks, RTE and CB among them; the next is Adapter with 76.03",
        experiments=("sam_table1",),
        rule=Rule(
            what="average score of SAM − of the best other method", number=_lead, over="once",
            above=0.0,
        ),
    ),
    Claim(
        name="sam-is-steadiest",
        source="Table 1",
        words="SAM is the steadiest method.",
        paper="deviation 1.51; the next is MagPruning with 1.99",
        experiments=("sam_table1",),
        rule=Rule(
            what="deviation of SAM − of the steadiest other method", number=_unrest, over="once",
            most=0.0,
        ),
    ),
    Claim(
        name="sam-ranks-high",
        source="Table 1",
        words="SAM ranks among the first three on most tasks.",
        paper="5 of 7 tasks",
        experiments=("sam_table1",),
        rule=Rule(what="rank of SAM", number=_rank, share=0.51, most=3.0, unit=""),
    ),
    Claim(
        name="sam-beats-random",
        source="Table 1",
        words="Choosing by the accumulated gradient is better than choosing at random.",
        paper="77.12 against 74.55",
        experiments=("sam_table1",),
        rule=Rule(
            what="score of SAM − of Random", number=lambda v: v("SAM") - v("Random"), over="mean",
            above=0.0,
        ),
    ),
    Claim(
        name="sam-projections-lose",
        source="Table 1",
        words="Regions of methods that project, DiffPruning and ChildPruning, do worse than SAM's.",
        paper="72.65 and 74.93 against 77.12, projecting while they train",
        experiments=("sam_table1",),
        rule=Rule(
            what="average score of SAM − the higher one of theirs",
            number=lambda v: v("SAM") - max(v("DiffPruning"), v("ChildPruning")), over="once",
            above=0.0,
        ),
    ),
    Claim(
        name="sam-perturbed",
        source="Table 2",
        words="SAM scores best, too, where a tenth of the training rows is left out.",
        paper="76.40; the next is LoRA with 75.46",
        experiments=("sam_table2",),
        rule=Rule(
            what="average score of SAM − of the best other method", number=_lead, over="once",
            above=0.0,
        ),
    ),
    Claim(
        name="sam-perturbed-stable",
        source="Table 2",
        words="SAM is the steadiest, too, where a tenth of the training rows is left out.",
        paper="deviation 1.96; the next is MagPruning with 2.27",
        experiments=("sam_table2",),
        rule=Rule(
            what="deviation of SAM − of the steadiest other method", number=_unrest, over="once",
            most=0.0,
        ),
    ),
    Claim(
        name="sam-costs-more",
        source="Table 3",
        words="All methods with a mask take longer than full tuning, as masks save no work.",
        paper="2.02 (SAM) to 3.14 h against 1.67 h; each stops early",
        experiments=("sam_table3",),
        rule=Rule(
            what="share of the seven methods with a mask that take more seconds for as many steps, "
            "with finding the region",
            number=_slower, over="once", least=1.0, unit="%",
        ),
    ),
    Claim(
        name="sam-adapters-cost-less",
        source="Table 3",
        words="Adapters take less time than full tuning.",
        paper="1.59 h against 1.67 h; LoRA, of which it says the same, 1.97 h",
        experiments=("sam_table3",),
        rule=Rule(
            what="seconds of adapters / of full tuning", number=lambda v: v("Adapter", "seconds")
            / v(_FULL, "seconds"),
            over="mean", most=1.0, unit="",
        ),
    ),
    Claim(
        name="sam-significant",
        source="Table 5",
        words="SAM is significantly better than most other methods.",
        paper="36 of 63 pairs of ten runs",
        experiments=("sam_table5",),
        rule=Rule(
            what="share of pairs of task and method in which SAM is better with p < 0.05",
            number=_significant, over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-significant-perturbed",
        source="Table 6",
        words="SAM is significantly better with a tenth of the training rows left out, too.",
        paper="28 of 63 pairs of ten runs, which are not most",
        experiments=("sam_table6",),
        rule=Rule(
            what="share of pairs of task and method in which SAM is better with p < 0.05",
            number=_significant, over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-projections-jump",
        source="Fig. 3",
        words="The training loss jumps back at each projection.",
        paper="a figure: every 600 steps",
        experiments=("sam_fig3",),
        rule=Rule(
            what="least over the projections: training loss after one − before it",
            number=_least_jump, above=0.0, unit="",
        ),
    ),
    Claim(
        name="sam-projections-undo",
        source="Fig. 3",
        words="Each projection brings the training loss back to almost its initial value.",
        paper="a figure: almost the same value",
        experiments=("sam_fig3",),
        rule=Rule(
            what="least over the projections: training loss after one ÷ at the start",
            number=_least_way_back, least=0.9, unit="",
        ),
    ),
    Claim(
        name="sam-stable-is-good",
        source="Fig. 4",
        words="Stabler methods score better: the ranks correlate positively.",
        paper="a positive coefficient",
        experiments=("sam_fig4",),
        rule=Rule(
            what="Spearman's rho of stability rank and performance rank",
            number=lambda v: _of_ranks(v, "Spearman's rho"), over="once", above=0.0, unit="",
        ),
    ),
    Claim(
        name="sam-stable-is-good-by-no-chance",
        source="Fig. 4",
        words="The correlation of stability and performance ranks is significant.",
        paper="p < 0.05",
        experiments=("sam_fig4",),
        rule=Rule(
            what="p of Spearman's rho of both ranks", number=lambda v: _of_ranks(v, "p"),
            over="once", most=0.05, unit="",
        ),
    ),
    Claim(
        name="sam-sparser-is-steadier",
        source="Fig. 5",
        words="The deviation falls with the density, down to a certain one.",
        paper="a figure: from 0.2 on, for most tasks",
        experiments=("sam_fig5",),
        rule=Rule(
            what="deviation of the test score at 0.2 − at 0.005, Table 1's density,",
            number=lambda v: _unsteadier(v, 0.2),
            share=0.51, above=0.0,
        ),
    ),
    Claim(
        name="sam-too-sparse-is-unsteady",
        source="Fig. 5",
        words="Below a certain density the models become unstable.",
        paper="a figure: 0.0002 to 0.2",
        experiments=("sam_fig5",),
        rule=Rule(
            what="deviation of the test score at 0.0002 − at 0.005, Table 1's density,",
            number=lambda v: _unsteadier(v, 2e-4),
            share=0.51, above=0.0,
        ),
    ),
    Claim(
        name="sam-too-sparse",
        source="Fig. 5",
        words="Below a certain density the score drops sharply.",
        paper="a figure: 0.0002 to 0.2",
        experiments=("sam_fig5",),
        rule=Rule(
            what="test score at 0.005, Table 1's density, − that at 0.0002",
            number=lambda v: v("SAM", "test score", x=_OF_TABLE_1)
            - v("SAM", "test score", x=2e-4),
            over="mean", least=0.05,
        ),
    ),
)  # fmt: skip
"""Tables 1 to 6 and Figs. 3 to 5."""
