"""Memory that a step frees is there for the next one."""

import importlib
import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from cl_graft.runtime.memory_allocator import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()

def step():
    tensors = [torch.ones(500_000) for _ in range(40)]
    del tensors

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

step()
step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


def _faults(how: str) -> int:
    # At its fixed threshold glibc gives every tensor back; left to itself, it does so only where no
    # small block happens to lie above them.
    given_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        check=True,
        env=given_back,
    )
    return int(ran.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a matter of glibc")
def test_steps_do_not_ask_the_system_for_the_same_pages_again() -> None:
    assert _faults("kept") * 20 < _faults("given back")


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
