"""Tokenizers of each family, as fixtures."""

from family_tokenizers import gpt2, roberta, stories, wordpiece

__all__ = ["gpt2", "roberta", "stories", "wordpiece"]
