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
    """Cases of one kind."""

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
    """Return the options that every part has: ``--out``, ``--seed`` and ``--scale``."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/torture"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", choices=("smoke", "full"), default="full")
    return parser


def write_part(out: Path, part: str, rows: Sequence[Row], seconds: float, **more: object) -> None:
    """Write what a part found to ``OUT/<part>.json``."""
    out.mkdir(parents=True, exist_ok=True)
    found = {"part": part, "seconds": round(seconds, 1), "rows": [asdict(row) for row in rows]}
    text = json.dumps(found | more, indent=1, ensure_ascii=False)
    (out / f"{part}.json").write_text(f"{text}\n", encoding="utf-8")


def end_part(
    out: Path, part: str, rows: Sequence[Row], seconds: float, *, ok: bool = True, **more: object
) -> NoReturn:
    """Write what a part found, print its table, and exit: with 0 if every row and all is ok."""
    write_part(out, part, rows, seconds, **more)
    print(table(rows))
    sys.exit(0 if ok and all(row.ok for row in rows) else 1)


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
