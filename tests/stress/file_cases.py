"""Cases of torture's part on files: a mutated or bit-flipped graft or bank, through its loader.

A case is a function of a number. It says ``"same"`` if what was loaded is the original, and
``"other"`` if not; a refusal is an error of the package.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from mutations import blind, fix_index_checksum, fix_tensor_checksums, structured

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.storage import StoredGraft, load_bank, load_graft, save_bank, save_graft
from cl_graft.storage.graft_file import pack_graft

__all__ = [
    "Case",
    "all_bits",
    "files_of",
    "filled",
    "flipped",
    "flips",
    "mutated_banks",
    "mutated_grafts",
    "resealed",
    "small_bank",
    "small_graft",
]

Case = Callable[[int], str]
Bit = tuple[str, int]
"""A file's name, and the number of one of its bits."""


def mutated_grafts(paths: list[Path], work: Path, seed: int) -> Case:
    originals = [path.read_bytes() for path in paths]
    contents = [pack_graft(load_graft(path)) for path in paths]

    def case(number: int) -> str:
        rng = random.Random(f"graft {seed} {number}")
        which = number % len(originals)
        data = (structured if number // len(originals) % 2 else blind)(originals[which], rng)
        found = pack_graft(load_graft(_write(work / "graft.safetensors", data)))
        return "same" if found == contents[which] else "other"

    return case


def mutated_banks(folders: list[Path], work: Path, seed: int) -> Case:
    originals = [files_of(folder) for folder in folders]

    def case(number: int) -> str:
        rng = random.Random(f"bank {seed} {number}")
        which = number % len(originals)
        files = originals[which]
        name = rng.choice([*files, "bank.json"])  # the index as often as all else
        kind = rng.random()
        if kind < 0.45:
            data = blind(files[name], rng)
        elif kind < 0.9:
            data = structured(files[name], rng)
        else:
            data = files[rng.choice(list(files))]  # a file of the bank in the place of another
        return _with(work / f"bank{which}", files, {name: data})

    return case


def resealed(graft: Path, bank: Path, work: Path, seed: int) -> Case:
    original, files = graft.read_bytes(), files_of(bank)

    def case(number: int) -> str:
        rng = random.Random(f"resealed {seed} {number}")
        if number % 2:
            data = fix_tensor_checksums(structured(original, rng))
            loaded = load_graft(_write(work / "resealed.safetensors", data))
            again = work / "again.safetensors"
            save_graft(loaded, again)
            if not load_graft(again).graft.same_bits(loaded.graft):
                raise AssertionError("it changes when it is saved again")
            return "same" if data == original else "other"
        return _with(work / "resealed", files, _resealed_part(files, rng))

    return case


def _resealed_part(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """Mutate the index, or an entry that it then lists rightly, and make checksums fit."""
    if rng.random() < 0.5:
        return {"bank.json": fix_index_checksum(structured(files["bank.json"], rng))}
    index = json.loads(files["bank.json"])
    record = rng.choice(index["entries"])
    listed = rng.choice([record, record.get("standalone", record)])
    data = fix_tensor_checksums(structured(files[listed["file"]], rng))
    digits = hashlib.sha256(data).hexdigest()
    folder, _, name = listed["file"].partition("/")
    file = f"{folder}/{digits[:16]}{name[16:]}"
    listed |= {"file": file, "sha256": digits, "bytes": len(data)}
    return {listed["file"]: data, "bank.json": fix_index_checksum(json.dumps(index).encode())}


def flips(
    place: Path, work: Path, share: float, seed: int, *, by_content: bool = False
) -> tuple[int, Case]:
    """Return how many single-bit flips a graft or bank has (or a share of them), and their case.

    A flip that is accepted is ``"other"``, whatever came of it; with `by_content`, only where it
    changed what was loaded.
    """
    files = files_of(place) if place.is_dir() else {place.name: place.read_bytes()}
    bits = all_bits(files, share=share, seed=f"flips {seed}")

    def case(number: int) -> str:
        name, bit = bits[number]
        data = flipped(files[name], bit)
        if not place.is_dir():
            load_graft(_write(work / name, data))
            return "other"
        found = _with(work / f"flips-{place.parent.name}", files, {name: data})
        return found if by_content else "other"

    return len(bits), case


def all_bits(files: dict[str, bytes], *, share: float, seed: str) -> Sequence[Bit]:
    """Return every bit of some files, or a share of them."""
    bits = [(name, bit) for name, data in files.items() for bit in range(8 * len(data))]
    return bits if share == 1 else random.Random(seed).sample(bits, int(share * len(bits)))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


def small_bank() -> GraftBank:
    """Make a bank of two tasks of ten coordinates, with head, batch and standalone graft."""
    layout = Layout(("block.weight", "block.bias"), ((8, 12), (12,)))
    bank = GraftBank(layout, BaseIdentity("ab" * 32, "org/model", "float32", {"family": "encoder"}))
    for number, task in enumerate(("sentiment", "topic")):
        claimed = Region.of(layout, range(3 * number, 100, 10))
        free = bank.free(claimed)
        tokens = torch.arange(12).reshape(2, 1, 6)
        recorded_batch = RecordedBatch(
            torch.cat([tokens, tokens % 2 + 1], 1), torch.eye(2), {"torch": "2"}
        )
        entry = Entry(
            task,
            number,
            Graft(free, torch.arange(float(len(free))) / 8),
            claimed - free,
            head={"weight": torch.eye(2, 3)},
            standalone=Graft(claimed, torch.ones(len(claimed))) if number else None,
            weights_sha256=f"{number:064x}",
            recorded_batch=recorded_batch if number else None,
            metadata={"label_names": ["no", "yes"], "score": 0.5},
        )
        bank = bank.append(entry)
    return bank


def small_graft() -> StoredGraft:
    """Make the graft of its second task."""
    bank = small_bank()
    entry = bank.entries[1]
    return StoredGraft(entry.owned, bank.base, entry.task, entry.head, entry.metadata)


@cache
def _content(folder: Path) -> str:
    return _signature(load_bank(folder), folder.parent)


def _signature(bank: GraftBank, beside: Path) -> str:
    """Return a hash of all that a bank holds: of the files that it is saved as."""
    with tempfile.TemporaryDirectory(dir=beside) as folder:
        save_bank(bank, Path(folder) / "bank")
        digest = hashlib.sha256()
        for name, data in files_of(Path(folder) / "bank").items():
            digest.update(f"{name} {len(data)} ".encode() + data)
        return digest.hexdigest()


def _with(folder: Path, files: dict[str, bytes], changes: dict[str, bytes]) -> str:
    """Load a bank in which files are others, and say whether it is the original all the same."""
    if not folder.is_dir():
        filled(folder, files)
    original = _content(folder)
    for name, data in changes.items():
        (folder / name).write_bytes(data)
    try:
        bank = load_bank(folder)
        return "same" if _signature(bank, folder.parent) == original else "other"
    finally:
        for name in changes:
            if name in files:
                (folder / name).write_bytes(files[name])
            else:
                (folder / name).unlink()


def filled(folder: Path, files: dict[str, bytes]) -> None:
    if folder.is_dir():
        return
    for name, data in files.items():
        _write(folder / name, data)


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
