"""Open a bank in any later process: rebuild its model, check it, answer with any of its entries.

    opened = open_bank("runs/demo/grafting/seed0/bank")
    opened.answer(["It was a delight."], task="sentiment")

Nothing is needed but the bank's folder and the checkpoint of its base, whose every bit is checked
against the bank before anything is written into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from cl_graft.data import Prompt, Row, encode
from cl_graft.data.text_checks import fault_of
from cl_graft.errors import DamagedFile, InputError, WrongArchitecture, WrongBase, WrongTokenizer
from cl_graft.experiments.base_model import BaseHashes, base_hashes
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, find_entry
from cl_graft.grafts.region import Layout
from cl_graft.inference.task_switch import Switch
from cl_graft.models import (
    Loaded,
    TaskModel,
    check_batch,
    check_head,
    graftable_parameters,
    head_of,
    load_model,
    longest_row,
)
from cl_graft.storage import load_bank
from cl_graft.storage.files import valid

__all__ = [
    "Answer",
    "OpenedBank",
    "check_hashes",
    "load_base",
    "open_bank",
]


@dataclass(frozen=True)
class Answer:
    """What a task says of one text.

    Attributes:
        label: Name of the likeliest label; the number itself for a regression.
        probabilities: By label name, summing to 1; empty for a regression.
        logits: What the model gave, in the order of the labels.
        temperature: What the logits were divided by, so that the probability of an answer is how
            often such answers were right on dev; None if the bank holds none: the probabilities are
            those of the model, which tend to be too sure.
        entry: Position of the entry that answered.
    """

    label: str | float
    probabilities: Mapping[str, float]
    logits: tuple[float, ...] = ()
    temperature: float | None = None
    entry: int | None = None

    @property
    def confidence(self) -> float | None:
        """Probability of the label; None for a regression."""
        return self.probabilities.get(str(self.label))


@dataclass(frozen=True, eq=False)
class OpenedBank:
    """A bank on its rebuilt model, ready to answer.

    Attributes:
        loaded: The model, with the head of every entry it carried so far, and the tokenizer.
        bank: The bank as it stands on disk.
        switch: Moves the model's weights between entries; `carry` moves the head as well.
    """

    loaded: Loaded
    bank: GraftBank
    switch: Switch

    def carry(self, position: int | None) -> None:
        """Make the model carry the answer of an entry, head included; None: the bare base."""
        self.switch.to(position)
        if position is None:
            return
        entry = self.bank.entries[position]
        model = self.loaded.model
        head = head_of(entry, family=model.family)
        model.heads[str(entry.label)] = head.requires_grad_(False).to(model.device).eval()

    def logits(self, inputs: Tensor, position: int) -> Tensor:
        """Answer encoded rows, (n, 2, L), with an entry: logits of shape (n, classes), on the CPU.

        The rows are one batch, so the same rows give the same bits.
        """
        self.carry(position)
        model = self.loaded.model.eval()
        with torch.no_grad():
            return model(inputs.to(model.device), self.bank.entries[position].label).float().cpu()

    def answer(
        self,
        texts: Sequence[str],
        *,
        task: str | int,
        pairs: Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> list[Answer]:
        """Answer texts as a task learned to.

        Args:
            texts: The texts.
            task: A task's name (its latest entry answers) or the position of an entry.
            pairs: The second texts, for tasks on pairs.
            batch_size: Rows computed at a time.

        Raises:
            InputError: If there is no such task, or `pairs` does not fit it.
        """
        position = find_entry(self.bank, task)
        facts = self.bank.entries[position].facts
        rows = _rows(texts, pairs, facts, name=self.bank.entries[position].task)
        answers: list[Answer] = []
        for first in range(0, len(rows), batch_size):
            inputs = encode(
                rows[first : first + batch_size],
                self.loaded.tokenizer,
                family=cast(Any, self.loaded.model.family),
                prompt=_prompt(facts),
                max_length=_length(facts, self.loaded.model),
            )
            found = _answers(self.logits(inputs, position), facts)
            answers += [replace(answer, entry=position) for answer in found]
        return answers


def open_bank(
    folder: Path | str,
    *,
    model: str | None = None,
    device: str | torch.device = "cpu",
    trust_remote_code: bool = False,
) -> OpenedBank:
    """Read a bank, rebuild its base and make sure that it is the one the bank was made on.

    Args:
        folder: The bank's folder.
        model: Where the base is now, if not under the name that the bank recorded.
        device: Where to put the model.
        trust_remote_code: Whether to run Python code that comes with the checkpoint. That the
            bank was made so is not enough: it may come from somebody else.

    Raises:
        InputError: If there is no such folder, or the base cannot be loaded.
        BankError: If the bank cannot be read, or belongs to another base.
    """
    bank = load_bank(folder)
    loaded = load_base(bank.base, model=model, trust_remote_code=trust_remote_code)
    layout = Layout.of(graftable_parameters(loaded.model))
    where = f"{folder} belongs to another model than {loaded.name!r}:"
    if layout != bank.layout:
        raise WrongArchitecture(
            f"{where} {bank.layout.total} graftable coordinates in {len(bank.layout.names)} "
            f"parameters there, {layout.total} in {len(layout.names)} here"
        )
    check_hashes(bank.base.fingerprint, bank.base.facts, base_hashes(loaded), where=where)
    for entry in bank.entries:
        _check_entry(entry, loaded, name=f"{folder}, task {entry.task!r}")
    loaded.model.to(device)
    return OpenedBank(loaded, bank, Switch(loaded.model, bank))


def _check_entry(entry: Entry, loaded: Loaded, *, name: str) -> None:
    """Refuse an entry that the model cannot answer with.

    Raises:
        DamagedFile: If its head or recorded batch does not fit the model, or its values are NaN or
            infinite: nothing that was learned is.
    """
    with valid(name):
        if not bool(entry.owned.values.isfinite().all()):
            raise ValueError("its values are NaN or infinite")
        check_head(entry.head, loaded.model)
        head_of(entry, family=loaded.model.family)
        if entry.canary is not None:
            check_batch(entry.canary.inputs, loaded.model)
            if not entry.canary.logits.is_floating_point():
                raise ValueError(f"its recorded logits are {entry.canary.logits.dtype}")


def check_hashes(
    fingerprint: str, recorded: Mapping[str, object], found: BaseHashes, *, where: str
) -> None:
    """Refuse a base that is not the recorded one.

    Args:
        fingerprint: The recorded one.
        recorded: Holds ``"weights_sha256"`` and ``"tokenizer_sha256"``, if they were recorded.
        found: What the loaded base has.
        where: How the sentence begins.

    Raises:
        WrongTokenizer: If nothing but the tokenizer is another.
        WrongBase: If anything else is.
    """
    if found.fingerprint == fingerprint:
        return
    tokenizer = recorded.get("tokenizer_sha256")
    if recorded.get("weights_sha256") == found.weights and tokenizer != found.tokenizer:
        raise WrongTokenizer(
            f"{where} the weights are the same, but its tokenizer has SHA-256 "
            f"{str(tokenizer)[:12]}…, this one has {found.tokenizer[:12]}…; token ids would stand "
            "for other text"
        )
    raise WrongBase(
        f"{where} its base has fingerprint {fingerprint[:12]}…, this model has "
        f"{found.fingerprint[:12]}…; other weights, another dtype or another tokenizer cause this"
    )


def load_base(
    base: BaseIdentity, *, model: str | None = None, trust_remote_code: bool = False
) -> Loaded:
    """Load the checkpoint that a bank names, in the bank's family, pooling and dtype.

    Raises:
        InputError: If the bank does not record how to, or the checkpoint cannot be loaded, or it
            needs code of its own that is not trusted.
    """
    family = base.facts.get("family")
    if not isinstance(family, str):
        raise InputError(
            "the bank does not record its model's family: it was made in Python around a model of "
            "one's own, so rebuild that model in Python and use cl_graft.load_bank"
        )
    if base.facts.get("trust_remote_code") and not trust_remote_code:
        raise InputError(
            f"the base {model or base.model!r} brings its own Python code, which runs only with "
            "trust_remote_code=True, on the command line --trust-remote-code (read that code first)"
        )
    return load_model(
        model or base.model,
        family=family,
        pooling=str(base.facts.get("pooling", "mean")),
        dtype=base.dtype,
        precision=str(base.facts.get("precision", "fp32")),
        revision=cast(str | None, base.facts.get("revision")) if model is None else None,
        trust_remote_code=trust_remote_code,
    )


def _length(facts: Mapping[str, Any], model: TaskModel) -> int:
    """Return the tokens a row: those of the task, as far as the model can read them."""
    length: int = facts.get("max_length") or 128
    return min(length, longest_row(model) or length)


def _prompt(facts: Mapping[str, Any]) -> Prompt | None:
    stored = facts.get("prompt")
    return Prompt(stored["template"], stored["words"]) if stored else None


def _rows(
    texts: Sequence[str], pairs: Sequence[str] | None, facts: Mapping[str, Any], *, name: str
) -> list[Row]:
    wanted = facts.get("pair")
    if wanted is not None and wanted != (pairs is not None):
        given = "texts alone" if pairs is None else "pairs"
        raise InputError(
            f"task {name!r} answers {'pairs of texts' if wanted else 'single texts'}, got {given}"
        )
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(pairs)} second texts do not pair up")
    seconds = pairs if pairs is not None else [None] * len(texts)
    rows = [Row(text, second, 0) for text, second in zip(texts, seconds, strict=True)]
    for number, row in enumerate(rows):
        for text in (row.text, row.text_pair):
            if text is not None and (fault := fault_of(text)):
                raise InputError(f"text {number} {fault}")
    return rows


def _answers(logits: Tensor, facts: Mapping[str, Any]) -> list[Answer]:
    names = [str(name) for name in facts.get("label_names", [])]
    if not names and logits.shape[1] == 1:
        return [Answer(float(value), {}, (float(value),)) for value in logits[:, 0]]
    names = names or [str(number) for number in range(logits.shape[1])]
    if len(names) != logits.shape[1]:
        raise DamagedFile(f"the bank names {len(names)} labels, and has {logits.shape[1]} logits")
    found = facts.get("temperature")
    temperature = float(found["value"]) if isinstance(found, Mapping) else None
    shares = (logits.double() / (temperature or 1.0)).softmax(-1)
    return [
        Answer(
            names[int(row.argmax())],
            dict(zip(names, share.tolist(), strict=True)),
            tuple(row.tolist()),
            temperature,
        )
        for row, share in zip(logits, shares, strict=True)
    ]
