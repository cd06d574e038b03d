"""The callback for the `Trainer` of transformers that makes a graft when training ends.

With a bank every `train()` adds an entry to it, by the plain `Trainer` or by a trainer made on it,
such as TRL's `SFTTrainer`. A task is encoded, answered and recorded by its kind, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from cl_graft.banks.add import choose_label, learn_entry
from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.banks.base_model_check import check_bank_model
from cl_graft.banks.open_bank import open_bank
from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.model_state import preserve_parameters, replace_parameters
from cl_graft.grafts.region import Layout
from cl_graft.integrations.skill import Skill, hash_model, localize_skill
from cl_graft.kinds import TextTask
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import DEFAULT_DENSITY, GraftingSettings
from cl_graft.localization.registry import Score
from cl_graft.models import Loaded, graftable_parameters
from cl_graft.models.text_generation import ANSWER
from cl_graft.runtime.error_context import in_task
from cl_graft.runtime.progress import silent
from cl_graft.runtime.seeding import check_generators, claim_generators, lock_generators
from cl_graft.runtime.tensor_names import tensors_by_name
from cl_graft.settings import config_from
from cl_graft.settings.bank_metadata import (
    base_identity,
    load_base_model,
    record_own_settings,
    restore_config,
    task_metadata,
)
from cl_graft.settings.run_files import lock_bank
from cl_graft.settings.tasks import check_tasks
from cl_graft.storage import load_bank
from cl_graft.storage.bank_folder import holds_no_bank_yet
from cl_graft.strategies.benchmark import TextStream, text_stream
from cl_graft.strategies.loop.progress_reporter import ProgressReporter
from cl_graft.training.precision import warn_of_float16

_PREFIX = "backbone."
"""Begin of a parameter's name in a `TaskModel`, beside its name in transformers."""

_MASK_ROWS = 8
"""Rows of a gradient batch of the localizer, with a bank."""


class GraftCallback(TrainerCallback):
    """Localize what a `Trainer` taught a model, when training ends.

    The model itself stays as the trainer leaves it: tuned, or at its best checkpoint where
    ``load_best_model_at_end`` is set. Beside it one copy of the base is kept on the CPU. The mean
    loss is that of the model (``model(**batch).loss``).

    With a bank, name the task of each `train()` before it, and train on the rows that come back::

        callback = GraftCallback(model, bank="skills")
        for task in tasks:
            rows = callback.prepare(task)
            Trainer(model, ..., train_dataset=rows, callbacks=[callback]).train()

    Every `train()` then starts at the base, what no graft can hold (embeddings, norms outside the
    blocks) is frozen for its length, and its end adds an entry. It also starts there when the
    trainer begins anew (``auto_find_batch_size``), and after an exception, which leaves them frozen
    until the callback's next `prepare` or `train()`. The region is found with the loss
    of the answers alone, among the coordinates that no earlier entry owns. Then it is trained from
    the base on top of the earlier entries, for as many steps of as many rows as the trainer took.

    Two trainers in two threads would draw from each other's generator: both are refused.

    Runs at: train_begin, step_end, train_end.

    Args:
        base: The model before training; it may be the very object that the trainer then trains.
        batches: Number of the trainer's training batches that the localizer uses.
        density: Share of the graftable coordinates in the region, in (0, 1].
        localizer: Name of a localizer in `cl_graft.localization.LOCALIZERS`, or a score function.
        seed: Every random choice of the localizer is a function of it.
        bank: Folder of the bank; None makes a `skill` alone. The model must be the checkpoint that
            it was loaded from.
        settings: With a bank, more settings of grafting by name, such as the learning rate of
            regions (``{"lr": 0.3}``), or ``{"retrain": False}``, which keeps the trainer's values.

    Attributes:
        skill: Skill of the trained model; None before the end of training, and with a bank.
        entry: Entry that the last training added to the bank; None before.

    Raises:
        InputError: If the bank cannot be used with this model.
        BankError: If the bank cannot be read, or belongs to another base.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        *,
        batches: int = GraftingSettings.mask_steps,
        density: float = DEFAULT_DENSITY,
        localizer: str | Score = "learned_mask",
        seed: int = 0,
        bank: Path | str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.skill: Skill | None = None
        self.entry: Entry | None = None
        self._bank: _TrainerBank | None = None
        if bank is not None:
            if find_localizer(localizer).needs_path:
                raise InputError(
                    f"the localizer {find_localizer(localizer).name!r} sums up gradients over the "
                    "steps of a dense run, which a Trainer does not keep; take another"
                )
            chosen = {"density": density, "localizer": localizer, "mask_steps": batches}
            more = {"mask_batch": _MASK_ROWS, **chosen, **(settings or {})}
            self._bank = _TrainerBank(base, bank, settings=more, seed=seed)
        elif settings is not None:
            raise InputError("settings are for a bank; name its folder with bank=...")
        self._stream: TextStream | None = None
        self._left = ""
        self._flags: list[nn.Parameter] = []
        self._training: nn.Module | None = None
        held = {} if self._bank else snapshot(tensors_by_name(base))
        self._base = {name: tensor.cpu() for name, tensor in held.items()}
        self._batches = batches
        self._settings: dict[str, Any] = {"density": density, "localizer": localizer, "seed": seed}
        self._gradients = find_localizer(localizer).needs_gradients

    def prepare(self, task: TextTask) -> list[dict[str, list[int]]]:
        """Name the task of the next `train()`, and return its training rows.

        Args:
            task: A task that is answered with text, as `load_task` returns it.

        Returns:
            ``input_ids``, ``attention_mask`` and ``labels`` of each row, which are -100 at the
            prompt: as `DataCollatorForSeq2Seq` pads them.

        Raises:
            InputError: If the callback has no bank, the task is of another kind, or it does not fit
                the model.
        """
        if self._bank is None:
            raise InputError("only a callback with a bank learns tasks: GraftCallback(bank=...)")
        self._unfreeze()
        self._stream, rows = self._bank.encode(task)
        return rows

    def _start(
        self, bank: _TrainerBank, args: TrainingArguments, state: TrainerState, model: nn.Module
    ) -> None:
        self._unfreeze()
        if args.world_size > 1:
            raise InputError(
                f"a bank is written by one process; the trainer runs {args.world_size} of them"
            )
        if self._stream is None:
            raise InputError(
                "no task is named for this train(): call rows = callback.prepare(task) before it, "
                "and train on these rows"
            )
        if not state.global_step:
            # A train() that begins twice, or again after an exception, left the model in between.
            begins_again = model is self._training
            if not (begins_again or bank.is_base(model) or hash_model(model) == self._left):
                raise InputError(
                    "the model that the trainer trains is neither the base of the bank "
                    f"{bank.folder} nor what the callback's last train() left; load it again "
                    "(an adapter of PEFT in it makes another model, too)"
                )
            bank.put_back_(model)
        self._training = model
        self._flags = [parameter for parameter in bank.frozen(model) if parameter.requires_grad]
        for parameter in self._flags:
            parameter.requires_grad_(False)

    def _unfreeze(self) -> None:
        """Let train what the last `_start` froze."""
        for parameter in self._flags:
            parameter.requires_grad_(True)
        self._flags = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse a model that the base does not belong to, before anything is trained.

        With a bank, put the base back into the model, unless the trainer resumes a checkpoint.
        """
        del control
        claim_generators()
        warn_of_float16(kwargs["model"])
        if self._bank is not None:
            self._start(self._bank, args, state, kwargs["model"])
            return
        now, base = tensors_by_name(kwargs["model"]), self._base
        if {n: t.shape for n, t in now.items()} != {n: t.shape for n, t in base.items()}:
            raise InputError(
                "GraftCallback was made with another model than the trainer trains; pass it the "
                "model that goes into Trainer(model=...)"
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse to train on beside another thread (`check_generators`)."""
        del args, state, control, kwargs
        check_generators()

    @lock_generators()
    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Find the skill, or add the entry to the bank."""
        del control
        model = kwargs["model"]
        if self._bank is not None and self._stream is not None:
            self._unfreeze()
            stream, self._stream, self._training = self._stream, None, None
            self._left = hash_model(model)
            self.entry = self._bank.add(
                model,
                stream,
                steps=state.global_step,
                batch_size=args.train_batch_size * args.gradient_accumulation_steps,
            )
            return
        device = next(model.parameters()).device
        loader = kwargs["train_dataloader"] if self._gradients else ()
        batches = [_on(device, batch) for batch in islice(loader, self._batches)]
        _check_labels(batches)
        tensors = tensors_by_name(model)
        tuned = snapshot(tensors)
        with replace_parameters(tensors, self._base):
            self.skill = localize_skill(model, tuned, batches=batches, **self._settings)


class _TrainerBank:
    """A bank on the base of a model that a `Trainer` fine-tunes."""

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
        """Encode a task, and its training rows as a `Trainer` takes them."""
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
        copy_(tensors_by_name(model), tensors_by_name(self._loaded.model.backbone))

    def frozen(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters of a model that no graft can hold."""
        names = {name.removeprefix(_PREFIX) for name in self._bank.layout.names}
        return [parameter for name, parameter in model.named_parameters() if name not in names]

    def add(self, model: nn.Module, stream: TextStream, *, steps: int, batch_size: int) -> Entry:
        """Find the graft of a fine-tuned model and append its entry to the bank."""
        here = tensors_by_name(model)
        names = self._bank.layout.names
        base, task = self._loaded.model, stream.tasks[0].task
        device = next(model.parameters()).device
        tuned = {name: here[name.removeprefix(_PREFIX)].detach().clone() for name in names}
        graftable = graftable_parameters(base)
        if all(torch.equal(tuned[name].cpu(), graftable[name].cpu()) for name in names):
            raise InputError(f"task {task.name!r}: training changed no graftable parameter")
        with lock_bank(self.folder), in_task(task.name):
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
                        reporter=ProgressReporter(silent, strategy="grafting", seed=self._seed),
                        tuned=tuned,
                    )
            finally:
                base.heads.clear()
                base.to("cpu").eval()
        if plugin.bank is not None:
            self._bank = plugin.bank
        return self._bank.entries[-1]


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
            "grafting": {key: value for key, value in settings.items() if key != "retrain"},
        }
    )
    loaded = load_base_model(plan.model)
    layout = Layout.of(graftable_parameters(loaded.model))
    return loaded, GraftBank(layout, base_identity(loaded, plan, seed=seed), plan.grafting.mode)


def _is_same(model: nn.Module, base: nn.Module) -> bool:
    first, second = tensors_by_name(model), tensors_by_name(base)
    return first.keys() == second.keys() and all(
        torch.equal(tensor.detach().cpu(), second[name].detach().cpu())
        for name, tensor in first.items()
    )


def _check_labels(batches: Sequence[Mapping[str, Any]]) -> None:
    """Refuse batches that have labels, all of which are -100: their loss is no number."""
    for number, batch in enumerate(batches, start=1):
        labels = batch.get("labels")
        if isinstance(labels, Tensor) and bool((labels == -100).all()):
            raise InputError(
                f"batch {number} of the trainer has no label but -100, so it has no loss; is "
                "every answer cut off, or the prompt taken for the whole row?"
            )


def _on(device: torch.device, batch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in batch.items()
    }
