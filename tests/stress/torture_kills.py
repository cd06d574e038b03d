"""Torture, part `kills`: runs killed at random moments, and resumed until they end.

    python tests/stress/torture_kills.py --scale smoke     # a few kills: does it run?
    python tests/stress/torture_kills.py --scale full      # at least 100 kills

A case is one `cl-graft run` (of each strategy in turn) or `cl-graft compare` of a tiny model on
generated tasks. Its process is killed up to four times (SIGKILL mostly, SIGTERM and SIGINT now and
then) at a random moment of a random phase and told to go on after each. What it leaves in the end
must be what a run leaves that was never interrupted: results, bank files and curves, bit for bit;
after every kill every file must be readable. Cases are functions of the seed and their number;
those that are finished are kept in OUT/kills/ and not done again by a later start.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tiny_checkpoint import tiny_checkpoint
from torture_children import Told, prepare, start, tell
from torture_report import Row, end_part, options

from cl_graft.settings import to_nested

KINDS = ("grafting", "naive", "independent", "compare")
KILLS = {"smoke": 3, "full": 110}
LIMIT = {"smoke": 120.0, "full": 1200.0}
"""Seconds after which no new case is begun."""
SIGNALS = [signal.SIGKILL] * 8 + [signal.SIGTERM, signal.SIGINT]
PHASES = {
    "start": "loading and setting up",
    "dense": "dense fine-tuning",
    "localize": "localization",
    "train": "region training, or the naive loop",
    "evaluate": "evaluation and writing results",
}
SETTINGS: dict[str, Any] = {
    "stream.tasks": ["scope", "topic"],
    "stream.shots": 16,
    "fine_tuning.steps": 16,
    "stream.max_length": 24,
    "stream.max_test": 100,
    "grafting.density": 0.01,
    "grafting.mask_steps": 8,
    "grafting.mask_batch": 32,
    "fine_tuning.evaluations": 2,
    "model.device": "cpu",
}
UPKEEP = ("output.checkpoint_steps=1", "output.checkpoint_steps=5", "output.checkpoint_seconds=0")


@dataclass
class Case:
    """A command that was killed, and went on."""

    number: int
    kind: str
    kills: list[tuple[str, str]] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Timeline:
    """What an undisturbed run of a kind reports: steps by phase, and the seconds of one."""

    steps: dict[str, int]
    seconds: dict[str, float]


class Reports:
    """A pipe through which a child says where it stands."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._text = ""

    def watch(self, phase: str, step: int) -> None:
        """Say it, in the child."""
        os.write(self._write, f"{phase}\n".encode())

    def listen(self, seconds: float) -> list[str]:
        """Return the phases of the steps that were reported by now, or within some seconds."""
        if not select.select([self._read], [], [], seconds)[0]:
            return []
        self._text += os.read(self._read, 1 << 16).decode()
        *lines, self._text = self._text.split("\n")
        return lines

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    started = time.monotonic()
    prepare()
    # How two outcomes are compared is the tests' business.
    sys.path.append(str(Path(__file__).parents[1]))
    place = given.out / "kills"
    place.mkdir(parents=True, exist_ok=True)
    config = place / "stream.yaml"
    values = {**SETTINGS, "model.name": str(tiny_checkpoint(place).resolve())}
    config.write_text(json.dumps(to_nested(values)))
    kept = place / f"cases-{given.scale}-{given.seed}.jsonl"
    cases = read_cases(kept)
    seconds = sum(case["seconds"] for case in cases)
    expected, timelines = references(config, place)
    number = len(cases)
    while sum(len(case["kills"]) for case in cases) < KILLS[given.scale]:
        if time.monotonic() - started > LIMIT[given.scale]:
            break
        begun = time.monotonic()
        case = torture(number, given.seed, config, place, expected, timelines)
        cases.append({**asdict(case), "seconds": time.monotonic() - begun})
        with kept.open("a") as file:
            file.write(f"{json.dumps(cases[-1])}\n")
        seconds += cases[-1]["seconds"]
        number += 1
    rows = rows_of(cases)
    ends = sum(not case["failure"] for case in cases)
    print(f"{ends} of {len(cases)} runs ended bit-identical.")
    enough = sum(row.cases for row in rows) >= KILLS[given.scale]
    more = {"runs": len(cases), "identical_runs": ends}
    end_part(given.out, "kills", rows, seconds, ok=enough, **more)


def references(config: Path, place: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Timeline]]:
    """Run every strategy undisturbed; return what each leaves, and what each kind reports."""
    from interrupted import outcome_of

    expected, timelines = {}, {}
    for kind in KINDS:
        out = place / "undisturbed" / kind
        shutil.rmtree(out, ignore_errors=True)
        reports, moments = Reports(), [("start", time.monotonic())]
        child = start(*first_command(kind, config, out, UPKEEP[1]), watch=reports.watch)
        while (told := child.ended()) is None:
            moments += [(phase, time.monotonic()) for phase in reports.listen(0.01)]
        reports.close()
        if told.code:
            raise RuntimeError(f"the undisturbed {kind} failed:\n{told.err}")
        if kind != "compare":
            expected[kind] = comparable(outcome_of(out / kind / "seed0"))
        moments.append(("end", time.monotonic()))
        spent: dict[str, list[float]] = defaultdict(list)
        for (phase, begun), (_, ended) in pairwise(moments):
            spent[phase].append(ended - begun)
        known = {phase: times for phase, times in spent.items() if phase in PHASES}
        timelines[kind] = Timeline(
            {phase: len(times) for phase, times in known.items()},
            {phase: sum(times) / len(times) for phase, times in known.items()},
        )
    return expected, timelines


def torture(
    number: int,
    seed: int,
    config: Path,
    place: Path,
    expected: dict[str, dict[str, Any]],
    timelines: dict[str, Timeline],
) -> Case:
    """Kill a run up to four times, let it end, and look at what it leaves."""
    draw = random.Random(f"{seed} {number}")
    case = Case(number, KINDS[number % len(KINDS)])
    out = place / f"case-{number}"
    shutil.rmtree(out, ignore_errors=True)
    begin = first_command(case.kind, config, out, draw.choice(UPKEEP))
    command = begin
    try:
        for _ in range(draw.randint(1, 4)):
            told = killed(command, timelines[case.kind], draw, case)
            if told.code == 0:
                break
            command = next_command(told, begin, out, case.kind, draw)
            look_through(out)
        else:
            told = tell(*command)
        check(told.code == 0, f"ended with code {told.code}: {told.err[-400:]}")
        look_at_end(out, case.kind, expected)
    except (AssertionError, ValueError, OSError) as error:
        case.failure = f"case {number} ({case.kind}, {case.kills}): {error}"
    else:
        shutil.rmtree(out)
    return case


def first_command(kind: str, config: Path, out: Path, upkeep: str) -> list[str]:
    what = ["compare", str(config)] if kind == "compare" else ["run", str(config)]
    more = [] if kind == "compare" else ["--strategy", kind]
    return [*what, *more, "--out", str(out), "--set", upkeep]


def killed(command: Sequence[str], timeline: Timeline, draw: random.Random, case: Case) -> Told:
    """Start a command and kill it in a random phase; it may end before."""
    # Every process starts, and few get as far as the others: so these are drawn more often.
    phase = draw.choice([*sorted(timeline.steps), *sorted({*timeline.steps} - {"start"})])
    wanted = draw.randint(1, timeline.steps[phase])
    delay = draw.uniform(0.0, timeline.seconds[phase])
    number = draw.choice(SIGNALS)
    reports = Reports()
    child = start(*command, watch=reports.watch)
    seen = int(phase == "start")
    while (told := child.ended()) is None and seen < wanted:
        seen += reports.listen(0.002).count(phase)
    reports.close()
    if told is not None:
        return told
    time.sleep(delay)
    child.send(number)
    told = child.wait()
    if told.code != 0:
        case.kills.append((signal.Signals(number).name, phase))
        # Before the command line's first line nobody can answer a signal: the process dies of it,
        # which is the same exit code to a shell.
        answers = {128 + number, -number} if phase == "start" else {128 + number}
        if number != signal.SIGKILL:
            check(told.code in answers, f"{number} ended with {told.code}: {told.err[-400:]}")
    return told


def next_command(
    told: Told, begin: list[str], out: Path, kind: str, draw: random.Random
) -> list[str]:
    """Return the command that goes on: what the process said, or what a user would type."""
    if said := re.search(r"go on with: cl-graft (.*)$", told.err, re.MULTILINE):
        return shlex.split(said[1])
    if kind == "compare":
        resume = ["compare", "--resume", str(out)]
        return resume if (out / "config.json").exists() and draw.random() < 0.5 else begin
    folder = out / kind / "seed0"
    if not (folder / "config.json").exists():
        return begin
    return ["run", "--resume", str(draw.choice([out, folder]))]


def look_through(out: Path) -> None:
    """Read every file that a killed process left."""
    from cl_graft.storage import load_bank
    from cl_graft.storage.files import is_partial, unpack

    formats = {"cache": "cl-graft-cache", "checkpoints": "cl-graft-checkpoint"}
    for path in sorted(out.rglob("*")):
        if not path.is_file() or is_partial(path):
            continue
        try:
            if path.parent.name in formats:
                unpack(path.read_bytes(), format=formats[path.parent.name], name=path.name)
            elif path.name == "bank.json":
                load_bank(path.parent)
            elif path.suffix == ".json":
                json.loads(path.read_text())
        except ValueError as error:
            raise AssertionError(f"{path} cannot be read: {error}") from None


def look_at_end(out: Path, kind: str, expected: dict[str, dict[str, Any]]) -> None:
    """Compare what a run left with what an undisturbed one leaves."""
    from interrupted import outcome_of

    for strategy in expected if kind == "compare" else (kind,):
        found = comparable(outcome_of(out / strategy / "seed0"))
        other = [part for part, value in expected[strategy].items() if found[part] != value]
        check(not other, f"{strategy}: other {', '.join(other)} than undisturbed")


def comparable(outcome: dict[str, Any]) -> dict[str, Any]:
    """Leave out the command, which names the output folder."""
    del outcome["results"]["command"]
    return outcome


def rows_of(cases: Sequence[dict[str, Any]]) -> list[Row]:
    """Return a row for every phase, and for signals that a process can answer."""
    kinds: dict[str, Callable[[str, str], bool]] = {
        f"SIGKILL in {words}": lambda number, phase, own=name: number == "SIGKILL" and phase == own
        for name, words in PHASES.items()
    }
    kinds["SIGTERM anywhere: saved, code 143"] = lambda number, _: number == "SIGTERM"
    kinds["SIGINT anywhere: saved, code 130"] = lambda number, _: number == "SIGINT"
    rows = []
    for what, belongs in kinds.items():
        own = [(c, sum(belongs(*kill) for kill in c["kills"])) for c in cases]
        count = sum(kills for _, kills in own)
        failures = tuple(c["failure"] for c, kills in own if kills and c["failure"])
        survived = sum(kills for c, kills in own if not c["failure"])
        if count:
            rows.append(Row(what, count, survived, "bit-identical", failures))
    return rows


def read_cases(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(ok: bool, what: str) -> None:
    if not ok:
        raise AssertionError(what)


if __name__ == "__main__":
    main()
