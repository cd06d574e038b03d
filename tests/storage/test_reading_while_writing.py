"""A bank that another process appends to is read as it was or as it is, never half."""

from __future__ import annotations

import os
import signal
import time

from stored_banks import LAYOUT, bank_of, entry_of, same_bank, sample

from cl_graft.errors import ForeignFile
from cl_graft.grafts.bank import GraftBank
from cl_graft.storage import append_entry, load_bank

ENTRIES = 40


def growing() -> list[GraftBank]:
    """Banks, each one entry longer than the one before."""
    whole = bank_of(tasks=1)
    banks = [GraftBank(whole.layout, whole.base).append(whole.entries[0])]
    while len(banks) < ENTRIES:
        last = banks[-1]
        place = sample(LAYOUT, 20, 100 + len(banks))
        banks.append(last.append(entry_of(last, place, task=f"task{len(banks)}")))
    return banks


def test_a_reader_sees_the_old_or_the_new_bank(tmp_path):
    folder, expected = tmp_path / "bank", growing()
    writer = os.fork()
    if writer == 0:
        try:
            for bank in expected:
                append_entry(bank, folder)
            os._exit(0)
        finally:
            os._exit(1)
    code: int | None = None
    seen: list[int] = []
    try:
        while code is None or not seen or seen[-1] < ENTRIES:
            if code is None:
                ended, status = os.waitpid(writer, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if ended else None
            assert code in (None, 0)
            if not folder.exists():
                time.sleep(0.01)
                continue
            try:
                bank = load_bank(folder)
            except ForeignFile:  # before the first entry
                assert not seen
                continue
            seen.append(len(bank))
            assert same_bank(bank, expected[len(bank) - 1])
    finally:
        if code is None:
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
    assert seen == sorted(seen)
    assert len(set(seen)) > 3  # they did run side by side
