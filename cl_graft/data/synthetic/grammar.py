"""Steps that all grammars share: drawing a phrase, filling a frame, finishing a sentence."""

from __future__ import annotations

import random
from collections.abc import Sequence


def fill(rng: random.Random, frames: Sequence[str], **phrases: str) -> str:
    """Draw one of `frames` and put `phrases` in its named slots."""
    return rng.choice(frames).format(**phrases)


def finish_sentence(text: str) -> str:
    """Give a sentence its capital letter and, where it has no end mark, its full stop."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else text + "."


def a(noun: str) -> str:
    """Put the indefinite article that the first letter asks for before `noun`."""
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"


def draw_other(rng: random.Random, taken: int, count: int) -> int:
    """Draw an index below `count` that is not `taken`."""
    return (taken + rng.randrange(1, count)) % count


def inflect(phrase: str) -> tuple[str, str, str]:
    """Read a verb phrase as its plain form, its past and its -ing form.

    `"lift/lifted/lifting the cup"` gives `("lift the cup", "lifted the cup", "lifting the cup")`.
    """
    verb, _, rest = phrase.partition(" ")
    plain, past, going = (f"{form} {rest}".strip() for form in verb.split("/"))
    return plain, past, going
