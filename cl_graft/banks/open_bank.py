"""An open bank: a bank on its rebuilt model, which answers texts of every task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.banks.base_model_check import check_answering, check_bank_model, check_entries
from cl_graft.banks.input_texts import InputText, check_texts
from cl_graft.errors import DamagedFile, InputError
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, find_entries, find_entry
from cl_graft.inference.task_switch import Switch
from cl_graft.kinds import Answer, EncodedRows, Encoding, Prompt, Row, find_kind
from cl_graft.kinds.messages import read_chat
from cl_graft.kinds.text2text import AnswerRow, make_chat_row
from cl_graft.kinds.text_task import MAX_LENGTH
from cl_graft.models import Loaded, load_head, load_model, longest_row
from cl_graft.models.task_server import TaskServer
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.progress import Progress, silent
from cl_graft.runtime.seeding import lock_generators
from cl_graft.runtime.threads import lock_model
from cl_graft.storage import save_bank
from cl_graft.storage.bank_folder import open_stored_bank

if TYPE_CHECKING:
    from cl_graft.banks.add import Added
    from cl_graft.banks.verify import VerifyReport
    from cl_graft.storage.hub import Pushed

Text = str | tuple[str, str] | list[dict[str, str]]
"""A text, the two texts of a pair, or chat messages: a list of ``{"role", "content"}``."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class OpenBank:
    """A bank on its rebuilt model.

    Several threads may use it, as those of a web server do. They take turns, batch by batch.

    Attributes:
        folder: Folder of the bank.
        loaded: Model, with the head of every entry it carried so far, and tokenizer.
        switch: Switch that moves the model's weights between entries; `carry` moves the head too.
        model: Name or path of the base, if it is not the one that the bank recorded.
        trust_remote_code: Whether Python code that comes with the checkpoint may run.
    """

    folder: Path
    loaded: Loaded
    switch: Switch
    model: str | None = None
    trust_remote_code: bool = False
    _cut: set[int] = field(default_factory=set[int], init=False)
    """Positions of entries of which it was said that a text was cut."""
    _checked: set[int] = field(default_factory=set[int], init=False)
    """Positions of entries whose head and recorded batch fit the model."""

    def __repr__(self) -> str:
        return f"OpenBank({str(self.folder)!r}, {self.bank!r})"

    def __len__(self) -> int:
        return len(self.bank)

    @property
    def bank(self) -> GraftBank:
        """The bank as it was read, or as `add` left it."""
        return self.switch.bank

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, each once, in the order of learning."""
        return tuple(dict.fromkeys(entry.task for entry in self.bank.entries))

    @overload
    def predict(  # pyright: ignore[reportOverlappingOverload]  # a string is a sequence of strings
        self, texts: Text, *, task: str | int, batch_size: int = 32
    ) -> Answer: ...
    @overload
    def predict(
        self, texts: Sequence[Text], *, task: str | int, batch_size: int = 32
    ) -> list[Answer]: ...
    @overload
    def predict(
        self, texts: Sequence[tuple[Text, str | int]], *, task: None = None, batch_size: int = 32
    ) -> list[Answer]: ...
    def predict(
        self,
        texts: Text | Sequence[Text] | Sequence[tuple[Text, str | int]],
        *,
        task: str | int | None = None,
        batch_size: int = 32,
    ) -> Answer | list[Answer]:
        """Answer a text, texts of one task, or texts of several tasks in mixed batches.

            bank.predict("What is my balance?", task="scope")
            bank.predict([("What is my balance?", "scope"), ("Book a flight.", "topic")])

        The weights that answer are, to the bit, those of the day on which the task was learned.
        Logits have the same bits in the same batch: the same rows in the same order, on the same
        machine with the same threads and versions. A warning says once for each task that a text
        was cut.

        Args:
            texts: A text; a list of texts; or, without `task`, a list of pairs (text, task). A text
                of a task on pairs is itself a tuple of two texts; one of a task that was learned
                from chats may be a list of messages, ``[{"role": "user", "content": "Hi!"}]``, the
                last of which is the user's (an answer behind it is left out).
            task: A task's name, whose latest entry answers, or the position of an entry.
            batch_size: Rows computed at a time, >= 1.

        Raises:
            InputError: If there is no such task, or a text is none that it answers.
        """
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        single = isinstance(texts, str | tuple) or _is_chat(texts)
        if not single and not isinstance(texts, Iterable):
            raise InputError(f"texts must be a text or a list of texts, got {texts!r:.80}")
        asked: list[Any] = [texts] if single else list(texts)
        if isinstance(task, list | tuple):
            raise InputError(
                "task is one name or position for all texts; where each text has its own, pass "
                "pairs and no task: list(zip(texts, tasks))"
            )
        if task is not None:
            asked = [(text, task) for text in asked]
        elif single or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in asked):
            raise InputError(
                "no task is named: pass task=..., or a list of pairs (text, task); tasks: "
                f"{', '.join(self.tasks)}"
            )
        named = [_input_text(text, at, number) for number, (text, at) in enumerate(asked, 1)]
        check_texts(self.bank, named)
        answers = self.answer(named, batch_size=batch_size)
        return answers[0] if single else answers

    def add(
        self,
        task: str,
        *,
        columns: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        progress: Progress = silent,
    ) -> Added:
        """Learn one more task into the bank's folder, and answer it from then on.

        The base is loaded a second time for the training. Arguments and errors are those of
        `cl_graft.banks.add.add_task`; a bank whose folder has changed since it was opened, as by
        `forget`, raises `BankError`.
        """
        from cl_graft.banks.add import add_task  # it trains, and answering needs no Avalanche
        from cl_graft.settings.run_files import lock_bank

        with lock_generators(), lock_bank(self.folder):
            self.switch.check_grown(open_stored_bank(self.folder))
            added = add_task(
                self.folder,
                task,
                model=self.model,
                columns=columns,
                settings=settings,
                device=str(self.loaded.model.device),
                trust_remote_code=self.trust_remote_code,
                progress=progress,
            )
            grown = open_stored_bank(self.folder)
        # A thread inside `carrying` may wait for the locks above, so the model's comes after them.
        with lock_model(self.loaded.model):
            if len(grown) > len(self.bank):  # unless a thread that learned later was here first
                self.switch.add(check_entries(grown, name=str(self.folder)))
        return added

    def verify(self) -> VerifyReport:
        """Check that every entry has its bits: `cl_graft.banks.verify.verify` on another base."""
        from cl_graft.banks.verify import verify  # which opens banks itself

        device = str(self.loaded.model.device)
        trust = self.trust_remote_code
        return verify(self.folder, model=self.model, device=device, trust_remote_code=trust)

    def save(self, path: Path | str) -> None:
        """Write the bank to another folder: `cl_graft.storage.save_bank`."""
        save_bank(self.bank, path)

    def push_to_hub(self, repo_id: str, **options: Any) -> Pushed:
        """Put the bank and a model card on the hub: see `cl_graft.storage.hub.push_to_hub`."""
        from cl_graft.storage.hub import push_to_hub  # the hub's client is slow to import

        return push_to_hub(self.bank, repo_id, **options)

    def carry(self, position: int | None) -> None:
        """Make the model carry the answer of an entry, head included; None means the bare base.

        Where several threads use it, compute with it in a ``with lock_model(opened.loaded.model):``
        block that begins before.
        """
        model = self.loaded.model
        with lock_model(model):
            self.switch.to(position)
            if position is None:
                return
            entry = self._find_answering(position)
            head = load_head(entry, family=model.family)
            model.heads[str(entry.label)] = head.requires_grad_(False).to(model.device).eval()

    def logits(self, inputs: Tensor, position: int) -> Tensor:
        """Answer encoded rows, (n, 2, L), with an entry: logits of shape (n, classes), on the CPU.

        The rows are one batch, so the same rows give the same bits.
        """
        model = self.loaded.model
        with model.answering():
            self.carry(position)
            label = self.bank.entries[position].label
            return model.eval()(inputs.to(model.device), label).float().cpu()

    def answer(self, texts: Sequence[InputText], *, batch_size: int = 32) -> list[Answer]:
        """Answer texts that `check_texts` found to be answerable, in batches, in their order."""
        positions = [find_entry(self.bank, text.task) for text in texts]
        server = TaskServer(self.switch)
        answers: list[Answer] = []
        for first in range(0, len(texts), batch_size):
            rows, asked = texts[first : first + batch_size], positions[first : first + batch_size]
            with self.loaded.model.answering():  # tokenizers serve one thread, too
                if len(set(asked)) == 1:
                    encoded, text_rows = self._encode(rows, asked[0])
                    logits = self.logits(encoded.inputs, asked[0])
                    answers += self._read_answers(logits, encoded, text_rows, asked[0])
                else:
                    answers += self._answer_mixed(rows, asked, server)
        return answers

    def _answer_mixed(
        self, rows: Sequence[InputText], positions: Sequence[int], server: TaskServer
    ) -> list[Answer]:
        """Answer a batch whose rows belong to different entries."""
        model = self.loaded.model.eval()
        encoded = [self._encode([row], at) for row, at in zip(rows, positions, strict=True)]
        inputs = [part.inputs for part, _ in encoded]
        longest = max(part.shape[-1] for part in inputs)
        x = torch.cat([F.pad(part, (0, longest - part.shape[-1])) for part in inputs])
        asked = [at for part, at in zip(inputs, positions, strict=True) for _ in part]
        outputs = iter(server.answer(x.to(model.device), asked))
        answers: list[Answer] = []
        for (part, part_rows), at in zip(encoded, positions, strict=True):
            logits = torch.stack([next(outputs).cpu() for _ in part.inputs])
            answers += self._read_answers(logits, part, part_rows, at)
        return answers

    def _find_answering(self, position: int) -> Entry:
        """Return an entry after making sure that the model can answer with it."""
        entry = self.bank.entries[position]
        if position not in self._checked:
            check_answering(entry, self.loaded, name=f"{self.folder}, task {entry.task!r}")
            self._checked.add(position)
        return entry

    def _encode(self, texts: Sequence[InputText], position: int) -> tuple[EncodedRows, list[Row]]:
        """Encode texts as an entry learned to read them; returns them beside their rows."""
        entry = self._find_answering(position)
        metadata: Mapping[str, Any] = entry.metadata
        length: int = metadata.get("max_length") or MAX_LENGTH
        prompt, kind = metadata.get("prompt"), find_kind(metadata)
        length = min(length, longest_row(self.loaded.model) or length)
        rows = [
            make_chat_row(text.messages, metadata)
            if text.messages
            else kind.row(text.text, text.pair, metadata)
            for text in texts
        ]
        rows = [
            replace(row, origin=text.origin) if isinstance(row, AnswerRow) else row
            for row, text in zip(rows, texts, strict=True)
        ]
        encoding = Encoding(
            self.loaded.tokenizer,
            self.loaded.model.family,
            prompt=Prompt(prompt["template"], prompt["words"]) if prompt else None,
            max_length=max(1, length - kind.count_reserved(entry.head)),
        )
        encoded = kind.encode(rows, encoding)
        if encoded.cut and position not in self._cut:
            self._cut.add(position)
            logger.warning(
                "%s: a text is longer than the %d tokens that this task reads; what is beyond them "
                "has no part in the answer",
                entry.task,
                length,
            )
        return encoded, rows

    def _read_answers(
        self, logits: Tensor, encoded: EncodedRows, rows: Sequence[Row], position: int
    ) -> list[Answer]:
        """Return what an entry's logits say."""
        entry = self.bank.entries[position]
        try:
            answers = find_kind(entry.metadata).answer(logits, encoded, rows, entry.metadata)
        except DamagedFile as error:
            raise DamagedFile(f"the entry of {entry.task!r} is damaged: {error}") from error
        return [replace(answer, entry=position) for answer in answers]


def open_bank(
    folder: Path | str,
    *,
    model: str | None = None,
    device: str | torch.device = "cpu",
    trust_remote_code: bool = False,
) -> OpenBank:
    """Read a bank, rebuild its base and make sure that it is the one the bank was made on.

    Args:
        folder: The bank's folder, or the run that holds it.
        model: Folder or hub name of the base, if it is no longer the one that the bank recorded.
        device: Device of the model, such as ``"cuda"``; ``"auto"`` is a GPU if there is one.
        trust_remote_code: Whether to run Python code that comes with the checkpoint. That the
            bank was made so is not enough: it may come from somebody else.

    Raises:
        InputError: If there is no such folder or device, or the base cannot be loaded.
        BankError: If the bank cannot be read, or belongs to another base.
    """
    device = pick_device(device)
    where = find_bank_folder(folder)
    bank = open_stored_bank(where)
    loaded = load_base(bank.base, model=model, trust_remote_code=trust_remote_code)
    bank = check_bank_model(bank, loaded, name=str(where))
    loaded.model.to(device).eval()
    return OpenBank(where, loaded, Switch(loaded.model, bank), model, trust_remote_code)


def _input_text(text: Text, task: str | int, number: int) -> InputText:
    """Return the text that a caller passed, the `number`-th from 1."""
    origin = f"text {number}"
    if _is_chat(text):
        messages = read_chat(text, origin)
        return InputText(messages[-1].content, None, task, origin, messages=messages)
    first, second = text if isinstance(text, tuple) and len(text) == 2 else (text, None)
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise InputError(
            f"{origin} must be a string, a tuple of two, or a list of messages, got {text!r:.80}"
        )
    return InputText(first, second, task, origin)


def _is_chat(text: object) -> bool:
    """Whether a text is a list of chat messages."""
    return isinstance(text, list) and bool(text) and isinstance(text[0], Mapping)


def recorded_device(bank: GraftBank) -> str:
    """Return the kind of device that all entries were learned on; the CPU if that is not here."""
    recorded = {
        e.recorded_batch.environment.get("device", "cpu") for e in bank.entries if e.recorded_batch
    }
    return "cuda" if recorded == {"cuda"} and torch.cuda.is_available() else "cpu"


_CHUNK = 32  # batches of texts that are sorted by task together


def predict(
    opened: OpenBank, texts: Sequence[InputText], *, batch_size: int = 32
) -> Iterator[tuple[InputText, Answer]]:
    """Answer every text with the latest entry of its task, in the order in which they came.

    A batch holds texts of one task that stand near each other, so the same texts in the same order
    with the same `batch_size` give the same bits on the same machine.

    Raises:
        InputError: Before anything is answered, with file and line, if a text has no such task, or
            is none that it answers.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    check_texts(opened.bank, texts)
    return _answers(opened, texts, batch_size)


def list_calibration_notes(bank: GraftBank, tasks: Sequence[str]) -> list[str]:
    """Say of each task whether its confidence is calibrated, and on how many rows."""
    notes: list[str] = []
    for task in dict.fromkeys(tasks):
        metadata = bank.entries[find_entry(bank, task)].metadata
        scaling = metadata.get("temperature")
        if isinstance(scaling, dict):
            notes.append(
                f"{task}: confidence is calibrated (temperature {scaling['value']:.3g}, fitted on "
                f"{scaling['rows']} dev rows; their ECE went from "
                f"{100 * scaling['ece_before']:.1f} to {100 * scaling['ece_after']:.1f} points)"
            )
        elif find_kind(metadata).needs_classes or metadata.get("intent_names"):
            notes.append(
                f"{task}: confidence is not calibrated, but the model's plain softmax: the bank "
                "holds no temperature for it"
            )
    return notes


def list_entry_notes(bank: GraftBank, tasks: Sequence[str]) -> list[str]:
    """Say of each task whose name has several entries which of them answers."""
    notes: list[str] = []
    for task in dict.fromkeys(tasks):
        positions = find_entries(bank, task)
        if len(positions) > 1:
            earlier = ", ".join(map(str, positions[:-1]))
            notes.append(
                f"{task}: entry {positions[-1]} answers, the latest of this name; ask an earlier "
                f"one by its position ({earlier})"
            )
    return notes


def _answers(
    opened: OpenBank, texts: Sequence[InputText], batch_size: int
) -> Iterator[tuple[InputText, Answer]]:
    for first in range(0, len(texts), _CHUNK * batch_size):
        chunk = texts[first : first + _CHUNK * batch_size]
        by_task: dict[str | int, list[int]] = {}
        for number, text in enumerate(chunk):
            by_task.setdefault(text.task, []).append(number)
        by_number: dict[int, Answer] = {}
        for places in by_task.values():
            asked = [chunk[number] for number in places]
            answers = opened.answer(asked, batch_size=batch_size)
            by_number |= dict(zip(places, answers, strict=True))
        yield from ((text, by_number[number]) for number, text in enumerate(chunk))


def load_base(
    base: BaseIdentity, *, model: str | None = None, trust_remote_code: bool = False
) -> Loaded:
    """Load the checkpoint that a bank names, in the bank's family, pooling and dtype.

    Code that comes with a checkpoint runs only if it is trusted.
    """
    family = base.metadata.get("family")
    if not isinstance(family, str):
        raise InputError(
            "the bank does not record how its base is loaded: it was made in Python, by a plugin "
            "without what cl_graft.record_stream gives; make its model in Python as it was made "
            "then, and open the bank with cl_graft.load_bank"
        )
    if base.metadata.get("trust_remote_code") and not trust_remote_code:
        raise InputError(
            f"the base {model or base.model!r} brings its own Python code, which runs only with "
            "trust_remote_code=True, on the command line --trust-remote-code (read that code first)"
        )
    return load_model(
        model or base.model,
        family=family,
        pooling=str(base.metadata.get("pooling", "mean")),
        dtype=base.dtype,
        precision=str(base.metadata.get("precision", "fp32")),
        revision=cast(str | None, base.metadata.get("revision")) if model is None else None,
        trust_remote_code=trust_remote_code,
    )
