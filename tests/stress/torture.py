"""The torture test: every part one after the other, and one table of what survived.

Parts are scripts of their own, `torture_<part>.py`, and write what they find to OUT; the table goes
to ``benchmarks/results/torture.json`` and ``.md``. A part that was left out is taken from OUT as it
was found before.

    python tests/stress/torture.py                  # everything, as the table in the docs
    python tests/stress/torture.py --scale smoke    # does it run?
    python tests/stress/torture.py --parts kills,storms
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torture_report import Row, options, table

HERE = Path(__file__).parent
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PARTS = {
    "kills": "Runs killed at random moments, and resumed",
    "writes": "Commands killed at every call that changes a file",
    "storms": "Two writers, full disks, clocks, NaN, memory",
    "long_life": "100 tasks, and a server's day",
}


def main() -> None:
    """Run the parts asked for, and sum all of them up."""
    parser = options(__doc__ or "")
    parser.add_argument("--parts", default=",".join(PARTS), help="by comma; the others are kept")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    given = parser.parse_args()
    asked = [part for part in given.parts.split(",") if part]
    if unknown := [part for part in asked if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    failed = [part for part in asked if run_part(part, given.out, given.seed, given.scale)]
    found = [read_part(given.out, part) for part in PARTS if (given.out / f"{part}.json").exists()]
    given.results.mkdir(parents=True, exist_ok=True)
    text = render(found)
    stored = {"parts": found, "scale": given.scale, "seed": given.seed, "machine": machine()}
    path = given.results / "torture.json"
    path.write_text(f"{json.dumps(stored, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run_part(part: str, out: Path, seed: int, scale: str) -> bool:
    """Run a part's script; return whether it failed."""
    script = HERE / f"torture_{part}.py"
    command = [sys.executable, "-W", "ignore", str(script), "--out", str(out)]
    # What was found before must not stand for what was not found now.
    (out / f"{part}.json").unlink(missing_ok=True)
    sys.stderr.write(f"{part}: {PARTS[part]} …\n")
    done = subprocess.run(
        [*command, "--seed", str(seed), "--scale", scale],
        env={"OMP_NUM_THREADS": "1", **os.environ},
        check=False,
    )
    return done.returncode != 0 or not (out / f"{part}.json").exists()


def read_part(out: Path, part: str) -> dict[str, Any]:
    """Return what a part found."""
    return json.loads((out / f"{part}.json").read_text(encoding="utf-8"))


def render(parts: Sequence[dict[str, Any]]) -> str:
    """Return everything that was found as Markdown."""
    chapters: list[str] = []
    for found in parts:
        rows = [Row(**{**row, "failures": tuple(row["failures"])}) for row in found["rows"]]
        cases, survived = sum(row.cases for row in rows), sum(row.survived for row in rows)
        title = PARTS.get(found["part"], found["part"])
        head = f"### {title}\n\n{survived:,} of {cases:,} cases, {found['seconds']:,.0f} s."
        chapters.append(f"{head}\n\n{table(rows)}\n")
    return "\n".join([*chapters, f"{machine()}\n"])


def machine() -> str:
    """Say where this was found."""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
