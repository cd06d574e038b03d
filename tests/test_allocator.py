"""Memory that a step frees is there for the next one."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from cl_graft.allocator import keep_freed_memory

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
