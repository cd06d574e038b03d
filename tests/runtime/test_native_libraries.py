"""OpenMP's threads sleep soon when they wait."""

import os
import subprocess
import sys

import pytest
from warm_processes import run_warm

from cl_graft.runtime.native_libraries import SPIN_COUNT

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


AT_TORCH = """
import importlib.abc, os, sys

class Seen(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT", "none"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Seen())
"""
"""Ends a program where it begins to import torch: OpenMP reads its settings only then."""


def _environment(given: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SETTINGS} | given


def _spin_count(**given: str) -> str:
    """Return the spin count that torch finds in a new process that imports the package."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{AT_TORCH}import cl_graft\nimport torch"],
        env=_environment(given),
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, str(SPIN_COUNT)),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "none"),
    ],
)
def test_the_limit_is_set_before_torch_is_loaded_unless_the_user_set_one(
    given: dict[str, str], seen: str
) -> None:
    assert _spin_count(**given) == seen


def test_nothing_is_set_where_torch_has_read_its_settings() -> None:
    code = "import os, torch, cl_graft; print(os.environ.get('GOMP_SPINCOUNT', 'none'))"
    ran = run_warm(["-c", code], env=_environment({}), imported="torch")
    assert ran.stdout.strip() == "none", ran.stderr
