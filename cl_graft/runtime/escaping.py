"""Escaping of text that others wrote, such as names of tasks, with one function for each target."""

from __future__ import annotations

import html
import re
from unicodedata import category

_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode that are not seen but act: controls, formats (among them those that turn
the direction of the text after them), halves of characters, and separators of lines."""
_TURNS_TEXT = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)")
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
    return html.escape(escaped, quote=False)


def for_markdown_code(text: str) -> str:
    """Write a text as a code span of Markdown, between enough backticks, on one line."""
    shown = for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def for_latex(text: str) -> str:
    """Write a text for LaTeX so that none of it is a command."""
    return for_terminal(" ".join(text.split())).translate(_LATEX)
