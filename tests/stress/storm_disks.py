"""Full disks, read-only folders, denied folders, and limits on the size of files.

Mounts are made in a mount namespace of the torturer's own, so nothing outside sees them; where
that is not allowed, the rows that need one say so and have no cases.
"""

from __future__ import annotations

import ctypes
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

from storm_cases import Cases, Place, bank_files, readable
from torture_children import tell
from torture_report import Row


def may_mount() -> bool:
    """Tell whether this process may mount what only it sees."""
    answer = subprocess.run(
        ["unshare", "--mount", "true"], capture_output=True, check=False, timeout=20
    )
    return answer.returncode == 0


def full_at_the_start(place: Place) -> Row:
    """Start on a disk that has no room."""
    cases = Cases("disk full before the start", place)
    reference = place.fresh("room")
    tell(*place.run(reference))
    bank = reference / "grafting" / "seed0" / "bank"
    disk = _disk(place.folder / "small", "256k")
    subprocess.run(["cp", "-r", bank, disk / "bank"], check=False, capture_output=True)
    before = bank_files(disk / "bank")
    _fill(disk)
    for name, command in (
        ("run", place.run(disk / "out")),
        ("add", ("add", disk / "bank", "--task", "answered")),
    ):
        told = tell(*command)
        cases.check(
            name,
            told,
            stopped=told.code == 2 and "no space is left" in told.err,
            left_the_bank=bank_files(disk / "bank") == before,
        )
    subprocess.run(["umount", disk], check=True)
    return cases.row("refused, with bytes needed and free")


def full_later(place: Place) -> Row:
    """Fill the disk in the midst of a run, make room again, and go on."""
    cases = Cases("disk full while running", place)
    for phase, step, time in (
        ("dense", 2, 1),
        ("localize", 2, 1),
        ("train", 3, 1),
        ("evaluate", 1, 1),
        ("dense", 2, 2),
        ("train", 3, 2),
        ("evaluate", 1, 2),
    ):
        disk = _disk(place.folder / "filled", "24m")
        out = disk / "out"
        bank = out / "grafting" / "seed0" / "bank"
        told = tell(*place.run(out), watch=_at(phase, step, time, lambda disk=disk: _fill(disk)))
        entries = time - 1 + (phase == "evaluate")
        kept = readable(bank, entries)
        (disk / "ballast").unlink(missing_ok=True)
        again = tell("run", "--resume", out)
        cases.check(
            f"{phase} of task {time}",
            told,
            stopped=told.code == 2 and "no space is left there" in told.sentence,
            told_how_to_resume=f"cl-graft run --resume {out}" in told.sentence,
            kept_what_was_saved=kept,
            went_on=again.code == 0,
            the_same_bits=bank_files(bank) == place.undisturbed(),
        )
        subprocess.run(["umount", disk], check=True)
    return cases.row("stops, keeps every entry, and goes on to the same bits once there is room")


def read_only(place: Place) -> Row:
    """Write to a read-only mount, and read from it."""
    cases = Cases("read-only folder", place)
    out = place.fresh("closed")
    tell(*place.run(out))
    folder = out / "grafting" / "seed0"
    before = bank_files(folder)
    subprocess.run(["mount", "--bind", out, out], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", out], check=True)
    for name, command, code in (
        ("run", place.run(out / "more"), 2),
        ("compare", ("compare", place.config, "--out", out), 2),
        ("add", ("add", folder / "bank", "--task", "answered"), 2),
        ("inspect", ("inspect", folder / "bank"), 0),
        ("verify", ("verify", folder / "bank"), 0),
    ):
        told = tell(*command)
        said = code == 0 or "the file system is read-only" in told.err
        cases.check(name, told, ended_as_it_must=told.code == code, told_why=said)
    cases.check("afterwards", unchanged=bank_files(folder) == before)
    subprocess.run(["umount", out], check=True)
    return cases.row("refused before training; reading goes on")


def denied(place: Place) -> Row:
    """Write to a folder without permission, and with a limit on the size of files."""
    cases = Cases("folder denied, file size limited (ulimit -f)", place)
    out = place.fresh("denied")
    out.mkdir()
    out.chmod(0o555)
    told = tell(*place.run(out), first=_obey)
    cases.check(
        "a folder without the permission to write",
        told,
        stopped=told.code == 2 and "permission is denied" in told.err,
        left_nothing=not list(out.iterdir()),
    )
    for size in (0, 500, 1500, 3000, 20_000):
        out = place.fresh("limited")
        told = tell(*place.run(out), first=_limited(size))
        finished = told.code == 0
        bank = out / "grafting" / "seed0" / "bank"
        cases.check(
            f"ulimit -f {size} bytes",
            told,
            stopped=finished or (told.code == 2 and "ulimit -f" in told.err),
            left_a_whole_bank=any(readable(bank, entries) for entries in range(3)),
        )
    return cases.row("exit code 2, and what was saved is whole")


def _disk(place: Path, size: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    return place


def _fill(disk: Path) -> None:
    """Write until nothing fits any more."""
    for size in (1 << 20, 1 << 12, 1):
        try:
            with (disk / "ballast").open("ab", buffering=0) as file:
                while True:
                    file.write(b"\0" * size)
        except OSError:
            continue


def _at(
    phase: str, step: int, time: int, trouble: Callable[[], None]
) -> Callable[[str, int], None]:
    """Return what makes trouble when a step of a phase is reported for the given time."""
    seen = 0

    def watch(now: str, number: int) -> None:
        nonlocal seen
        if (now, number) == (phase, step):
            seen += 1
            if seen == time:
                trouble()

    return watch


def _obey() -> None:
    """Give up the superuser's right to pass over permissions (CAP_DAC_OVERRIDE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~2  # effective
    libc.capset(header, sets)


def _limited(size: int) -> Callable[[], None]:
    def first() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return first
