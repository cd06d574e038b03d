"""The bank that a `Trainer` of transformers adds entries to: its base, its tasks, its folder.

It is apart from the callback, which only says when. A task is encoded, answered and recorded by its
kind, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from cl_graft.banks.add import choose_label
from cl_graft.banks.bank_base import check_bank_model
from cl_graft.banks.bank_of_run import find_bank_folder, track_change
from cl_graft.banks.learn_entry import learn_entry
from cl_graft.banks.open_bank import open_bank
from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.grafts.graft import copy_
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Layout
from cl_graft.integrations.skill import model_tensors
from cl_graft.kinds import TextTask
from cl_graft.models import Loaded, graftable_parameters
from cl_graft.models.text_generation import ANSWER
from cl_graft.runtime.error_context import in_task
from cl_graft.runtime.progress import silent
from cl_graft.settings import config_from
from cl_graft.settings.bank_metadata import (
    base_identity,
    load_base_model,
    record_own_settings,
    restore_config,
    task_metadata,
)
from cl_graft.settings.progress_reporter import ProgressReporter
from cl_graft.settings.run_folder import lock_bank
from cl_graft.settings.tasks import check_tasks
from cl_graft.storage import load_bank
from cl_graft.storage.bank_index import holds_no_bank_yet
from cl_graft.strategies.benchmark import TextStream, text_stream

_PREFIX = "backbone."
"""Begin of a parameter's name in a `TaskModel`, beside its name in transformers."""


class TrainerBank:
    """A bank on the base of a model that a `Trainer` fine-tunes.

    Args:
        model: The model at its base, as `from_pretrained` loaded it.
        folder: The bank's folder; where it holds none, a bank begins with the first entry.
        settings: Settings of grafting that are not the bank's own, by name.
        seed: Seed of every random choice.

    Raises:
        InputError: If the model writes no text, or is not the checkpoint that it names.
        BankError: If the bank cannot be read, or belongs to another base.
    """

    def __init__(
        self, model: PreTrainedModel, folder: Path | str, *, settings: Mapping[str, Any], seed: int
    ) -> None:
        name = model.name_or_path
        if not name:
            raise InputError(
                "the model does not say which checkpoint it was loaded from, so no bank could "
                "rebuild it: save it, and load it with from_pretrained"
            )
        self._settings = {"grafting": dict(settings)}
        self._seed = seed
        self.folder = Path(folder)
        if self.folder.exists() and not holds_no_bank_yet(self.folder):
            self.folder = find_bank_folder(self.folder)
            opened = open_bank(self.folder, model=name)
            self._loaded, self._bank = opened.loaded, opened.bank
        else:
            self._loaded, self._bank = _begin(model, name, settings, seed=seed)
        if not _is_same(model, self._loaded.model.backbone):
            raise InputError(
                f"the model is not the checkpoint {name!r} that it was loaded from, the base of "
                f"the bank {self.folder}: its weights or buffers are others; make the callback "
                "with the model before any training"
            )

    def encode(self, task: TextTask) -> tuple[TextStream, list[dict[str, list[int]]]]:
        """Encode a task, and its training rows as a `Trainer` takes them.

        Raises:
            InputError: If the task is not answered with text, or does not fit the model.
        """
        if not isinstance(task, TextTask):
            raise InputError(f"expected a task, as load_task returns it, got {task!r:.80}")
        if task.kind != "text2text":
            raise InputError(
                f"task {task.name!r} is a {task.kind} task; a Trainer adds tasks that are answered "
                "with text to a bank: load it with kind='text2text'"
            )
        config = restore_config(self._bank.base, tasks=[task.name], settings=self._settings)
        check_tasks([task], self._loaded, config.stream)
        family = config.model.family
        stream = text_stream(
            [task],
            self._loaded.tokenizer,
            family=family,
            max_length=config.stream.max_length,
            first_label=choose_label(self._bank, task.name, task.label_names),
        )
        rows: list[dict[str, list[int]]] = []
        for ids, segments in stream.tasks[0].splits["train"][0]:
            answer = ids[segments == ANSWER].tolist()
            asked = ids[(segments != 0) & (segments != ANSWER)].tolist()
            if family == "causal_lm":
                labels = [*[-100] * len(asked), *answer]
                asked = [*asked, *answer]
            else:
                labels = answer
            mask = [1] * len(asked)
            rows.append({"input_ids": asked, "attention_mask": mask, "labels": labels})
        return stream, rows

    def is_base(self, model: nn.Module) -> bool:
        """Tell whether a model has the bits of the base."""
        return _is_same(model, self._loaded.model.backbone)

    def put_back_(self, model: nn.Module) -> None:
        """Write the base into a model."""
        copy_(model_tensors(model), model_tensors(self._loaded.model.backbone))

    def frozen(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters of a model that no graft can hold."""
        names = {name.removeprefix(_PREFIX) for name in self._bank.layout.names}
        return [own for name, own in model.named_parameters() if name not in names]

    def add(self, model: nn.Module, stream: TextStream, *, steps: int, batch_size: int) -> Entry:
        """Find the graft of a fine-tuned model and append its entry to the bank.

        Args:
            model: The fine-tuned model.
            stream: The task that it learned, as `encode` returned it.
            steps: Steps that a region is trained for, where it is trained again.
            batch_size: Rows of such a step.

        Raises:
            InputError: If training changed no graftable parameter.
        """
        here = model_tensors(model)
        names = self._bank.layout.names
        base, task = self._loaded.model, stream.tasks[0].task
        device = next(model.parameters()).device
        tuned = {name: here[name.removeprefix(_PREFIX)].detach().clone() for name in names}
        own = graftable_parameters(base)
        if all(torch.equal(tuned[name].cpu(), own[name].cpu()) for name in names):
            raise InputError(f"task {task.name!r}: training changed no graftable parameter")
        with lock_bank(self.folder), track_change(self.folder) as announce, in_task(task.name):
            if not holds_no_bank_yet(self.folder):
                self._bank = load_bank(self.folder)
            check_bank_model(self._bank, self._loaded, name=str(self.folder))
            trained = {"fine_tuning": {"steps": max(1, steps), "batch_size": batch_size}}
            settings = {**self._settings, **trained}
            config = restore_config(self._bank.base, tasks=[task.name], settings=settings)
            metadata = task_metadata(
                task, config, seed=self._seed, targets=stream.tasks[0].splits["train"][1]
            )
            metadata = record_own_settings(metadata, self._bank.base, config, seed=self._seed)
            try:
                base.to(device)
                with preserve_parameters(graftable_parameters(base)):
                    plugin, _ = learn_entry(
                        self._loaded,
                        self._bank,
                        stream,
                        config,
                        self.folder,
                        metadata,
                        seed=self._seed,
                        announce=announce,
                        reporter=ProgressReporter(silent, strategy="grafting", seed=self._seed),
                        tuned=tuned,
                    )
            finally:
                base.heads.clear()
                base.to("cpu").eval()
        if plugin.bank is not None:
            self._bank = plugin.bank
        return self._bank.entries[-1]


def hash_model(model: nn.Module) -> str:
    """Return the SHA-256 of a model's parameters and buffers."""
    return hash_tensors(model_tensors(model))


def _begin(
    model: PreTrainedModel, name: str, settings: Mapping[str, Any], *, seed: int
) -> tuple[Loaded, GraftBank]:
    """Load the checkpoint of a model and begin an empty bank on it."""
    config: Any = model.config
    plan = config_from(
        {
            "stream": {"tasks": ["first"]},
            "model": {
                "name": name,
                "family": "seq2seq_lm" if config.is_encoder_decoder else "causal_lm",
                "dtype": str(model.dtype).removeprefix("torch."),
            },
            "grafting": {key: own for key, own in settings.items() if key != "retrain"},
        }
    )
    loaded = load_base_model(plan.model)
    layout = Layout.of(graftable_parameters(loaded.model))
    return loaded, GraftBank(layout, base_identity(loaded, plan, seed=seed), plan.grafting.mode)


def _is_same(model: nn.Module, base: nn.Module) -> bool:
    one, other = model_tensors(model), model_tensors(base)
    return one.keys() == other.keys() and all(
        torch.equal(tensor.detach().cpu(), other[name].detach().cpu())
        for name, tensor in one.items()
    )
