"""The errors that callers must tell apart.

Everything else is a plain `ValueError` or `TypeError`. `InputError` is for what a user typed or
brought along (names, files, settings): the command line prints its sentence and exits with 2,
without a traceback. The `BankError` family is for files of ours: grafts, banks, results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

_LISTED = 40
_FEW = 12
"""Names that are listed whole beside a hint."""
_Row = TypeVar("_Row")


class InputError(ValueError):
    """A name, a file or a setting that the user gave cannot be used."""


class InUse(InputError):
    """Another process writes to the folder."""


class CannotWrite(InputError, OSError):
    """The disk is full, read-only, or closed to this process."""


class DivergedError(RuntimeError):
    """A loss, a gradient, a score or a weight became NaN or infinite."""

    task: str | None = None
    """The task, once it is known."""
    before_any_step = "no step was taken yet, so the base or the data are not finite"
    """Why it came at the first loss."""


class NotFinite(DivergedError, ValueError):
    """Values that were to be ranked or scored hold NaN or infinities."""


class OutOfMemory(RuntimeError):
    """A phase needed more memory than there is."""

    task: str | None = None
    """The task, once it is known."""


class BankError(ValueError):
    """A graft, a bank or another file of ours cannot be used.

    Examples:
        >>> issubclass(DamagedFile, BankError), issubclass(InputError, BankError)
        (True, False)
    """


class WrongBase(BankError):
    """The graft belongs to another base model: same architecture, other weights."""


class WrongTokenizer(WrongBase):
    """The weights are those of the graft's base, but another tokenizer cuts its texts."""


class WrongArchitecture(BankError):
    """The graft belongs to a model with other parameters (names, shapes or number)."""


class DamagedFile(BankError):
    """The file is one of ours, but altered."""


class TruncatedFile(DamagedFile):
    """The file is one of ours, but its end is missing."""


class ForeignFile(BankError):
    """The file is not one of ours."""


class FutureVersion(BankError):
    """Another version of the package wrote the file."""


def a_or_an(noun: str) -> str:
    """Return a noun with its article, as ``"an extractive QA task"``.

    Examples:
        >>> a_or_an("encoder"), a_or_an("bank")
        ('an encoder', 'a bank')
    """
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def brief(value: object) -> str:
    """Write a value into a message: a text in quotes, anything else without, at most 60 characters.

    Examples:
        >>> brief("5"), brief(5), brief(None)
        ("'5'", '5', 'None')
    """
    return repr(value[:60]) if isinstance(value, str) else str(value)[:60]


def find(table: Mapping[str, _Row], name: str, *, missing: str) -> _Row:
    """Look a name up in a table.

    Args:
        table: Values by name.
        name: Name to look up.
        missing: Beginning of the message where the name is unknown, such as ``"unknown strategy"``.

    Raises:
        InputError: If the name is unknown; the message names the nearest one.

    Examples:
        >>> find({"naive": 1, "lora": 2}, "lora", missing="unknown strategy")
        2
        >>> find({"naive": 1, "lora": 2}, "loar", missing="unknown strategy")
        Traceback (most recent call last):
            ...
        cl_graft.errors.InputError: unknown strategy 'loar': did you mean 'lora'? Known: lora, naive
    """
    if name not in table:
        raise InputError(f"{missing} {name!r}: {nearest(name, table)}")
    return table[name]


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error's message without its full stop, or the error's kind.

    Examples:
        >>> first_line(ValueError("No such task.\nThere are two others."))
        'No such task'
        >>> first_line(KeyboardInterrupt())
        'KeyboardInterrupt'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def join_names(names: Iterable[str]) -> str:
    """Join names with commas; of very many, only the first.

    Examples:
        >>> join_names(["topic", "scope"])
        'topic, scope'
    """
    known = list(names)
    more = f", … ({len(known):,} in all)" if len(known) > _LISTED else ""
    return ", ".join(known[:_LISTED]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is nearest to `name`, and list all where they are few.

    Returns:
        Text such as ``did you mean 'qnli'? Known: ag_news, qnli``; of many names the nearest alone,
        or the first few where none is near.

    Examples:
        >>> nearest("qnil", ["ag_news", "qnli"])
        "did you mean 'qnli'? Known: ag_news, qnli"
    """
    names = sorted(known)
    close = get_close_matches(name, names[:1000], n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else ""
    if len(names) <= _FEW:
        return f"{hint} Known: {join_names(names)}".strip()
    return hint or f"Known: {', '.join(names[:_FEW])}, … ({len(names):,} in all)"
