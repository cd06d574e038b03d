"""Runs of tiny checkpoints on built-in tasks, and the command line as its users meet it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warm_processes import run_warm

if TYPE_CHECKING:
    from cl_graft.lab.results.run_results import RunResult


QUICK: dict[str, Any] = {
    "shots": 8,
    "steps": 4,
    "max_length": 24,
    "max_test": 20,
    "density": 0.01,
    "mask_steps": 2,
    "mask_batch": 16,
    "evaluations": 1,
    "device": "cpu",
}
"""Settings under which a tiny checkpoint learns a task in a fraction of a second."""

_EACH = """
import contextlib, io, json, logging, sys, time
from cl_graft.cli import main
told = []
for arguments in json.load(sys.stdin):
    sys.argv = ["cl-graft", *arguments]
    logging.getLogger().handlers.clear()  # as in a process of its own
    out, err = io.StringIO(), io.StringIO()
    code, started = 0, time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    told.append([code, out.getvalue(), err.getvalue(), time.perf_counter() - started])
json.dump(told, sys.stdout)
"""


@dataclass(repr=False)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def cl_graft(*arguments: object, stdin: str = "", imports: bool = False, **variables: str) -> Told:
    """Run the command line as a process of its own.

    With `imports` it imports the package itself, as a user's does, which takes seconds. The
    variables are those of the environment beside this process's.
    """
    words = ["-m", "cl_graft.cli", *map(str, arguments)]
    answer = _process(words, stdin, variables, imports=imports)
    return Told(answer.returncode, answer.stdout, answer.stderr)


def cl_graft_started(*arguments: object) -> subprocess.Popen[str]:
    """Start the command line as a process of its own, and do not wait for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "cl_graft.cli", *map(str, arguments)],
        env=_environment({}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def cl_graft_each(commands: Sequence[Sequence[object]], *, imports: bool = False) -> list[Told]:
    """Run commands one after the other in one new process; `imports` as in `cl_graft`."""
    text = json.dumps([[str(part) for part in command] for command in commands])
    answer = _process(["-c", _EACH], text, {}, imports=imports)
    assert answer.returncode == 0, answer.stderr
    return [Told(*told) for told in json.loads(answer.stdout)]


def tiny_run(out: Path, model: Path, tasks: Sequence[str], **settings: Any) -> Path:
    """Learn tasks by grafting, in this process, and return the run's folder."""
    from configs import config_with

    from cl_graft.lab.experiments.folders import run_folder
    from cl_graft.lab.experiments.run import run

    config = config_with({**QUICK, "model": str(model), "tasks": list(tasks), **settings})
    run(config, strategy="grafting", seed=0, out=out)
    return run_folder(out, "grafting", 0)


def forgets_nothing(result: RunResult) -> bool:
    """Tell whether each task kept its score and the bits of its logits once it was learned."""
    scores = ({row[place] for row in result.R[place:]} for place in range(len(result.tasks)))
    return all(len(own) == 1 for own in scores) and all(
        len(set(hashes.values())) == 1 for hashes in result.logit_hashes.values()
    )


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file under a folder, by relative path."""
    contents = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        str(path.relative_to(folder)): hashlib.sha256(content).hexdigest()
        for path, content in contents.items()
    }


def _process(
    arguments: list[str], text: str, variables: dict[str, str], *, imports: bool
) -> subprocess.CompletedProcess[str]:
    if not imports:
        return run_warm(arguments, stdin=text, env=_environment(variables))
    return subprocess.run(
        [sys.executable, *arguments],
        input=text,
        env=_environment(variables),
        capture_output=True,
        text=True,
        check=False,
    )


def _environment(variables: dict[str, str]) -> dict[str, str]:
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    plain = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}
    return {**os.environ, **plain, **variables}


def write_pairs(path: Path) -> Path:
    """Write a task on pairs whose label names are words of the tiny checkpoints."""
    from cl_graft.data import load_task

    rows = load_task("answered", max_train=60).train
    lines = [
        {"text": row.text, "text_pair": row.text_pair, "label": ["no", "yes"][int(row.label)]}
        for row in rows
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def banks_of(families: Any, shared: dict[str, Any], request: Any, tmp_path_factory: Any) -> Any:
    """Return a function from a family's name to a bank of two tasks, learned at its first call.

    A family has the kind of its checkpoint and settings, which go before the shared ones.
    """
    made: dict[str, Path] = {}

    def bank(name: str) -> Path:
        if name not in made:
            kind, settings = families[name]
            model, out = request.getfixturevalue(f"tiny_{kind}"), tmp_path_factory.mktemp(name)
            tasks = ["scope", str(write_pairs(out / "answers.jsonl"))]
            made[name] = tiny_run(out, model, tasks, **{**shared, **settings}) / "bank"
        return made[name]

    return bank
