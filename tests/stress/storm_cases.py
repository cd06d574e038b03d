"""Where storms happen, and how their cases are counted."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tiny_checkpoint import QUICK
from torture_children import Told, tell
from torture_report import Row

from cl_graft.errors import BankError, InputError
from cl_graft.settings import to_nested
from cl_graft.storage import load_bank

TASKS = ("scope", "topic")

_SETTINGS = {
    **QUICK,
    "stream.tasks": list(TASKS),
    "comparison.strategies": ["grafting"],
    "comparison.seeds": [0],
    "fine_tuning.steps": 6,
    "grafting.mask_steps": 4,
}


@dataclass
class Place:
    """A folder with what every storm needs."""

    folder: Path
    model: Path
    _undisturbed: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """The config of a run."""
        path = self.folder / "stream.yaml"
        if not path.is_file():
            path.write_text(json.dumps(to_nested({**_SETTINGS, "model.name": str(self.model)})))
        return path

    def fresh(self, name: str) -> Path:
        """Return an output folder that does not exist yet."""
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        return out

    def run(self, out: Path, *more: object) -> tuple[object, ...]:
        """Return the command of a run."""
        return ("run", self.config, "--out", out, *more)

    def undisturbed(self, *more: str) -> dict[str, str]:
        """Return the files of the bank of a run that nothing happened to, by name."""
        if more not in self._undisturbed:
            out = self.fresh("undisturbed")
            told = tell(*self.run(out, *more))
            if told.code:
                raise RuntimeError(f"the run without a storm failed: {told.err}")
            self._undisturbed[more] = bank_files(out / "grafting" / "seed0" / "bank")
        return self._undisturbed[more]


@dataclass
class Cases:
    """The cases of one kind of storm."""

    what: str
    place: Place
    count: int = 0
    failures: list[str] = field(default_factory=list)
    seen: str = ""

    def check(self, name: str, told: Told | None = None, **expected: bool) -> None:
        """Count a case, which survived if all that is expected holds."""
        self.count += 1
        if told is not None:
            self.told(told.sentence)
        wrong = [name.replace("_", " ") for name, holds in expected.items() if not holds]
        if wrong:
            said = "" if told is None else f" (exit code {told.code}: {told.err[-400:]})"
            self.failures.append(self._without_places(f"{name}: not {', '.join(wrong)}{said}"))

    def row(self, outcome: str = "") -> Row:
        """Sum up; what the user sees stands behind the outcome."""
        seen = f"“{self.seen}”" if self.seen else ""
        told = ": ".join(part for part in (outcome, seen) if part)
        survived = self.count - len(self.failures)
        return Row(self.what, self.count, survived, told, tuple(self.failures))

    def told(self, line: str) -> None:
        """Take a line as what the user sees, unless there is one."""
        self.seen = self.seen or self._without_places(line)

    def _without_places(self, text: str) -> str:
        return text.replace(str(self.place.folder), "OUT")


def bank_files(bank: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a bank, by name."""
    files = (path for path in sorted(bank.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(bank)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def readable(bank: Path, entries: int) -> bool:
    """Tell whether a bank holds so many entries, all of them whole; none is no bank."""
    if not entries and not (bank / "bank.json").exists():
        return True
    try:
        return len(load_bank(bank)) == entries
    except (BankError, InputError, OSError):
        return False
