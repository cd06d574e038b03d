"""Tasks of a bank as LoRAs: does PEFT write the bank's tokens, task by task and in mixed batches?

    python benchmarks/lora_export.py RUN --prompts 200

RUN is a run whose tasks are answered with text and whose regions are columns or rows, such as the
one that docs/guides/share_and_export.md names. Each task is exported as a LoRA, by `peft-lora`, and
PEFT lays all of them over one base. Test rows, as many of each task, are answered greedily by the
bank, by PEFT with one adapter a batch, and by PEFT in batches whose rows belong to all tasks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from cl_graft.banks.open_bank import OpenBank, open_bank
from cl_graft.integrations import export_task
from cl_graft.kinds import find_kind
from cl_graft.kinds.text_encoding import Encoding
from cl_graft.lab.results.run_results import machine
from cl_graft.models.text_generation import TextHead, split_generated
from cl_graft.settings import config_from
from cl_graft.settings.run_files import read_config_file, select_settings
from cl_graft.settings.tasks import load_tasks

Row = tuple[int, Tensor]
"""Position of the entry of a row, and its encoded prompt, (2, L)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    opened = open_bank(given.run)
    rows = read_rows(given.run, opened, given.prompts)
    told: dict[str, Any] = {"machine": machine(torch.device("cpu")), "prompts": len(rows)}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model, told["tasks"] = lay_over(opened, Path(folder))
        apart = [rows[first : first + given.batch] for first in range(0, len(rows), given.batch)]
        apart = [
            [row for row in batch if row[0] == at] for batch in apart for at in range(len(opened))
        ]
        apart = [batch for batch in apart if batch]
        step = -(-len(rows) // len(opened))  # a batch has rows of all tasks
        order = [n for at in range(step) for n in range(at, len(rows), step)]
        mixed = [order[first : first + given.batch] for first in range(0, len(order), given.batch)]
        wanted = time_answers(
            told, "bank", lambda: join(ask_bank(opened, batch) for batch in apart)
        )
        single = time_answers(told, "PEFT", lambda: join(ask_peft(model, opened, b) for b in apart))
        answers = time_answers(
            told,
            "PEFT, mixed batches",
            lambda: join(ask_peft(model, opened, [rows[n] for n in b]) for b in mixed),
        )
    again = dict(zip(order, answers, strict=True))
    told["same"] = {
        "PEFT": sum(one == two for one, two in zip(wanted, single, strict=True)),
        "PEFT, mixed batches": sum(again[n] == tokens for n, tokens in enumerate(wanted)),
    }
    told["tokens"] = sum(map(len, wanted))
    sys.stdout.write(f"{json.dumps(told, indent=1)}\n")


def read_rows(run: Path, opened: OpenBank, prompts: int) -> list[Row]:
    """Return encoded test rows, as many of each task, in the order of the tasks."""
    config = config_from(select_settings(read_config_file(run) or {}))
    config = config.with_values({"stream.max_test": prompts})
    rows: list[Row] = []
    tasks = load_tasks(config.stream, seed=0)
    for position, task in enumerate(tasks):
        metadata = opened.bank.entries[position].metadata
        kind, share = find_kind(metadata), -(-(prompts - len(rows)) // (len(tasks) - position))
        encoding = Encoding(
            opened.loaded.tokenizer,
            opened.loaded.model.family,
            prompt=kind.find_prompt(task, "causal_lm"),
            max_length=config.stream.max_length or task.max_length,
            task=task,
        )
        encoded = kind.encode(task.test[:share], encoding).inputs
        rows += [(position, row) for row in encoded]
    return rows


def lay_over(opened: OpenBank, folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Export every task and return PEFT's model with all adapters, named by position."""
    dtype = getattr(torch, opened.bank.base.dtype)
    model: Any = AutoModelForCausalLM.from_pretrained(opened.loaded.path, dtype=dtype)
    told: list[dict[str, Any]] = []
    for position, task in enumerate(opened.tasks):
        out = folder / str(position)
        exported = export_task(opened.folder, position, format="peft-lora", out=out)
        size = exported.files["adapter_model.safetensors"]
        told.append({"task": task, "coordinates": exported.coordinates, "bytes": size})
    from peft import PeftModel  # after cl_graft, which sees to torchvision

    adapted = PeftModel.from_pretrained(model, folder / "0", adapter_name="0")
    for position in range(1, len(told)):
        adapted.load_adapter(folder / str(position), adapter_name=str(position))
    return adapted.eval(), told


def ask_bank(opened: OpenBank, batch: Sequence[Row]) -> list[list[int]]:
    """Return the tokens of the answers to rows of one entry, by the bank."""
    return split_generated(opened.logits(torch.stack([row for _, row in batch]), batch[0][0]))


def ask_peft(model: Any, opened: OpenBank, batch: Sequence[Row]) -> list[list[int]]:
    """Return the tokens of the answers to rows of any entries, by PEFT alone."""
    heads = [TextHead.of(opened.bank.entries[at].head) for at, _ in batch]
    prompts = [row[0, row[1] == 1].tolist() for _, row in batch]
    width = max(map(len, prompts))
    padding = opened.loaded.tokenizer.pad_token_id or 0
    ids = torch.tensor([[padding] * (width - len(prompt)) + prompt for prompt in prompts])
    marks = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    made = model.generate(
        input_ids=ids,
        attention_mask=marks,
        adapter_names=[str(at) for at, _ in batch],
        max_new_tokens=max(head.longest for head in heads),
        do_sample=False,
        pad_token_id=padding,
        eos_token_id=sorted({stop for head in heads for stop in head.stops.tolist()}),
    )
    answers = []
    for tokens, head in zip(made[:, width:].tolist(), heads, strict=True):
        stops = [n for n, token in enumerate(tokens) if token in head.stops.tolist()]
        answers.append(tokens[: min([head.longest, *stops])])
    return answers


def join(batches: Any) -> list[list[int]]:
    return [answer for batch in batches for answer in batch]


def time_answers(told: dict[str, Any], name: str, run: Any) -> list[list[int]]:
    started = time.perf_counter()
    answers = run()
    told.setdefault("seconds", {})[name] = round(time.perf_counter() - started, 1)
    return answers


if __name__ == "__main__":
    main()
