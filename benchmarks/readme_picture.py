"""The picture at the top of README: the matrices R of naive fine-tuning, LoRAs and grafting.

    cl-graft demo --seeds 0-4 --strategies grafting,lora,naive,independent --out demo
    python benchmarks/readme_picture.py demo

Stores what the demo in that folder measured in ``results/demo.json``, with the LoRAs of further
folders under their names (without a folder it reads what was stored), and draws the means over its
seeds as ``docs/pictures/forgetting-light.svg`` and ``forgetting-dark.svg``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

STORED = Path(__file__).parent / "results" / "demo.json"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
STYLES = {"light": {}, "dark": {"text.color": "#e6edf3", "axes.labelcolor": "#e6edf3"}}
TITLES = {"naive": "Naive fine-tuning", "lora": "One LoRA per task", "grafting": "Grafting"}


def main() -> None:
    """Store a demo's runs, if its folder is named, and draw both files."""
    if len(sys.argv) > 1:
        stored = collect(Path(sys.argv[1]))
        for folder in sys.argv[2:]:
            stored["runs"][Path(folder).name] = collect(Path(folder))["runs"]["lora"]
        STORED.write_text(f"{json.dumps(stored, indent=1)}\n", encoding="utf-8")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for style, colours in STYLES.items():
        text = colours.get("text.color", "#1f2328")
        settings = {"svg.hashsalt": "cl_graft", "svg.fonttype": "none", "font.size": 11, **colours}
        with matplotlib.rc_context(settings):
            figure = draw(stored, text)
            path = PICTURES / f"forgetting-{style}.svg"
            FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


def collect(folder: Path) -> dict[str, Any]:
    """Return the measures of each run of a demo, by strategy and seed."""
    runs: dict[str, dict[str, Any]] = {}
    about: dict[str, Any] = {}
    for path in sorted(folder.glob("*/seed*/results.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        about = {name: run[name] for name in ("tasks", "command", "machine", "versions")}
        about["settings"] = run["config"]
        runs.setdefault(run["strategy"], {})[str(run["seed"])] = {
            name: run[name] for name in ("R", "average_accuracy", "forgetting", "bytes", "seconds")
        }
    if not runs:
        sys.exit(f"{folder} holds no runs: name the folder that cl-graft demo wrote")
    return {**about, "runs": runs}


def draw(stored: dict[str, Any], text: str) -> Figure:
    """Draw one square a strategy: row i is after task i, column j is task j."""
    tasks = [name.replace("_", " ") for name in stored["tasks"]]
    figure = Figure(figsize=(6.6, 2.8), layout="constrained")
    figure.patch.set_alpha(0)
    panels = figure.subplots(1, 3, sharey=True)  # on a phone a wider picture could not be read
    for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
        runs = list(stored["runs"][name].values())
        shown = [
            [
                100 * fmean(run["R"][i][j] for run in runs) if j <= i else float("nan")
                for j in range(len(tasks))
            ]
            for i in range(len(tasks))
        ]
        axes.imshow(shown, cmap="YlGnBu", vmin=50, vmax=105)
        axes.patch.set_alpha(0)
        for i, row in enumerate(shown):
            for j, value in enumerate(row[: i + 1]):
                colour = "white" if value > 85 else "black"
                axes.text(j, i, f"{value:.1f}", color=colour, ha="center", va="center", size=12)
        axes.set_title(title, color=text, fontsize=12)
        axes.set_xticks(range(len(tasks)), tasks)
        axes.set_yticks(range(len(tasks)), [f"after {task}" for task in tasks])
        axes.tick_params(colors=text, length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(
            f"average {100 * fmean(run['average_accuracy'] for run in runs):.1f} %\n"
            f"forgotten {100 * fmean(run['forgetting'] for run in runs):.1f} points",
            color=text,
        )
    return figure


if __name__ == "__main__":
    main()
