"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cl_graft.errors import InputError

__all__ = [
    "As_json",
    "Data",
    "Device",
    "Model",
    "Moved",
    "On_bad_row",
    "Quiet",
    "Resume",
    "Sets",
    "Text",
    "Text_pair",
    "Trusted",
    "refuse_others",
]

_LOOKS = "How it looks"

Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, only results.", rich_help_panel=_LOOKS)
]
As_json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="The result as one JSON document on stdout, nothing else there.",
        rich_help_panel=_LOOKS,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set any field of the config, as in --set steps=200; may be repeated.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the data, with one folder or file a task.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="'minilm', a hub name such as FacebookAI/roberta-base, or a checkpoint's folder.",
        show_default=False,
    ),
]
Moved = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Where the base model is now, if it is no longer where the bank says.",
        show_default=False,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Go on with what was stopped or killed there; settings are those it began with.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="cpu, cuda, …", show_default=False),
]
Text = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the text.", show_default=False)
]
Text_pair = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of the second text.", show_default=False),
]
Trusted = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the checkpoint.")
]
On_bad_row = Annotated[
    str | None,
    typer.Option(
        metavar="error|skip",
        help="Refuse data with a row that cannot be used, or leave such rows out and count them.",
        show_default=False,
    ),
]


def refuse_others(option: str, config: Path | None, sets: list[str] | None, others: object) -> None:
    """Refuse settings beside an option that takes them from a folder.

    Raises:
        InputError: If there are any.
    """
    if config is not None or sets or others:
        raise InputError(
            f"{option} goes on with the settings that the folder holds: give no others"
        )
