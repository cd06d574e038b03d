"""The command `predict`: the answers of a bank to texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cl_graft.cli import options
from cl_graft.cli.options import argument, option
from cl_graft.cli.output import Output, redirect_prints, to_json_text
from cl_graft.errors import InputError, join_names
from cl_graft.runtime.escaping import for_terminal

if TYPE_CHECKING:
    from cl_graft.banks.input_texts import InputText
    from cl_graft.banks.open_bank import Answer


def predict_command(
    bank: options.Bank,
    texts: Annotated[
        list[str] | None, argument("[TEXT]...", "Texts; if none are given, stdin is read.")
    ] = None,
    task: Annotated[
        str | None,
        option(
            "NAME",
            "Task that answers, by name or by its entry's position. Rows of a file may name "
            "their own in a column 'task'.",
        ),
    ] = None,
    pair: Annotated[
        list[str] | None, option("TEXT", "The second text, once for each TEXT.")
    ] = None,
    file: Annotated[
        Path | None,
        option(
            "FILE",
            "Texts, one per line (.txt; a tab between the texts of a pair) or per row (.csv, "
            ".tsv, .jsonl, .json, .parquet); - is stdin.",
        ),
    ] = None,
    form: Annotated[str, option("txt|csv|tsv|jsonl", "Format of stdin.", "--format")] = "txt",
    text: options.Text = None,
    text_pair: options.TextPair = None,
    id_column: Annotated[
        str | None,
        option(
            "COLUMN",
            "Column that names the rows, shown before each answer; --json has that of a usual "
            "name, such as 'id', in any case.",
            "--id",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Texts computed at a time.")] = 32,
    model: options.MovedModel = None,
    device: options.Device = None,
    trust_remote_code: options.TrustRemoteCode = False,
    quiet: options.Quiet = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one line per text, a JSON object, in the order of the texts.",
            rich_help_panel="Output",
        ),
    ] = False,
) -> None:
    """Answer texts: with a label and its confidence, tags, a number, or text.

    For question answering, the text is the question and the second text its passage; a file has
    columns "question" and "context". The answer is shown with its character span, the end
    exclusive. For tagging, words are separated by blanks; a row of JSON lines or parquet may hold
    them as a list, "tokens". Spans are shown in brackets, followed by their type; --json has their
    character positions in the words joined by blanks. A row may hold chat "messages"; the answer is
    the next message.

    The confidence is calibrated with the temperature that was fitted on dev rows when the task was
    learned. If the bank holds none, it is the model's plain softmax. Stderr (and each line of
    --json) says which. Everything is read and checked before the first answer.

    [b]Examples[/b]

      cl-graft predict first/grafting/seed0 "What is my balance?" --task scope

      cl-graft predict my_bank --task tickets --file inbox.csv --text body --json > answers.jsonl

      cl-graft predict my_bank --file mixed.jsonl

      head -3 requests.txt | cl-graft predict my_bank --task scope
    """
    from cl_graft.banks.bank_of_run import find_bank_folder
    from cl_graft.banks.input_texts import NoTask, check_texts, drop_instructions
    from cl_graft.banks.open_bank import (
        list_calibration_notes,
        list_entry_notes,
        open_bank,
        predict,
    )
    from cl_graft.data.record_files import Columns
    from cl_graft.runtime.devices import pick_device
    from cl_graft.storage.bank_folder import open_stored_bank

    output, columns = Output(quiet, as_json), Columns(text=text, text_pair=text_pair)
    if texts and file is not None:
        raise InputError("give texts, or a file, not both")
    where = find_bank_folder(bank)
    held = open_stored_bank(where)
    try:
        reading = {"columns": columns, "id_column": id_column, "bank": held}
        asked = _read_input(texts or (), pair or (), file, form, output, task, **reading)
    except NoTask as error:
        names = dict.fromkeys(entry.task for entry in held.entries)
        raise InputError(f"{error}; the bank holds {join_names(names)}") from None
    # Before the model is loaded, which takes longer.
    asked = drop_instructions(held, asked)
    check_texts(held, asked)
    with redirect_prints():
        opened = open_bank(
            where,
            model=model,
            device=pick_device(device or "cpu"),
            trust_remote_code=trust_remote_code,
        )
    tasks = list(dict.fromkeys(str(question.task) for question in asked))
    for describe in (list_entry_notes, list_calibration_notes):
        for note in describe(opened.bank, tasks):
            output.note(note)
    for question, answer in predict(opened, asked, batch_size=batch_size):
        if as_json:
            line = to_json_text(_to_content(question, answer))
        else:
            line = _to_line(question, answer, mixed=len(tasks) > 1, named=id_column is not None)
        sys.stdout.write(f"{line}\n")


def _read_input(
    texts: Sequence[str],
    pairs: Sequence[str],
    file: Path | None,
    form: str,
    output: Output,
    task: str | None,
    **reading: Any,
) -> list[InputText]:
    """Return the texts of the command line, of a file, or of stdin."""
    from cl_graft.banks.input_texts import NoTask, name_texts, parse_texts, read_texts

    if texts:
        return name_texts(texts, task=task, pairs=pairs)
    if pairs:
        raise InputError("--pair goes with texts on the command line")
    if file is not None and str(file) != "-":
        return read_texts(file, task=task, **reading)
    if task is None and form == "txt":  # before anybody types
        raise NoTask("say which task is to answer, with --task")
    if sys.stdin.isatty():
        output.note("a text a line; Ctrl-D ends")
    return parse_texts(sys.stdin.buffer.read(), form, task=task, **reading)


def _to_content(asked: InputText, answer: Answer) -> dict[str, Any]:
    content = {
        "place": asked.origin,
        "task": asked.task,
        "entry": answer.entry,
        "label": answer.label,
        "confidence": answer.confidence,
        "calibrated": answer.temperature is not None,
        "temperature": answer.temperature,
        "probabilities": answer.probabilities,
        "logits": answer.logits,
    }
    if asked.id is not None:
        content["id"] = asked.id
    if answer.labels is not None:
        content["labels"] = answer.labels
    if answer.spans or answer.tags:
        content["spans"] = [asdict(span) for span in answer.spans]
    if answer.tags:
        content |= {"tokens": asked.text.split(), "tags": answer.tags}
    return content


def _to_line(asked: InputText, answer: Answer, *, mixed: bool, named: bool) -> str:
    """Write id, label, confidence, task where there are several, and the text, with tabs between.

    An answer in a passage has its place there, ``start:end``, for a confidence.
    """
    sure = "–" if answer.confidence is None else f"{answer.confidence:.3f}"
    if answer.spans and not answer.tags:
        sure = f"{answer.spans[0].start}:{answer.spans[0].end}"
    label = f"{answer.label:.4g}" if isinstance(answer.label, float) else answer.label or "–"
    text = _mark_spans(asked.text, answer) if answer.tags else asked.text
    shown = " / ".join(filter(None, [text, asked.pair]))
    parts = [*(["–" if asked.id is None else str(asked.id)] if named else []), label, sure]
    parts += [str(asked.task)] if mixed else []
    return "\t".join(for_terminal(" ".join(part.split())) for part in [*parts, shown])


def _mark_spans(text: str, answer: Answer) -> str:
    """Write words with their spans in brackets, as ``[New York](place)``."""
    whole, done, parts = " ".join(text.split()), 0, []
    for span in answer.spans:
        parts += [whole[done : span.start], f"[{span.text}]({span.type})"]
        done = span.end
    return "".join([*parts, whole[done:]])
