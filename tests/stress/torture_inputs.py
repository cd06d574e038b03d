"""Inputs: more than a hundred kinds of files, rows and settings, most of them bad.

Each is made in a temporary folder and given to `cl-graft compare` in a process of its own, with a
limit on memory and time, beside a comparison that was finished before. A bad one must be told in
one sentence that names the place and the cause, with exit code 2 and without a traceback; nothing
may be written, and nothing that was there may change. A good one, and rows that are to be left out,
must come out in the results with the right counts.

    python tests/stress/torture_inputs.py --scale full
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import input_files
import input_rows
import input_settings
from input_case import Case, good
from tiny_checkpoint import tiny_checkpoint
from torture_children import Told, prepare, tell
from torture_report import Row, end_part, options

__all__ = ["all_cases"]

MOST_SECONDS = 30.0
MOST_BYTES = 3_000_000_000
"""Address space beyond that of a process that has imported everything; allocators reserve some."""

NOBODY = 65534
SETTINGS = (
    "--strategies", "naive", "--shots", "4", "--shots-short", "all", "--steps", "1",
    "--max-length", "24", "--max-test", "20", "--device", "cpu", "--quiet",
    "--set", "fine_tuning.evaluations=1",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What became of a case; `wrong` is empty if all is as it must be."""

    case: Case
    seconds: float
    told: Told
    wrong: tuple[str, ...]


def main() -> None:
    """Give every kind of input to the command line."""
    given = options(__doc__ or "").parse_args()
    started = time.monotonic()
    prepare()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Place(Path(folder))
        chosen = all_cases() if given.scale == "full" else _few(all_cases())
        results = [place.check(case) for case in chosen]
    rows = _rows(results)
    cases = [
        {
            "group": result.case.group,
            "name": result.case.name,
            "code": result.told.code,
            "seconds": round(result.seconds, 2),
            "said": result.told.sentence[:400],
            "wrong": result.wrong,
        }
        for result in results
    ]
    refused = sum(result.case.code == 2 for result in results)
    end_part(
        given.out,
        "inputs",
        rows,
        time.monotonic() - started,
        scale=given.scale,
        kinds={"refused": refused, "accepted": len(results) - refused},
        peak_megabytes_of_a_case=round(_peak() / 1e6),
        slowest_seconds=round(max(result.seconds for result in results), 2),
        cases=cases,
    )


def all_cases() -> list[Case]:
    """Return every kind of input."""
    return [*input_files.cases(), *input_rows.cases(), *input_settings.cases()]


def _few(cases: Sequence[Case]) -> list[Case]:
    """Choose the first bad input of every group, and two good ones."""
    bad = {case.group: case for case in reversed(cases) if case.code}
    fine = {case.group: case for case in cases if not case.code}
    return [*reversed(bad.values()), fine["encoding"], fine["on-bad-row skip"]]


class Place:
    """A folder with a model, a finished comparison, and the data of one case after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.out = folder, folder / "data", folder / "out"
        self.fresh = folder / "fresh"
        self.model = tiny_checkpoint(folder)
        self.data.mkdir()
        good(self.data)
        told = tell(*self._command(self.out))
        if told.code:
            raise RuntimeError(f"the comparison on good data failed: {told.err}")
        self.earlier = _hashes(self.out)

    def check(self, case: Case) -> Result:
        """Make the files of a case, run the command line on them, and look at what it did."""
        _clear(self.data)
        self.data.mkdir()
        case.make(self.data)
        before = _hashes(self.data)
        # The same command as the finished comparison's where only the data are others.
        beside = case.code == 2 and not (case.arguments or case.command or case.nobody)
        out = self.out if beside else self.fresh / "out"
        _clear(self.fresh)
        self.fresh.mkdir()
        self.fresh.chmod(0o777)
        started = time.monotonic()
        told = tell(*self._command(out, case), first=_limited(nobody=case.nobody))
        seconds = time.monotonic() - started
        wrong = [
            *(
                f"not said: {said}"
                for said in case.says
                # What was noticed in accepted data may stand with the results, on stdout.
                if not re.search(said, told.err + ("" if case.code else told.out), re.DOTALL)
            ),
            *([f"exit code {told.code}, not {case.code}"] if told.code != case.code else []),
            *(["a traceback"] if "Traceback" in told.err else []),
            *([f"{seconds:.0f} seconds"] if seconds > MOST_SECONDS else []),
            *(["an earlier result changed"] if _hashes(self.out) != self.earlier else []),
            *(["the data changed"] if _hashes(self.data) != before else []),
            *(_refused(told, self.fresh) if case.code else self._accepted(case, out)),
        ]
        return Result(case, seconds, self._without_places(told), tuple(wrong))

    def _command(self, out: Path, case: Case | None = None) -> Sequence[object]:
        if case is not None and case.command:
            places = {"data": self.data, "model": self.model, "out": out}
            return [part.format(**places) for part in case.command]
        arguments = case.arguments if case is not None else ()
        start = ("compare", "--data", self.data, "--tasks", "mine", "--model", self.model)
        return [*start, *SETTINGS, "--out", out, *arguments]

    def _accepted(self, case: Case, out: Path) -> list[str]:
        """Say what is wrong with the results of data that must be accepted."""
        path = out / "naive" / "seed0" / "results.json"
        if not path.is_file():
            return ["no results"]
        data = json.loads(path.read_text())["data"]["mine"]
        left_out = {
            Path(file).name: entry["rows"] for file, entry in data["source"]["left_out"].items()
        }
        wrong = [] if left_out == case.left_out else [f"left out {left_out}, not {case.left_out}"]
        for name, expected in case.data.items():
            found: Any = data
            for key in name.split("."):
                found = found.get(key) if isinstance(found, dict) else None
            if found != expected:
                wrong.append(f"{name} is {found}, not {expected}")
        summary = (path.parent / "summary.md").read_text()
        return wrong + (
            ["no word in the summary"] if left_out and "left out" not in summary else []
        )

    def _without_places(self, told: Told) -> Told:
        out, err = (text.replace(str(self.folder), "PLACE") for text in (told.out, told.err))
        return Told(told.code, out, err)


def _refused(told: Told, fresh: Path) -> list[str]:
    """Say what is wrong with how an input was refused."""
    said = [line for line in told.err.splitlines() if line.startswith("cl-graft: ")]
    usage = "Usage: " in told.err
    return [
        *([f"{len(said)} sentences"] if len(said) != 1 and not usage else []),
        *(["something on stdout"] if told.out else []),
        *(["something was written"] if any(fresh.iterdir()) else []),
    ]


def _limited(*, nobody: bool) -> Callable[[], None]:
    """Return what a child does first: bound its memory and time, and give up its rights."""

    def first() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (int(4 * MOST_SECONDS), int(5 * MOST_SECONDS)))
        if nobody and os.geteuid() == 0:
            codecs.lookup("utf-8-sig")  # Python's own files may be closed to the user nobody
            os.setuid(NOBODY)

    return first


def _peak() -> int:
    """Return the largest memory of a case beyond that of the process that it was forked from."""
    largest, own = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    return 1024 * max(0, largest - own)


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file under a folder, and what else there is, by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        whole = path.is_file() and not path.is_symlink()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if whole else "no file"
    return found


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _rows(results: Sequence[Result]) -> list[Row]:
    """Sum up the cases of each group, refused and accepted ones apart."""
    rows = []
    for group in dict.fromkeys(result.case.group for result in results):
        for code, outcome in ((2, "exit code 2"), (0, "accepted, and counted in the results")):
            own = [r for r in results if r.case.group == group and r.case.code == code]
            failures = tuple(f"{r.case.name}: {'; '.join(r.wrong)}" for r in own if r.wrong)
            if own:
                # Options that click itself refuses are told in a box.
                told = next((r.told for r in own if "cl-graft: " in r.told.err), own[0].told)
                example = f": “{told.sentence[:160]}”" if code else ""
                row = Row(group, len(own), len(own) - len(failures), outcome + example, failures)
                rows.append(row)
    return rows


if __name__ == "__main__":
    main()
