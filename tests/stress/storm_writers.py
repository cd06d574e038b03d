"""Two writers, dead owners of locks, clocks that were set, and readers beside a writer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
from storm_cases import Cases, Place, bank_files, readable
from torture_children import Child, start, tell
from torture_report import Row

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.storage import LOCK, OWNER, append_entry, load_bank, only_writer


def two_writers(place: Place, *, rounds: int) -> Row:
    """Start a second process while the first one writes."""
    cases = Cases("two writers on one folder", place)
    for number in range(rounds):
        out = place.fresh(f"writers{number}")
        folder = out / "grafting" / "seed0"
        for name, command, held in (
            ("run beside run", place.run(out), folder),
            ("compare beside compare", ("compare", place.config, "--out", out), out),
        ):
            shutil.rmtree(out, ignore_errors=True)
            first = _paused(command, held)
            second = tell(*command)
            cases.check(
                name,
                second,
                stopped=second.code == 2 and "is in use by process" in second.err,
                named_its_owner=f"process {first.pid} on" in second.err,
                finished_the_first=_resumed(first) == 0,
                the_same_bits=bank_files(folder / "bank") == place.undisturbed(),
                gave_back=not (held / LOCK).exists(),
            )
        add = ("add", folder / "bank", "--task", "answered")
        first = _paused(add, folder / "bank")
        second = tell(*add)
        cases.check(
            "add beside add",
            second,
            stopped=second.code == 2 and "is in use by process" in second.err,
            finished_the_first=_resumed(first) == 0,
            one_entry_more=readable(folder / "bank", 3),
        )
    return cases.row("the second stops with exit code 2, the first ends as if alone")


def dead_owners(place: Place, *, rounds: int) -> Row:
    """Kill the owner of a lock, or let another process have its number, and start again."""
    cases = Cases("lock of a process that is gone", place)
    for number in range(rounds):
        out = place.fresh(f"dead{number}")
        first = _paused(("compare", place.config, "--out", out), out)
        first.send(signal.SIGKILL)
        first.wait()
        left = (out / LOCK).is_file()
        if number % 2:  # its number is that of a living process by now
            owner = json.loads((out / OWNER).read_text())
            (out / OWNER).write_text(json.dumps({**owner, "pid": os.getpid()}))
        again = tell("compare", place.config, "--out", out)
        cases.told(next((line for line in again.err.splitlines() if "taking over" in line), ""))
        cases.check(
            "reused number" if number % 2 else "SIGKILL",
            again,
            left_a_lock=left,
            taken_over="taking over from process" in again.err,
            finished=again.code == 0,
            the_same_bits=bank_files(out / "grafting" / "seed0" / "bank") == place.undisturbed(),
        )
    return cases.row("taken over, and the same command ends as if undisturbed")


def clock_set_back(place: Place, *, rounds: int) -> Row:
    """Set the clock of a process back or on while it runs, and find a lock from the future."""
    cases = Cases("clock set back or on while running", place)
    for number in range(rounds):
        out = place.fresh(f"clock{number}")
        hours = (-24, 24, -24 * 365 * 30)[number % 3]
        told = tell(*place.run(out), watch=_set_clock(hours, step=2 + number))
        bank = out / "grafting" / "seed0" / "bank"
        cases.check(
            f"{hours} hours",
            finished=told.code == 0,
            the_same_bits=bank_files(bank) == place.undisturbed(),
        )
        with only_writer(bank):
            owner = json.loads((bank / OWNER).read_text())
        owner |= {"since": time.time() + 1e6, "pid": 2**22 - 7}
        (bank / OWNER).write_text(json.dumps(owner))
        told = tell("add", bank, "--task", "answered")
        cases.check("a lock from the future", taken_over=told.code == 0 and readable(bank, 3))
    return cases.row("nothing depends on it: the same bits")


def readers(place: Place, *, entries: int) -> Row:
    """Read a bank as fast as it goes while another process appends entry after entry."""
    cases = Cases("a bank read while another process appends to it", place)
    folder = place.fresh("readers")
    banks = _growing(entries)
    writer = os.fork()
    if not writer:
        try:
            for bank in banks:
                append_entry(bank, folder)
        finally:
            os._exit(len(load_bank(folder)) != entries)
    before = 0
    while before < entries:
        if not (folder / "bank.json").exists():
            continue
        try:
            now = load_bank(folder)
            whole = all(
                one.owned.same_bits(other.owned)
                for one, other in zip(now.entries, banks[-1].entries, strict=False)
            )
            cases.check(f"read {cases.count}", whole=whole, not_shorter=len(now) >= before)
            before = len(now)
        except Exception as error:  # whatever it is, it is no whole bank
            cases.check(f"read {cases.count}: {type(error).__name__}: {error}", readable=False)
            break
    ended = os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1])
    cases.check("the writer", finished=ended == 0)
    return cases.row(f"the old or the new bank, {entries} entries appended meanwhile")


def _growing(entries: int) -> list[GraftBank]:
    layout = Layout(("weight",), ((entries, 1000),))
    banks = [GraftBank(layout, BaseIdentity("0" * 64, "toy", "float32"))]
    for number in range(entries):
        region = Region.of(layout, range(1000 * number, 1000 * number + 500))
        values = torch.full((500,), float(number))
        entry = Entry(f"task{number}", number, Graft(region, values), Region.empty(layout))
        banks.append(banks[-1].append(entry))
    return banks[1:]


def _paused(command: tuple[object, ...], held: Path) -> Child:
    """Start a command and stop it (SIGSTOP) once it holds a folder and has trained a step."""

    paused = False

    def pause(phase: str, step: int) -> None:
        nonlocal paused
        if phase == "dense" and step == 2 and (held / LOCK).exists() and not paused:
            paused = True
            os.kill(os.getpid(), signal.SIGSTOP)

    child = start(*command, watch=pause)
    os.waitpid(child.pid, os.WUNTRACED)
    return child


def _resumed(child: Child) -> int:
    child.send(signal.SIGCONT)
    return child.wait().code


def _set_clock(hours: float, *, step: int) -> Callable[[str, int], None]:
    real, seen = time.time, 0

    def watch(phase: str, number: int) -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            time.time = lambda: real() + 3600 * hours

    return watch
