"""Cases of torture's part on files: flipped bits in results and in the base's checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from file_cases import Bit, Case, all_bits, files_of, filled, flipped
from tiny_checkpoint import QUICK, tiny_checkpoint

from cl_graft.banks.file_checks import check_checkpoint, check_files
from cl_graft.banks.verify import verify
from cl_graft.errors import InputError
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.lab.results.run_results import read_result
from cl_graft.settings import config_from, to_nested
from cl_graft.settings.bank_metadata import checkpoint_files
from cl_graft.settings.run_folder import read_config_file, read_hashes

__all__ = ["Flips", "flips_of_a_run"]

_SMALL = 2**13
"""Files of a checkpoint below this size have every bit flipped."""


@dataclass(frozen=True)
class Flips:
    """Flips of one kind: a short name, a name for people, how many, and the case."""

    name: str
    what: str
    count: int
    case: Case


def flips_of_a_run(
    folder: Path, *, seed: int, share: float, sampled: int, verified: int
) -> list[Flips]:
    """Learn two tasks with a tiny checkpoint, and say what is flipped.

    Args:
        folder: An empty place.
        seed: Of the samples.
        share: Of the bits of small files.
        sampled: Bits of the checkpoint's large files.
        verified: Bits of these that the whole of `verify` is to notice.
    """
    model = tiny_checkpoint(folder)
    config = config_from(
        to_nested({**QUICK, "model.name": str(model), "stream.tasks": ["sentiment", "topic"]})
    )
    run(config, strategy="grafting", seed=0, out=folder / "out")
    original = run_folder(folder / "out", "grafting", 0)
    results = {p.name: p.read_bytes() for p in sorted(original.iterdir()) if p.is_file()}
    base = files_of(model)
    small = {name: data for name, data in base.items() if len(data) < _SMALL}
    large = {name: data for name, data in base.items() if len(data) >= _SMALL}
    rng = random.Random(f"base {seed}")
    of_results = all_bits(results, share=share, seed=f"results {seed}")
    of_base = [*all_bits(small, share=share, seed=f"small {seed}"), *_some(large, sampled, rng)]
    through_verify = _some(large, verified, rng)
    return [
        Flips(
            "results flips",
            "every single-bit flip of results.json, config.json and the tables of a run",
            len(of_results),
            _result_flips(results, of_results, folder / "results"),
        ),
        Flips(
            "base flips",
            "single-bit flips of a base checkpoint (all of its small files, else sampled)",
            len(of_base),
            _base_flips(base, of_base, folder / "base"),
        ),
        Flips(
            "verify flips",
            "single-bit flips of the base's weights and tokenizer, through the whole of verify",
            len(through_verify),
            _verify_flips(base, through_verify, model, original),
        ),
    ]


def _result_flips(files: dict[str, bytes], bits: Sequence[Bit], work: Path) -> Case:
    def check() -> list[str]:
        result = read_result(work)
        read_config_file(work)
        checks = check_files(work, read_hashes(work) or {}, complete=result.complete)
        return [check.what for check in checks if check.outcome != "same"]

    return _flips(files, bits, work, check)


def _base_flips(files: dict[str, bytes], bits: Sequence[Bit], work: Path) -> Case:
    @cache
    def recorded() -> dict[str, Any]:
        return {"files": checkpoint_files(work)}

    def check() -> list[str]:
        checks = check_checkpoint(recorded(), work)
        return [check.what for check in checks if check.outcome != "same"]

    return _flips(files, bits, work, check)


def _verify_flips(files: dict[str, bytes], bits: Sequence[Bit], model: Path, run: Path) -> Case:
    return _flips(files, bits, model, lambda: [] if verify(run).ok else ["verify"])


def _flips(
    files: dict[str, bytes], bits: Sequence[Bit], work: Path, check: Callable[[], list[str]]
) -> Case:
    """Return the case that flips a bit and checks; what a check finds counts as a refusal."""

    @cache
    def ready() -> bool:
        filled(work, files)
        return not check()

    def case(number: int) -> str:
        if not ready():
            raise AssertionError("the original itself does not pass")
        name, bit = bits[number]
        (work / name).write_bytes(flipped(files[name], bit))
        try:
            if found := check():
                raise InputError("; ".join(found))
            return "other"  # it was not noticed
        finally:
            (work / name).write_bytes(files[name])

    return case


def _some(files: dict[str, bytes], count: int, rng: random.Random) -> list[Bit]:
    names = rng.choices(list(files), k=count)
    return [(name, rng.randrange(8 * len(files[name]))) for name in names]
