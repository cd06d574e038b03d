"""`cl-graft WORDS` with trouble at a step of a phase of the second task.

    troubled.py TROUBLE PHASE STEP WORDS...

TROUBLE is `nan` (every model answers NaN from then on), `memory` (a model needs more than the
process may have) or `disk` (which takes no more).
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections import Counter
from pathlib import Path

import torch

from cl_graft.cli import main
from cl_graft.models import TaskModel
from cl_graft.strategies.loop.progress_reporter import ProgressReporter

_forward, _phase = TaskModel.forward, ProgressReporter.phase
_name, _where, _step, *_words = sys.argv[1:]
_seen: Counter[tuple[str, int]] = Counter()


def _poisoned(self: TaskModel, *arguments: object, **more: object) -> torch.Tensor:
    return _forward(self, *arguments, **more) * float("nan")  # type: ignore[arg-type]


def _hungry(self: TaskModel, *arguments: object, **more: object) -> torch.Tensor:
    torch.empty(2**28, dtype=torch.uint8)
    return _forward(self, *arguments, **more)  # type: ignore[arg-type]


def _full(fd: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cause() -> None:
    if _name == "nan":
        TaskModel.forward = _poisoned
    elif _name == "disk":
        os.fsync = _full
    else:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + 2**25
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        TaskModel.forward = _hungry


def _watched(self: ProgressReporter, phase: str, step: int, steps: int) -> None:
    _phase(self, phase, step, steps)
    _seen[phase, step] += 1
    if (phase, step) == (_where, int(_step)) and _seen[phase, step] == 2:
        _cause()


ProgressReporter.phase = _watched
sys.argv = ["cl-graft", *_words]
main()
