"""Runs of known memory, in a module that a fresh process can import."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

MIB = 2**20


def touched(mebibytes: int) -> torch.Tensor:
    return torch.ones(mebibytes * MIB // 4)


def one_after_the_other(pieces: int) -> Callable[[], int]:
    kept = touched(32)
    del kept

    def run() -> int:
        for _ in range(pieces):
            touched(48)
        return pieces

    return run


def side_by_side(pieces: int) -> Callable[[], int]:
    return lambda: len([touched(48) for _ in range(pieces)])


def failing() -> Callable[[], None]:
    raise ValueError("no such model")


def noting(name: str, notes: Path) -> Callable[[], None]:
    """Return what notes down its name, its process and torch's threads there."""

    def run() -> None:
        with notes.open("a") as file:
            file.write(f"{name} {os.getpid()} {torch.get_num_threads()}\n")

    return run
