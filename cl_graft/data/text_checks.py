"""What keeps a text from being one that a model can be asked."""

import re
import unicodedata

from cl_graft.data.text_files import MAX_CHARACTERS

__all__ = ["fault_of"]

_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")


def fault_of(text: str) -> str | None:
    """Say what is wrong with a text, as in ``"is empty"``; None if nothing is."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text):,} characters, the limit is {MAX_CHARACTERS:,}"
    if found := _NO_CHARACTER.search(text):
        return (
            f"holds U+{ord(found[0]):04X}, which is half a character or none; it was damaged, or "
            "cut, before it came here"
        )
    if all(unicodedata.category(char) in _INVISIBLE for char in text):
        return "is empty but for invisible characters"
    return None
