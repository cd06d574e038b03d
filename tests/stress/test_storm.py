"""A storm: writers that are killed at any time, others that meet them, and readers beside them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from tiny_runs import tiny_run

from cl_graft.banks.verify import verify
from cl_graft.storage import load_bank

STORMS = int(os.environ.get("STORMS", "4"))
"""Times that two writers begin at once, and one of them is killed."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_bank_is_whole_whatever_writers_are_killed_and_whoever_reads(tiny_bert, tmp_path):
    few = {"shots": 4, "steps": 1, "max_test": 4, "mask_steps": 1}
    bank = tiny_run(tmp_path, tiny_bert, ("scope", "topic"), **few) / "bank"
    before = [entry.weights_sha256 for entry in load_bank(bank).entries]
    seen: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            entries = load_bank(bank).entries  # raises if a byte is not what was recorded
            assert [entry.weights_sha256 for entry in entries][:2] == before
            seen.append(len(entries))

    def add(task: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "cl_graft.cli", "add", str(bank), "--task", task, "-q"]
        return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    reader = threading.Thread(target=read)
    reader.start()
    draw = random.Random(0)
    try:
        for storm in range(STORMS):
            writers = [add("entailment"), add("banking")]
            if storm < STORMS - 1:
                time.sleep(draw.uniform(3, 12))
                draw.choice(writers).send_signal(signal.SIGKILL)
            for writer in writers:
                said = writer.communicate(timeout=200)[1]
                refused = writer.returncode == 2 and "is in use" in said
                assert refused or writer.returncode in (0, -signal.SIGKILL), said
        for task in ("entailment", "banking"):
            with add(task) as writer:
                assert writer.communicate(timeout=200)[1] == ""
            assert writer.returncode == 0
    finally:
        over.set()
        reader.join()
    assert sorted(entry.task for entry in load_bank(bank).entries) == [
        *("banking", "entailment", "scope", "topic")
    ]
    assert verify(bank).ok
    assert max(seen) > 2
    assert not [path for path in bank.rglob("*") if path.name.endswith(".tmp")]
