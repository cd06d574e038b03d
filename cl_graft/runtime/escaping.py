"""Escaping of text that others wrote, such as names of tasks, with one function for each target."""

from __future__ import annotations

import json
import re
from typing import Any
from unicodedata import category

from cl_graft.errors import a_or_an

_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode that are not seen but act: controls, formats (among them those that turn
the direction of the text after them), halves of characters, and separators of lines."""
_TURNS_TEXT = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_JSON_CONTROLS = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0001-\U000e007f]"
)
"""Characters that act, and that JSON may hold as they are."""
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,]+(?: ± [\d.,]+| \[[-\d., ]+\])?$)")
"""The begin of what a spreadsheet would compute."""
_MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
    }
)


def control_in(text: str) -> str | None:
    """Return the first character that no name may hold, as ``"U+202E"``; None if there is none.

    Joiners stay allowed, as some scripts need them.
    """
    if text.isascii() and text.isprintable():
        return None
    for character in text:
        if character in _TURNS_TEXT or category(character) in ("Cc", "Cs", "Zl", "Zp"):
            return f"U+{ord(character):04X}"
    return None


def for_terminal(text: str) -> str:
    """Write as escapes what a terminal would obey or not show; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if category(character) in _CONTROLS and character not in "\n\t"
        else character
        for character in text
    )


def for_markdown(text: str) -> str:
    """Write a text as one line of Markdown, in a sentence or in the cell of a table."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", for_terminal(" ".join(text.split())))
    return escaped.translate(_HTML)


def for_markdown_code(text: str) -> str:
    """Write a text as a code span of Markdown, between enough backticks, on one line."""
    shown = for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def for_python(value: object) -> str:
    """Write a text, a number, or a list of them as an expression of Python."""
    if isinstance(value, list):
        return f"[{', '.join(map(for_python, value))}]"
    if value is not None and type(value) not in (str, int, float, bool):
        raise TypeError(f"{a_or_an(type(value).__name__)} is no literal of Python here")
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text


def for_latex(text: str) -> str:
    """Write a text for LaTeX so that none of it is a command."""
    return for_terminal(" ".join(text.split())).translate(_LATEX)


def for_csv(text: str) -> str:
    """Return text for a cell of a CSV file that a spreadsheet opens: never a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def for_json(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """Write JSON in which no character acts on a terminal; reading it gives the same value."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    return _JSON_CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], text)
