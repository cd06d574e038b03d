"""The figure of average ranks: which methods differ, and which cannot be told apart."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from cl_graft.metrics.figure_style import PALETTE, figure_style

_LINE = 0.28
"""Inches a method."""

_TICKS = 12
_APART = 0.025
"""Share of the axis from one bar to the next."""


@figure_style()
def rank_diagram(ranks: Mapping[str, float], difference: float) -> Figure:
    """Draw average ranks, and bars beside the methods that do not differ significantly.

    As in Demšar, 2006, https://www.jmlr.org/papers/v7/demsar06a.html, Fig. 1, with a line a method.
    """
    ordered = sorted(ranks.items(), key=lambda row: row[1])
    figure = Figure(figsize=(7, 1.3 + _LINE * len(ordered)))
    axes = figure.subplots()
    places = range(len(ordered))
    axes.set_yticks(places, [name for name, _ in ordered])
    for place, (_, rank) in enumerate(ordered):
        axes.plot([rank], [place], "o", color=PALETTE[0])
        axes.annotate(f"{rank:.2f}", (rank, place), (6, 0), textcoords="offset points", va="center")
    bars, apart = cliques([rank for _, rank in ordered], difference), _APART * len(ordered)
    for number, (first, last) in enumerate(bars):
        # Upright, a column each: they may overlap, and every line between their ends belongs.
        axes.plot(
            [1 - apart * (len(bars) - number)] * 2, [first, last], color=PALETTE[4], linewidth=4
        )
    axes.set_ylim(len(ordered) - 0.5, -0.5)
    axes.set_xlim(1 - apart * (len(bars) + 1), max(len(ordered) + 0.9, 1.08 * len(ordered)))
    axes.set_xticks(range(1, len(ordered) + 1, 1 + len(ordered) // _TICKS))
    axes.set_xlabel("average rank (1 is best)")
    title = f"a bar joins what cannot be told apart (critical difference {difference:.2f})"
    figure.suptitle(title, fontsize="medium")  # over the names, too, which may be long
    axes.grid(axis="x")
    return figure


def cliques(ranks: list[float], difference: float) -> list[tuple[int, int]]:
    """Return first and last place of the longest runs of ascending ranks within the difference."""
    runs: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= difference)
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs
