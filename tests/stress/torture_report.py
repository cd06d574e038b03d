"""What a part of the torture test found: its options, its rows, its file and its table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True)
class Row:
    """Cases of one kind.

    Attributes:
        what: What was done, as in ``"SIGKILL in the dense run"``.
        cases: How often.
        survived: How many of them came out as they must.
        outcome: What that is, or what the user sees.
        failures: The others, a sentence each.
    """

    what: str
    cases: int
    survived: int
    outcome: str = ""
    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every case came out as it must, and there was one."""
        return self.survived == self.cases > 0 and not self.failures


def options(description: str) -> argparse.ArgumentParser:
    """Return the options that every part has: ``--out``, ``--seed`` and ``--scale``.

    Args:
        description: What the part does; its first line is shown.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/torture"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", choices=("smoke", "full"), default="full")
    return parser


def write_part(out: Path, part: str, rows: Sequence[Row], seconds: float, **more: object) -> Path:
    """Write what a part found to ``OUT/<part>.json``.

    Args:
        out: The folder.
        part: The part's name.
        rows: What it found.
        seconds: How long it took, over all starts.
        more: JSON values of the part's own.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = {
        "part": part,
        "seconds": round(seconds, 1),
        "rows": [asdict(row) for row in rows],
        **more,
    }
    path = out / f"{part}.json"
    path.write_text(f"{json.dumps(found, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    return path


def end_part(
    out: Path,
    part: str,
    rows: Sequence[Row],
    seconds: float,
    *,
    ok: bool | None = None,
    **more: object,
) -> NoReturn:
    """Write what a part found, print its table, and exit: with 0 if every row is ok.

    Args:
        out: The folder.
        part: The part's name.
        rows: What it found.
        seconds: How long it took, over all starts.
        ok: Whether to exit with 0, where that is not about every row.
        more: JSON values of the part's own.
    """
    write_part(out, part, rows, seconds, **more)
    print(table(rows))
    sys.exit(0 if (all(row.ok for row in rows) if ok is None else ok) else 1)


def table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table, and below it every failure."""
    lines = ["| what | cases | survived | outcome |", "| --- | ---: | ---: | --- |"]
    lines += [
        f"| {_cell(row.what)} | {row.cases:,} | {row.survived:,} | {_cell(row.outcome)} |"
        for row in rows
    ]
    failures = [f"- **{row.what}**: {failure}" for row in rows for failure in row.failures]
    return "\n".join([*lines, *([""] if failures else []), *failures])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
