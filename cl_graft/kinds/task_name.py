"""Names of tasks, which appear in commands, reports and curves and in the names of files."""

from __future__ import annotations

from unicodedata import category, normalize

from cl_graft.errors import InputError

_LONGEST = 100
_JOINERS = "\u200c\u200d"
"""Characters without a shape, which some scripts need between letters."""


def check_task_name(name: str) -> str:
    r"""Return a task's name in Unicode's composed form (NFC), if it is one.

    Letters and digits of any script make a name. The composed form is that of every keyboard;
    some systems store file names in another one.

    Raises:
        InputError: If it holds anything but letters, digits, '.', '_' and '-', begins with a dot or
            a combining mark, or is longer than 100 characters.

    Examples:
        >>> check_task_name("topic-2"), check_task_name("cafe\u0301")
        ('topic-2', 'café')
    """
    found = normalize("NFC", name)
    fits = map(_fits, ("", *found), found)
    if not 0 < len(found) <= _LONGEST or not all(fits):
        raise InputError(
            f"task name {name[:120]!r} cannot name a file: use up to {_LONGEST} letters and digits "
            "of any script, '.', '_' or '-' (no leading dot)"
        )
    return found


def _fits(before: str, character: str) -> bool:
    """Tell whether a name may hold a character behind another one, which is empty at its start."""
    if character in _JOINERS:
        return before > "\x7f" and category(before)[0] in "LM"
    if character == "." or category(character)[0] == "M":
        return bool(before)
    return character in "_-" or category(character)[0] in "LN"
