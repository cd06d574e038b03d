"""OpenMP's threads sleep soon when they wait, and memory that a step frees stays for the next."""

import importlib
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


PROGRAM = """
import resource
import torch
from cl_graft.runtime.native_libraries import keep_freed_memory

def step():
    tensors = [torch.ones(500_000) for _ in range(40)]
    del tensors

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def count():
    step()
    step()
    before = faults()
    for _ in range(5):
        step()
    return faults() - before

given_back = count()
assert keep_freed_memory()
print(count(), given_back)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a matter of glibc")
def test_steps_do_not_ask_the_system_for_the_same_pages_again() -> None:
    # At its fixed threshold glibc gives every tensor back; left to itself, it does so only where no
    # small block happens to lie above them.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    kept, given_back = map(int, ran.stdout.split())
    assert kept * 20 < given_back


@pytest.mark.parametrize(("name", "kept"), [("MALLOC_MMAP_THRESHOLD_", 0), ("UNRELATED", 1)])
def test_the_command_line_leaves_an_allocator_alone_that_the_environment_sets_up(
    name: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    for set_up in [known for known in os.environ if known.startswith("MALLOC_")]:
        monkeypatch.delenv(set_up)
    monkeypatch.setenv(name, "65536")
    module = importlib.import_module("cl_graft.cli.app")
    monkeypatch.setattr(module, "keep_freed_memory", lambda: calls.append(None))
    monkeypatch.setattr(sys, "argv", ["cl-graft", "--help"])
    with pytest.raises(SystemExit):
        module.main()
    assert len(calls) == kept
