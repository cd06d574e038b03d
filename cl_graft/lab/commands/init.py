"""The command `init`: a first config for a folder of data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cl_graft.cli.options import AsJson, Label, Text, TextPair, argument, flag, option
from cl_graft.cli.output import Output, make_table, redirect_prints
from cl_graft.errors import InputError


def init_command(
    data: Annotated[
        Path, argument("DATA", "A folder with one file or folder per task, or one such file.")
    ],
    out: Annotated[Path, option("FILE", "The config to write.")] = Path("stream.yaml"),
    force: Annotated[bool, flag("--force", "Overwrite the file.")] = False,
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    as_json: AsJson = False,
) -> None:
    """Write a config for your own data, with comments, ready for compare.

    Tasks, columns and labels are found and shown. Columns are found by usual names, or by what they
    hold if one alone can be meant; else --text and --label name them. compare finds the same.

    [b]Example[/b]: cl-graft init mydata
    """
    from cl_graft.data.record_files import Columns
    from cl_graft.settings.draft import draft_config
    from cl_graft.storage.files import replace_file

    if out.exists() and not force:
        raise InputError(f"{out} is there already; --force overwrites it, --out names another")
    with redirect_prints():
        draft = draft_config(
            data, columns=Columns(text=text, text_pair=text_pair, label=label), called=str(out)
        )
    replace_file(out, draft.text.encode())
    rows = [
        (
            task.name,
            f"{task.columns.text or '–'}{' (guessed)' if task.guessed else ''}",
            task.columns.text_pair or "–",
            f"{task.columns.label or '–'}{' (guessed)' if task.guessed else ''}",
            ", ".join(f"{label} ({count:,})" for label, count in list(task.labels.items())[:6])
            + (", …" if len(task.labels) > 6 else "" if task.labels else task.asks),
            " / ".join(f"{count:,}" for count in task.rows.values()),
        )
        for task in draft.tasks
    ]
    columns = ("task", "text", "second text", "label", "labels (rows)", "train / dev / test")
    notes = [f"{task.name}: {note}" for task in draft.tasks for note in task.notes]
    notes += [f"Left out: {name}: {reason}" for name, reason in draft.left_out.items()]
    Output(as_json=as_json).result(
        {"config": out, "tasks": draft.tasks, "left_out": draft.left_out},
        make_table(str(data), columns, rows),
        *notes,
        f"Wrote {out}; look at it, then: cl-graft compare {out} --out first",
    )
