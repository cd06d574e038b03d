"""Torture, part `writes`: every command that writes, killed at calls that change a file.

    python tests/stress/torture_writes.py --scale smoke     # some calls: does it run?
    python tests/stress/torture_writes.py --scale full      # 25 of each command

A command of a tiny model runs once undisturbed, and its calls are counted (see `write_points`).
Then it is begun anew from the same files for each of them, in a process that has all imports
behind it, and killed there. What it leaves must be readable, a bank must be the old or the new one,
and the same command again must end as if it had never been disturbed, or say that all is done.
No file may be left over. Commands are spread over the cores; those that are finished are kept in
OUT/writes/ and not done again by a later start.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tiny_checkpoint import tiny_checkpoint
from torture_children import Told, prepare, start, tell
from torture_kills import SETTINGS, check, comparable, look_through
from torture_report import Row, end_part, options
from write_points import Counter, trap

from cl_graft.settings import to_nested

LIMIT = {"smoke": 12, "full": 25}
"""Most calls of a command at which it is killed, evenly spread."""
QUICK = {
    **SETTINGS, "fine_tuning.steps": 4, "grafting.mask_steps": 2, "stream.max_test": 20,
    "output.checkpoint_steps": 5,
}  # fmt: skip
STRATEGIES = ("grafting", "naive")
TIMED = {"config.json", "metrics.csv", "results.json", "summary.json", "summary.md"}
"""Files of runs that tell the time: what is in them is compared by `outcome_of`."""


@dataclass(frozen=True)
class Command:
    """A command that writes."""

    name: str
    words: tuple[str, ...]
    begin: Callable[[Path], None] | None = None
    bank: str = ""
    runs: tuple[str, ...] = ()


@dataclass
class Found:
    """What came of the kills of a command."""

    name: str
    calls: int
    killed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def learned(folder: Path, *more: str) -> None:
    """Let a run of grafting learn two tasks."""
    done(folder, *COMMANDS["run"].words, *more)


def apart(folder: Path) -> None:
    """Let a run of isolated grafting learn two tasks, and export one of them."""
    learned(folder, "--set", "grafting.mode=isolated")
    done(folder, "export", "first/grafting/seed0", "--task", "topic", "--out", "exported-hf")


def compared(folder: Path) -> None:
    """Compare two strategies."""
    done(folder, *COMMANDS["compare"].words)


RUN = "first/grafting/seed0"
BANK = f"{RUN}/bank"
COMMANDS = {
    command.name: command
    for command in (
        Command(
            "run",
            ("run", "stream.yaml", "--strategy", "grafting", "--out", "first"),
            runs=(RUN,),
        ),
        Command(
            "compare",
            ("compare", "stream.yaml", "--strategies", ",".join(STRATEGIES), "--out", "first"),
            runs=tuple(f"first/{name}/seed0" for name in STRATEGIES),
        ),
        Command("add", ("add", BANK, "--task", "entailment"), learned, bank=BANK),
        Command("forget", ("forget", BANK, "topic"), learned, bank=BANK),
        Command("forget, isolated", ("forget", BANK, "scope"), apart, bank=BANK),
        Command("forget --retrain", ("forget", BANK, "scope", "--retrain"), learned, bank=BANK),
        Command("inspect --repair", ("inspect", BANK, "--repair"), learned, bank=BANK),
        Command(
            "localize",
            ("localize", "scope", *(
                word
                for name, value in QUICK.items()
                if name != "stream.tasks"
                for word in ("--set", f"{name}={value}")
            ), "--model", "tiny_bert", "--out", "region"),
        ),
        *(
            Command(
                f"export --format {form}",
                ("export", RUN, "--task", "topic", "--format", form, "--out", "made", *rest),
                learned,
            )
            for form, *rest in (("hf",), ("peft-shira",))
        ),
        Command(
            "import",
            ("import", "exported-hf", "--bank", "new", "--task", "topic",
             "--base", "tiny_bert"),
            apart,
            bank="new",
        ),
        Command(
            "import into a bank",
            ("import", "exported-hf", "--bank", BANK, "--task", "again"),
            apart,
            bank=BANK,
        ),
        Command("report", ("report", "first", "--out", "page"), compared),
    )
}  # fmt: skip


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--commands", help="by semicolon; default: all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    prepare()
    # How two outcomes are compared is the tests' business.
    sys.path.append(str(Path(__file__).parents[1]))

    place = given.out.resolve() / "writes"
    place.mkdir(parents=True, exist_ok=True)
    model = tiny_checkpoint(place)
    asked = given.commands.split(";") if given.commands else list(COMMANDS)
    kept = {name: place / f"{_plain(name)}-{given.scale}.json" for name in asked}
    waiting = [name for name in asked if not kept[name].exists()]
    running: dict[int, str] = {}
    while waiting or running:
        while waiting and len(running) < given.workers:
            name = waiting.pop(0)
            running[apart_from(name, place, model, kept[name], LIMIT[given.scale])] = name
        pid, status = os.wait()
        name = running.pop(pid)
        if status:
            raise RuntimeError(f"{name} could not be tortured; see above")
    found = [Found(**json.loads(kept[name].read_text())) for name in asked]
    end_part(given.out, "writes", rows_of(found), sum(one.seconds for one in found))


def apart_from(name: str, place: Path, model: Path, kept: Path, limit: int) -> int:
    """Torture a command in a process of its own; return its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        found = torture(COMMANDS[name], place / _plain(name), model, limit)
        kept.write_text(json.dumps(asdict(found)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def torture(command: Command, place: Path, model: Path, limit: int) -> Found:
    """Kill a command at its calls, one after the other."""
    started = time.monotonic()
    shutil.rmtree(place, ignore_errors=True)
    before, work = place / "before", place / "work"
    before.mkdir(parents=True)
    shutil.copytree(model, before / "tiny_bert")
    (before / "stream.yaml").write_text(json.dumps(to_nested({**QUICK, "model.name": "tiny_bert"})))
    if command.begin is not None:
        # Where it will stand, as files name places.
        shutil.copytree(before, work)
        command.begin(work)
        shutil.rmtree(before)
        work.rename(before)
    calls, state = undisturbed(command, before, work)
    again = undisturbed(command, before, work)[1]
    # What differs between two undisturbed runs tells the time; only its name is compared.
    expected = {
        name: "" if Path(name).name in TIMED or same != again.get(name) else same
        for name, same in state.items()
    }
    old = bank_of(before, command)
    found = Found(command.name, len(calls))
    for number in spread(len(calls), limit):
        try:
            kill(command, number, before, work, expected, old)
        except (AssertionError, ValueError, OSError) as error:
            found.failures.append(f"call {number} ({calls[number]}): {error}")
        found.killed += 1
    found.seconds = time.monotonic() - started
    return found


def undisturbed(command: Command, before: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    """Run a command to its end; return its calls and what it leaves."""
    fresh(before, work)
    counter = Counter()
    child = start(*command.words, first=lambda: enter(work, tell=counter.tell))
    while (told := child.ended()) is None:
        counter.listen()
        time.sleep(0.005)
    if told.code:
        raise RuntimeError(f"the undisturbed {command.name} failed:\n{told.err}")
    return counter.calls(), state_of(work, command)


def kill(
    command: Command,
    number: int,
    before: Path,
    work: Path,
    expected: dict[str, str],
    old: object,
) -> None:
    """Kill a command at a call, look at what it leaves, and say the same again."""
    fresh(before, work)
    told = start(*command.words, first=lambda: enter(work, at=number)).wait()
    check(told.code in (-signal.SIGKILL, 0), f"ended with {told.code}: {told.sentence}")
    look_through(work)
    new = expected.get("bank", "")
    if command.bank:
        there = bank_of(work, command)
        check(there in (old, new), "the bank is neither the old nor the new one")
    again = tell(*command.words, first=lambda: enter(work))
    if again.code != 0:
        # What is not there is forgotten; everything else says that it is there already.
        done = "no task" if command.name.startswith("forget") else "already"
        check(done in again.sentence, f"the same again ended with {again.code}: {again.err}")
    left = state_of(work, command)
    other = sorted(
        name
        for name in left.keys() | expected.keys()
        if name not in expected or name not in left or expected[name] not in ("", left[name])
    )
    check(not other, f"after the same again ({again.sentence!r}): other {', '.join(other[:5])}")


def fresh(before: Path, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(before, work)


def enter(work: Path, **given: Any) -> None:
    """Go to the folder, in the child, and count what is done there."""
    os.chdir(work)
    if given:
        trap(work, **given)


def done(folder: Path, *words: str) -> None:
    """Run a command that must succeed."""
    told: Told = tell(*words, first=lambda: enter(folder))
    if told.code:
        raise RuntimeError(f"{' '.join(words)} failed:\n{told.err}")


def state_of(work: Path, command: Command) -> dict[str, str]:
    """Return a hash of every file, and of what a bank and runs hold beside the time."""
    from interrupted import outcome_of

    found = {
        path.relative_to(work).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(work.rglob("*"))
        if path.is_file() and "events.out." not in path.name and path.parent.name != "cache"
    }
    if command.bank:
        found["bank"] = str(bank_of(work, command))
    for run in command.runs:
        found[f"all of {run}"] = repr(comparable(outcome_of(work / run)))
    return found


def bank_of(work: Path, command: Command) -> str:
    """Return what a bank holds, wherever its files keep it; empty where there is none."""
    from cl_graft.grafts.hashing import hash_tensors
    from cl_graft.storage import load_bank

    folder = work / command.bank
    if not command.bank or not (folder / "bank.json").exists():
        return ""
    return repr(
        [
            (
                entry.task,
                entry.label,
                entry.weights_sha256,
                hash_tensors({"index": entry.owned.region.index, "values": entry.owned.values}),
                hash_tensors(dict(entry.head)),
            )
            for entry in load_bank(folder).entries
        ]
    )


def spread(calls: int, limit: int) -> Sequence[int]:
    """Return the calls at which to kill."""
    if calls <= limit:
        return range(calls)
    return sorted({round(i * (calls - 1) / (limit - 1)) for i in range(limit)})


def rows_of(found: Sequence[Found]) -> list[Row]:
    return [
        Row(
            f"SIGKILL in {one.name}",
            one.killed,
            one.killed - len(one.failures),
            f"old or new, and the same again ends it; {one.calls} calls",
            tuple(one.failures),
        )
        for one in found
    ]


def _plain(name: str) -> str:
    return "-".join(name.replace(",", "").replace("--", "").split())


if __name__ == "__main__":
    main()
