"""The callback for the `Trainer` of transformers that makes a graft when training ends.

With a bank every `train()` adds an entry to it: tasks that are answered with text, one after the
other, by the plain `Trainer` or by a trainer made on it, such as TRL's `SFTTrainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.integrations.skill import Skill, localize_skill, model_tensors
from cl_graft.integrations.trainer_bank import TrainerBank, hash_model
from cl_graft.kinds import TextTask
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import DEFAULT_DENSITY, GraftingSettings
from cl_graft.localization.registry import Score
from cl_graft.runtime.seeding import check_generators, claim_generators, lock_generators
from cl_graft.strategies.benchmark import TextStream
from cl_graft.training.precision import warn_of_float16


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
        exclude: As in `localize_skill`.
        keep: As in `localize_skill`.
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
        localizer: str | Score = GraftingSettings.localizer,
        exclude: tuple[str, ...] = ("heads",),
        keep: Callable[[str], bool] | None = None,
        seed: int = 0,
        bank: Path | str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.skill: Skill | None = None
        self.entry: Entry | None = None
        self._bank: TrainerBank | None = None
        if bank is not None:
            if exclude != ("heads",) or keep is not None:
                raise InputError(
                    "exclude and keep are for a skill alone; the grafts of a bank may reach into "
                    "all of the model's blocks"
                )
            if find_localizer(localizer).needs_path:
                raise InputError(
                    f"the localizer {find_localizer(localizer).name!r} sums up gradients over the "
                    "steps of a dense run, which a Trainer does not keep; take another"
                )
            chosen = {"density": density, "localizer": localizer, "mask_steps": batches}
            more = {"mask_batch": _MASK_ROWS, **chosen, **(settings or {})}
            self._bank = TrainerBank(base, bank, settings=more, seed=seed)
        elif settings is not None:
            raise InputError("settings are for a bank; name its folder with bank=...")
        self._stream: TextStream | None = None
        self._left = ""
        self._flags: list[nn.Parameter] = []
        self._training: nn.Module | None = None
        self._base = {} if self._bank else _copy(base)
        self._batches = batches
        self._settings: Mapping[str, Any] = {
            "density": density,
            "localizer": localizer,
            "exclude": exclude,
            "keep": keep,
            "seed": seed,
        }
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
        self, bank: TrainerBank, args: TrainingArguments, state: TrainerState, model: nn.Module
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
        self._flags = [one for one in bank.frozen(model) if one.requires_grad]
        for parameter in self._flags:
            parameter.requires_grad_(False)

    def _unfreeze(self) -> None:
        """Let train what the last `_start` froze."""
        for parameter in self._flags:
            parameter.requires_grad_(True)
        self._flags = []

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
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
        now = {name: tuple(tensor.shape) for name, tensor in model_tensors(kwargs["model"]).items()}
        if now != {name: tuple(tensor.shape) for name, tensor in self._base.items()}:
            raise InputError(
                "GraftCallback was made with another model than the trainer trains; pass it the "
                "model that goes into Trainer(model=...)"
            )

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Refuse to train on beside another thread (`check_generators`)."""
        del args, state, control, kwargs
        check_generators()

    @lock_generators()
    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
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
        tensors = model_tensors(model)
        tuned = snapshot(tensors)
        with replace_parameters(tensors, self._base):
            self.skill = localize_skill(model, tuned, batches=batches, **self._settings)


_MASK_ROWS = 8
"""Rows of a gradient batch of the localizer, with a bank."""


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in snapshot(model_tensors(model)).items()}


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
