"""Torture, part `files`: mutated and bit-flipped files through the loaders.

    python tests/stress/torture_files.py --scale smoke     # seconds
    python tests/stress/torture_files.py --scale full      # 200,000 mutated files and every bit

Mutated graft and bank files, blind and with knowledge of the structure, of every version of the
format: each must be refused with an error of the package, or be the original. Files whose checksums
were made to fit again may hold something else, but never crash a loader. Every bit of the files of
a small bank, of a graft, of results and of a small base checkpoint is flipped: each flip must be
noticed. All of it under a limit of address space, and each case under a limit of time.

A case is a function of the seed and its number: `--only ROW --number N` repeats one. Chunks that
are finished are kept in OUT/files/ and not done again by a later start.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from file_cases import (
    Case,
    flips,
    mutated_banks,
    mutated_grafts,
    resealed,
    small_bank,
    small_graft,
)
from torture_report import Row, end_part, options

from cl_graft.errors import BankError, InputError
from cl_graft.storage import save_bank, save_graft

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "storage" / "fixtures"
SCALES: dict[str, dict[str, float]] = {
    "smoke": {"graft": 600, "bank": 300, "resealed": 300, "flips": 0.02, "sampled": 100, "load": 4},
    "full": {
        "graft": 140_000, "bank": 80_000, "resealed": 40_000, "flips": 1.0, "sampled": 20_000,
        "load": 200,
    },
}  # fmt: skip
CHUNK = 5_000
MEMORY = 2**28
"""Bytes of address space that loading may take on top of what the process has."""
SECONDS = 5.0
"""A single case may take; the files have a few kilobytes."""


@dataclass
class Outcome:
    """What became of some cases."""

    cases: int = 0
    refused: int = 0
    same: int = 0
    other: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, more: Outcome) -> None:
        for name in ("cases", "refused", "same", "other", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.slowest = max(self.slowest, more.slowest)
        for name, count in more.errors.items():
            self.errors[name] = self.errors.get(name, 0) + count
        self.failures += more.failures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", metavar="ROW", help="a row's short name")
    parser.add_argument("--number", type=int, help="one case of that row, its error in full")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    kept = asked.out / "files" / f"{asked.scale}-{asked.seed}-{_state()}"
    done: list[tuple[Torture, Outcome]] = []
    with tempfile.TemporaryDirectory(dir=_fast()) as folder:
        for row in rows_of(Path(folder), asked.seed, SCALES[asked.scale]):
            if asked.only not in (None, row.name):
                continue
            if asked.number is not None:
                print(row.case(asked.number))
                return
            done.append((row, carry_out(row, kept)))
            if asked.only:
                break
    told = [
        Row(
            what=row.what,
            cases=outcome.cases,
            survived=outcome.cases - len(outcome.failures),
            outcome=said(outcome),
            failures=tuple(outcome.failures[:20]),
        )
        for row, outcome in done
    ]
    more = {
        row.name: {"errors": outcome.errors, "slowest": outcome.slowest, "seconds": outcome.seconds}
        for row, outcome in done
    }
    seconds = sum(outcome.seconds for _, outcome in done)
    end_part(asked.out, "files", told, seconds, scale=asked.scale, seed=asked.seed, details=more)


@dataclass(frozen=True)
class Torture:
    """One row of the table.

    Attributes:
        name: Its short name.
        what: Its name for people.
        cases: How many.
        case: Does one.
        free: Whether a case may load something else than the original: its checksums were made
            to fit.
        bound: Whether the limit of address space holds (not where a model is loaded).
    """

    name: str
    what: str
    cases: int
    case: Case
    free: bool = False
    bound: bool = True


def rows_of(folder: Path, seed: int, scale: dict[str, float]) -> Iterator[Torture]:
    """Make the files that are mutated, and yield the rows."""
    grafts = [FIXTURES / f"version{v}" / "graft.safetensors" for v in (1, 2)]
    banks = [FIXTURES / f"version{v}" / "bank" for v in (1, 2)]
    graft, bank = folder / "graft.safetensors", folder / "bank"
    save_graft(small_graft(), graft)
    save_bank(small_bank(), bank)
    grafts.append(graft)
    banks.append(bank)
    work = folder / "work"
    yield Torture(
        "graft", "mutated graft files", int(scale["graft"]), mutated_grafts(grafts, work, seed)
    )
    yield Torture(
        "bank", "mutated bank files", int(scale["bank"]), mutated_banks(banks, work, seed)
    )
    yield Torture(
        "resealed",
        "mutated files whose checksums were made to fit",
        int(scale["resealed"]),
        resealed(graft, bank, work, seed),
        free=True,
    )
    for name, what, place in (
        ("graft flips", "every single-bit flip of a graft file", graft),
        ("bank flips", "every single-bit flip of a small bank's files", bank),
        ("bank 1 flips", "every single-bit flip of a bank of format version 1", banks[0]),
    ):
        # Version 1 hashed what a file means: an escape's upper-case digit goes unnoticed there.
        count, case = flips(place, work, scale["flips"], seed, by_content=place == banks[0])
        yield Torture(name, what, count, case)
    from run_file_cases import flips_of_a_run  # not before: transformers takes address space

    for row in flips_of_a_run(
        work / "run",
        seed=seed,
        share=scale["flips"],
        sampled=int(scale["sampled"]),
        verified=int(scale["load"]),
    ):
        yield Torture(row.name, row.what, row.count, row.case, bound=False)


def carry_out(row: Torture, kept: Path) -> Outcome:
    """Do the cases of a row, chunk by chunk; a chunk that was done before is read."""
    whole = Outcome()
    for first in range(0, row.cases, CHUNK):
        path = kept / f"{row.name.replace(' ', '-')}-{first}.json"
        if path.is_file():
            whole.add(Outcome(**json.loads(path.read_text())))
            continue
        with limited(row.bound):
            part = attempt(row, range(first, min(row.cases, first + CHUNK)))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(vars(part)))
        partial.replace(path)
        whole.add(part)
        print(f"{row.what}: {whole.cases}/{row.cases}", file=sys.stderr)
    return whole


def attempt(row: Torture, numbers: range) -> Outcome:
    """Do some cases; whatever is neither a refusal nor the original is a failure."""
    done = Outcome()
    for number in numbers:
        started = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, SECONDS if row.bound else 20 * SECONDS)
        error = ""
        try:
            found = row.case(number)
        except (BankError, InputError) as refusal:
            found, error = "refused", type(refusal).__name__
        except BaseException as crash:
            if isinstance(crash, KeyboardInterrupt):
                raise
            found, error = "crashed", type(crash).__name__
            done.failures.append(f"{row.name} {number}: {type(crash).__name__}: {crash}"[:300])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.perf_counter() - started
        done.cases += 1
        done.seconds += took
        done.slowest = max(done.slowest, took)
        done.refused += found == "refused"
        done.same += found == "same"
        done.other += found == "other"
        if error:
            done.errors[error] = done.errors.get(error, 0) + 1
        if found == "other" and not row.free:
            done.failures.append(f"{row.name} {number}: accepted, and is not the original")
    return done


def said(outcome: Outcome) -> str:
    parts = [f"{outcome.refused:,} refused"]
    parts += [f"{outcome.same:,} equal to the original"] if outcome.same else []
    parts += [f"{outcome.other:,} read as what they say"] if outcome.other else []
    return f"{', '.join(parts)}; slowest {1000 * outcome.slowest:.0f} ms"


@contextmanager
def limited(bound: bool) -> Iterator[None]:
    """Raise MemoryError or TimeoutError inside the block where a case takes too much."""

    def stop(*_: object) -> None:
        raise TimeoutError("hangs")

    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    if bound:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def _fast() -> str | None:
    """Return a folder in memory, if the system has one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _state() -> str:
    """Return a hash of what decides the outcomes: another loader is tested anew."""
    digest = hashlib.sha256()
    beside = ("mutations", "file_cases", "run_file_cases")
    here = [Path(__file__), *(Path(__file__).with_name(f"{name}.py") for name in beside)]
    for path in [*sorted((ROOT / "cl_graft" / "storage").glob("*.py")), *here]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    main()
