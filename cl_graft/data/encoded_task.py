"""A task as tensors for one model, which names the task and the split in errors of a prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cl_graft.errors import InputError, a_or_an
from cl_graft.kinds.prompts import Family
from cl_graft.kinds.rows import EncodedRows, Row
from cl_graft.kinds.text_encoding import Encoding
from cl_graft.kinds.text_task import TextTask, name_task
from cl_graft.metrics.task_score import Scorer
from cl_graft.runtime.batching import sort_by_length, text_lengths

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


@dataclass(frozen=True, eq=False)
class EncodedTask:
    """A task as tensors for one model family.

    Attributes:
        task: The text task.
        splits: Inputs, int64 (n, 2, L), and targets, (n,) or (n, P), of ``train``, ``valid`` and
            ``test``. A row may have several inputs, the windows of a passage.
        rows: Numbers of the text task's rows in the order of `splits`, int64 (n,), by split.
        label_tokens: Every label's tokens, for prompts; None for encoders.
        cut: Number of rows that were longer than L tokens, by split.
        scorer: Score of outputs and targets, where the task's metric needs the texts.
    """

    task: TextTask
    splits: dict[str, tuple[Tensor, Tensor]]
    rows: dict[str, Tensor]
    label_tokens: tuple[tuple[int, ...], ...] | None
    cut: dict[str, int]
    scorer: Scorer | None = None

    @property
    def scored_by(self) -> str | Scorer:
        """What scores the task's outputs: its scorer, or the name of its metric."""
        return self.scorer or self.task.scored_by

    def __repr__(self) -> str:
        length = self.splits["train"][0].shape[-1]
        return f"EncodedTask({self.task!r}, {length} tokens a row)"


def encode_task(
    task: TextTask, tokenizer: Tokenizer, *, family: Family, max_length: int
) -> EncodedTask:
    """Encode the rows of a task; dev and test rows by length, the longest first."""
    kind = task.own_kind
    if family not in kind.families:
        raise InputError(
            f"task {task.name!r}: {a_or_an(kind.title)} task needs a model of the family "
            f"{' or '.join(kind.families)}, got {family}"
        )
    with name_task(task.name):
        tokens = kind.label_tokens(task, tokenizer, family=family, max_length=max_length)
    prompt = kind.find_prompt(task, family)
    encoded: dict[str, EncodedRows] = {}
    splits, numbers, first = {}, {}, 0
    texts: dict[str, Sequence[Row]] = {"train": task.train, "valid": task.dev, "test": task.test}
    for name, rows in texts.items():
        with name_task(task.name, f"{'dev' if name == 'valid' else name} rows: "):
            how = Encoding(tokenizer, family, prompt, max_length, first=first, task=task)
            encode = kind.encode_training if name == "train" else kind.encode
            made = encoded[name] = encode(rows, how)
        first += len(made.inputs)
        lengths = text_lengths(made.inputs)
        order = torch.arange(len(made.inputs))
        if name != "train" and lengths is not None:
            order = sort_by_length(lengths)
        splits[name] = made.inputs[order], made.targets[order]
        numbers[name] = made.numbers[order]
    cut = {name: made.cut for name, made in encoded.items()}
    return EncodedTask(task, splits, numbers, tokens, cut, kind.scorer(task, encoded))


def serialize_tokenizer(tokenizer: Any) -> str:
    """Return a tokenizer's serialization but truncation and padding, which its latest call set.

    Of a slow one these are its vocabulary and special tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        content = json.loads(backend.to_str())
        return json.dumps(content | {"truncation": None, "padding": None}, sort_keys=True)
    vocabulary = sorted(tokenizer.get_vocab().items())
    return repr((vocabulary, sorted(tokenizer.special_tokens_map.items())))
