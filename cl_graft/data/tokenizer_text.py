"""What a tokenizer is, as text."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["tokenizer_text"]


def tokenizer_text(tokenizer: Any) -> str:
    """Return a tokenizer's own serialization; of a slow one, its vocabulary and special tokens.

    Truncation and padding are left out: they are settings of the latest call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        content = json.loads(backend.to_str())
        return json.dumps(content | {"truncation": None, "padding": None}, sort_keys=True)
    vocabulary = sorted(tokenizer.get_vocab().items())
    return repr((vocabulary, sorted(tokenizer.special_tokens_map.items())))
