"""Running a script of the benchmarks or the stress suite, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from contextlib import chdir
from pathlib import Path

from warm_processes import run_warm

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "benchmarks", ROOT / "benchmarks" / "performance", ROOT / "tests" / "stress")


def run_script(
    script: str, *arguments: object, folder: Path | None = None, code: int | None = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of one of `FOLDERS` on one thread; `code` is what it must end with, None any."""
    file = next(folder / script for folder in FOLDERS if (folder / script).is_file())
    with chdir(folder or "."):
        done = run_warm(
            [str(file), *map(str, arguments)], env={**os.environ, "OMP_NUM_THREADS": "1", **env}
        )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done
