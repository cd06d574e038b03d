"""The picture at the top of README: the matrices R of naive fine-tuning and of grafting.

    python benchmarks/readme_picture.py

Reads ``results/demo.json``, what `make demo` measured, and writes
``docs/pictures/forgetting-light.svg`` and ``forgetting-dark.svg``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

STORED = Path(__file__).parent / "results" / "demo.json"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
STYLES = {"light": {}, "dark": {"text.color": "#e6edf3", "axes.labelcolor": "#e6edf3"}}
TITLES = {"naive": "Naive fine-tuning forgets", "grafting": "Grafting keeps every score"}


def main() -> None:
    """Draw both files."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for style, colours in STYLES.items():
        text = colours.get("text.color", "#1f2328")
        settings = {"svg.hashsalt": "cl_graft", "svg.fonttype": "none", "font.size": 11, **colours}
        with matplotlib.rc_context(settings):
            figure = draw(stored, text)
            path = PICTURES / f"forgetting-{style}.svg"
            FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


def draw(stored: dict[str, Any], text: str) -> Figure:
    """Draw one square a strategy: row i is after task i, column j is task j."""
    tasks = [name.replace("_", " ") for name in stored["tasks"]]
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    figure.patch.set_alpha(0)
    for axes, (name, title) in zip(figure.subplots(1, 2), TITLES.items(), strict=True):
        run = stored["runs"][name]
        scores = [
            [100 * value if value is not None else float("nan") for value in row]
            for row in run["R"]
        ]
        shown = [
            [value if j <= i else float("nan") for j, value in enumerate(row)]
            for i, row in enumerate(scores)
        ]
        axes.imshow(shown, cmap="YlGnBu", vmin=50, vmax=105)
        axes.patch.set_alpha(0)
        for i, row in enumerate(shown):
            for j, value in enumerate(row[: i + 1]):
                axes.text(
                    j,
                    i,
                    f"{value:.1f}",
                    ha="center",
                    va="center",
                    fontsize=13,
                    color="white" if value > 85 else "black",
                )
        axes.set_title(title, color=text)
        axes.set_xticks(range(len(tasks)), tasks)
        axes.set_yticks(range(len(tasks)), [f"after {task}" for task in tasks])
        axes.tick_params(colors=text, length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(
            f"average {100 * run['average_accuracy']:.1f} %, "
            f"forgotten {100 * run['forgetting']:.1f} points",
            color=text,
        )
    return figure


if __name__ == "__main__":
    main()
