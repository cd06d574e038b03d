"""The options of the commands: settings made from the config, and what several commands share.

A setting's option has the type, the description and the default of the setting itself. The
frequent ones have options of their own; all can be given by ``--set part.field=value``.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cl_graft.errors import InputError
from cl_graft.runtime.settings import list_fields
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.parts import PARTS

_OUTPUT = "Output"


def option(metavar: str, help: str, *names: str, panel: str | None = None) -> Any:
    """Return an option with a value, named after its parameter where no name is given."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=help)


Bank = Annotated[Path, argument("BANK", "A bank, or a run of grafting.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=_OUTPUT)
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON document on stdout, and nothing else there.",
        rich_help_panel=_OUTPUT,
    ),
]
Sets = Annotated[
    list[str] | None,
    option(
        "PART.FIELD=VALUE",
        "Set any field of the config, as in --set fine_tuning.weight_decay=0; may be repeated.",
        "--set",
    ),
]
MovedModel = Annotated[
    str | None,
    option("NAME", "Where the base model is now, if not where the bank says.", "--model"),
]
RUNS = Path("runs")
Out = Annotated[Path | None, option("DIR", f"Where to write. Default: {RUNS}.")]
Resume = Annotated[
    Path | None, option("DIR", "Continue the run or comparison in this folder, with its settings.")
]
Data = Annotated[
    Path | None,
    option("DIR", "Folder of the data, with one folder or file per task, or a task's own."),
]
Device = Annotated[
    str | None, option("NAME", "Device to compute on: cpu, cuda, or auto (a GPU if there is one).")
]
Text = Annotated[str | None, option("COLUMN", "Column of the text.")]
TextPair = Annotated[str | None, option("COLUMN", "Column of the second text.")]
Label = Annotated[str | None, option("COLUMN", "Column of the label.")]
TrustRemoteCode = Annotated[
    bool, flag("--trust-remote-code", "Run code that comes with the checkpoint.")
]


def _of(part: str, *names: str) -> dict[str, str]:
    """Return the settings of a part whose options have their names."""
    return {name: f"{part}.{name}" for name in names}


_SHARED = {
    "The stream": {
        "stream": "stream.name",
        **_of("stream", "tasks", "data", "scenario", "classes_per_experience", "text", "text_pair"),
        **_of("stream", "label", "shots", "max_length", "max_test", "on_bad_row"),
    },
    "The model": {
        "model": "model.name",
        **_of("model", "family", "pooling", "dtype", "precision", "gradient_checkpointing"),
        **_of("model", "device", "trust_remote_code"),
    },
    "Training": {
        "preset": "preset",
        **_of("fine_tuning", "steps", "batch_size", "micro_batch", "lr"),
        **_of("training", "eval_batch"),
    },
    "The region": {
        **_of("grafting", "density", "localizer", "mode"),
        "region_lr": "grafting.lr",
        **_of("grafting", "mask_candidates"),
    },
}
"""The settings with an option in every command that trains, by panel: option and dotted name."""

COMPARED = {
    "What is compared": _of("comparison", "strategies", "seeds", "orders", "tune", "bytes_per_task")
}
"""The settings that only a comparison reads."""


@dataclass(frozen=True)
class Chosen:
    """The settings that a command line gave, and the option that gave each, by dotted name."""

    values: Mapping[str, object]
    options: Mapping[str, str]

    def also(self, name: str, value: object, option: str) -> Chosen:
        """Return these and one more, if it was given."""
        if value is None:
            return self
        return Chosen({**self.values, name: value}, {**self.options, name: option})

    def trust(self) -> tuple[bool, Chosen]:
        """Return whether code of a checkpoint may run, and the other settings."""
        trusted = bool(self.values.get("model.trust_remote_code"))
        others = {n: v for n, v in self.values.items() if n != "model.trust_remote_code"}
        return trusted, Chosen(others, self.options)


def with_settings(
    *,
    without: tuple[str, ...] = (),
    more: Mapping[str, Mapping[str, str]] | None = None,
    defaults: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the frequent settings, as its argument `chosen`.

    `without` names options that the command says otherwise or does not read, `more` has further
    ones by panel. With `defaults` an option tells the default of its setting.
    """
    panels = {
        panel: {name: setting for name, setting in group.items() if name not in without}
        for panel, group in {**_SHARED, **(more or {})}.items()
    }
    settings = {name: setting for group in panels.values() for name, setting in group.items()}

    def give(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += _options(panels, defaults) if parameter.name == "chosen" else [parameter]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            options = {name: given.pop(name) for name in settings if name in given}
            said = {name: value for name, value in options.items() if value is not None}
            chosen = Chosen(
                {settings[name]: value for name, value in said.items()},
                {settings[name]: _flag(name) for name in said},
            )
            command(chosen=chosen, **given)

        keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = signature.replace(parameters=keyword)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in keyword}
        return run

    return give


def refuse_others(config: Path | None, sets: list[str] | None, others: object) -> None:
    """Raise an InputError if settings are given beside ``--resume``, which has its own."""
    if config is not None or sets or others:
        raise InputError("--resume goes on with the settings that the folder holds: give no others")


def _options(
    panels: Mapping[str, Mapping[str, str]], defaults: bool
) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each setting, as typer reads it."""
    for panel, settings in panels.items():
        for name, setting in settings.items():
            part, dot, field = setting.rpartition(".")
            described = list_fields(PARTS[part] if dot else ExperimentConfig)[field]
            yield _option(name, described, panel, defaults)


def _option(name: str, field: Any, panel: str, defaults: bool) -> inspect.Parameter:
    # A size may be given with its unit.
    kind, metavar = (str, "BYTES") if name == "bytes_per_task" else _kind(field.annotation)
    has_default = defaults and not field.is_required()
    default = field.get_default(call_default_factory=True) if has_default else None
    shown = "" if default in (None, False, [], {}) else f" Default: {_show_default(default)}."
    option = typer.Option(
        _flag(name),
        metavar=None if kind is bool else metavar,
        help=f"{field.description}{shown}",
        rich_help_panel=panel,
    )
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _kind(annotation: Any) -> tuple[type, str]:
    """Return the type that typer reads an option as, and how its value is written."""
    origin = typing.get_origin(annotation)
    parts = typing.get_args(annotation)
    # A function is for Python alone.
    inner = [p for p in parts if p is not type(None) and not hasattr(p, "__metadata__")]
    if origin is typing.Literal:
        return str, "|".join(map(str, inner))
    if origin is list:
        return str, "A,B,C"
    if origin in (types.UnionType, typing.Union):
        kinds = [_kind(part) for part in inner]
        kind = kinds[0][0] if len(kinds) == 1 else str
        return kind, "|".join(metavar for _, metavar in kinds)
    metavars = {int: "N", float: "X", Path: "DIR", str: "TEXT", bool: ""}
    return annotation, metavars[annotation]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _show_default(default: object) -> str:
    if isinstance(default, list):
        return ",".join(map(str, default))
    return default if isinstance(default, str) else json.dumps(default)
