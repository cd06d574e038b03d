"""The command `demo`: a comparison on built-in tasks, and what its bank can do."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from cl_graft.cli.options import COMPARED, AsJson, Chosen, Quiet, Sets, option, with_settings
from cl_graft.cli.output import Output, redirect_prints
from cl_graft.cli.progress import Meter, duration, show_progress
from cl_graft.errors import InputError
from cl_graft.lab.commands.compare import run_comparison

if TYPE_CHECKING:
    from cl_graft.lab.results.comparison import Comparison

LATER_TASK = "entailment"
"""The built-in task that the demo adds to its bank and deletes again."""

PICTURE = "scores.png"
"""The picture of the demo, in its folder."""

_SWITCHES = 200

_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True)
class _Proof:
    """What banks were seen to do: `verify` on each, the rest on that of the first run.

    `same_bits` of all `tasks` answer with the bits with which they were learned. `added` is None if
    the bank held the task before; `untouched` are the files of earlier tasks when it was added, and
    all files are `restored` when it was deleted again.
    """

    same_bits: int
    tasks: int
    verified: bool
    verify_seconds: float
    switch_seconds: float
    added: str | None = None
    score: float = 0.0
    metric: str = "accuracy"
    add_seconds: float = 0.0
    untouched: bool = True
    forget_seconds: float = 0.0
    restored: bool = True

    @property
    def ok(self) -> bool:
        """Whether the banks did all that they promise."""
        return self.verified and self.untouched and self.restored

    def sentences(self) -> list[str]:
        """Say it in a line for each ability."""
        other = "" if self.verified else "; FILES OR ANSWERS DIFFER: cl-graft verify names them"
        lines = [
            f"verify: {self.same_bits} of {self.tasks} tasks answer with the bits with which they "
            f"were learned ({self.verify_seconds:.1f} s){other}.",
            f"switch: the loaded model changes from task to task in "
            f"{1000 * self.switch_seconds:.1f} ms.",
        ]
        if self.added is None:
            return lines
        changed = "no earlier file changed" if self.untouched else "EARLIER FILES CHANGED"
        after = "every file is as before" if self.restored else "FILES DIFFER FROM BEFORE"
        return [
            *lines,
            f"add: {self.added} was learned in {duration(self.add_seconds)} "
            f"({100 * self.score:.1f} % {self.metric}); {changed}.",
            f"forget: {self.added} was deleted in {self.forget_seconds:.1f} s; {after}.",
        ]


@with_settings(without=("stream",), more=COMPARED, defaults=False)
def demo_command(
    chosen: Chosen,
    out: Annotated[Path, option("DIR", "Where to write results and the bank.")] = Path(
        "cl-graft-demo"
    ),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Watch a small pretrained encoder learn built-in tasks and forget nothing.

    Three ways to learn the same stream of real text: [b]grafting[/b]; [b]lora[/b], an adapter of
    low rank for every task; and [b]naive[/b] fine-tuning, one task after the other. Then grafting's
    bank is verified, switched between tasks, and taught one more task, which is deleted again. The
    demo takes two to three minutes on two cores and needs neither a GPU nor a model hub.

    [b]Example[/b]: cl-graft demo --seeds 0-4 --out first
    """
    from cl_graft.lab.commands import run_tables
    from cl_graft.lab.experiments.run import run_folder
    from cl_graft.settings import load_config
    from cl_graft.settings.presets import DEMO

    output = Output(quiet, as_json)
    config = load_config(
        None, sets or (), options=chosen.values, origins=chosen.options, under=DEMO
    )
    refuse_missing_packages(config.comparison.strategies)
    comparison = run_comparison(config, out, output)
    grafting = [run for run in comparison.runs if run.strategy == "grafting"]
    folders = [run_folder(out, run.strategy, run.seed) for run in grafting]
    with redirect_prints(), show_progress(output) as progress:
        proof = _prove(folders, progress) if folders else None
    output.result(
        {**run_tables.to_json_content(comparison), "verified": proof and proof.ok, "bank": proof},
        *run_tables.show_summary(comparison.summary),
        *(proof.sentences() if proof else []),
        *run_tables.list_failures(comparison, config),
        *(_next_lines(comparison) if comparison.runs else ()),
    )
    if comparison.failed or (proof and not proof.ok):
        raise typer.Exit(1)


def refuse_missing_packages(strategies: Sequence[str]) -> None:
    """Raise an InputError that names the extra of the demo if a strategy lacks a package."""
    from cl_graft.strategies.registry import find_strategy

    reasons = {name: find_strategy(name).unavailable for name in strategies}
    if missing := [f"strategy {name!r}: {reason}" for name, reason in reasons.items() if reason]:
        raise InputError(
            f"{'; '.join(missing)}; all that the demo needs: pip install 'cl-graft[demo]'"
        )


def _prove(runs: Sequence[Path], progress: Meter) -> _Proof:
    """Verify the banks; of the first, switch between tasks, and add one to a copy and delete it."""
    from cl_graft.banks.add import add_task
    from cl_graft.banks.forget import forget
    from cl_graft.banks.open_bank import open_bank
    from cl_graft.banks.verify import verify

    reports, verify_seconds = _measure_time(
        lambda: [verify(run, progress=progress.phase) for run in runs]
    )
    entries = [entry for report in reports for entry in report.entries]
    opened = open_bank(runs[0])
    positions = range(len(opened))
    for position in positions:  # read and laid out once
        opened.carry(position)
    moves = [positions[number % len(positions)] for number in range(_SWITCHES)]
    _, switch_seconds = _measure_time(lambda: [opened.carry(position) for position in moves])
    proof = _Proof(
        same_bits=sum(entry.ok for entry in entries),
        tasks=len(entries),
        verified=all(report.ok for report in reports),
        verify_seconds=verify_seconds,
        switch_seconds=switch_seconds / _SWITCHES,
    )
    if LATER_TASK in opened.tasks:
        return proof
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "bank"
        shutil.copytree(runs[0] / "bank", copy)
        before = _read_files(copy)
        added, add_seconds = _measure_time(
            lambda: add_task(copy, LATER_TASK, progress=progress.step)
        )
        grown = _read_files(copy)
        earlier = [name for name in before if name.startswith("entries")]
        _, forget_seconds = _measure_time(lambda: forget(copy, LATER_TASK))
        return replace(
            proof,
            added=LATER_TASK,
            score=added.test,
            metric=added.metric,
            add_seconds=add_seconds,
            untouched=all(grown.get(name) == before[name] for name in earlier),
            forget_seconds=forget_seconds,
            restored=_read_files(copy) == before,
        )


def _measure_time(call: Callable[[], _Outcome]) -> tuple[_Outcome, float]:
    """Return what a call returns, and its wall time in seconds."""
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def _read_files(folder: Path) -> Mapping[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _next_lines(comparison: Comparison) -> list[str]:
    """Draw the picture, and say where everything is and how to go on with one's own data."""
    out = comparison.out
    picture = out / PICTURE
    comparison.plot().savefig(picture, dpi=150)
    return [
        f"Picture: {picture}; all results as one page: cl-graft report {quote(str(out))}",
        "Your own files: cl-graft init FOLDER, then cl-graft compare stream.yaml",
    ]
