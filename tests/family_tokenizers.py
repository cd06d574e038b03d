"""Tokenizers of each family: trained here on a little English, or real ones.

Transformers takes seconds to import, so only the fixtures that need it do.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ENGLISH = [
    "The film was great, and the music was even better than the film itself.",
    "It was a terrible day: rain, wind, and nobody who would open the door.",
    "Which river flows through the old town? The river that flows there is narrow.",
    "No, this is not true. Yes, it is true! Maybe the answer is neither, maybe it is both.",
    "A man is playing a guitar; a woman is listening. They know each other well.",
    "Prices rose again this week, said the bank, although the market had hoped for less.",
] * 4
_ENDS = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
ROBERTA_TOKENS = {**_ENDS, "unk_token": "<unk>", "pad_token": "<pad>"}
_WORDS = [f"{lead} {word}" for word in ("great", "terrible", "Yes", "No") for lead in "ab"] * 50


def byte_level(
    special: Sequence[str | AddedToken], *, texts: Iterable[str], vocabulary: int
) -> Tokenizer:
    """Train a byte-level BPE in which every text can be written."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def roberta() -> Any:
    """A byte-level BPE with RoBERTa's frame; its mask takes in the space before it."""
    mask = AddedToken("<mask>", lstrip=True, special=True)
    names = ["<s>", "<pad>", "</s>", "<unk>", mask]
    tokenizer = byte_level(names, texts=ENGLISH + _WORDS, vocabulary=700)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return _fast(tokenizer_object=tokenizer, mask_token=mask, **ROBERTA_TOKENS)


@pytest.fixture(scope="session")
def gpt2() -> Any:
    """A byte-level BPE without frame, padding token or mask."""
    tokenizer = byte_level(["<|endoftext|>"], texts=ENGLISH + _WORDS, vocabulary=700)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    return _fast(tokenizer_object=tokenizer, **ends)


@pytest.fixture(scope="session")
def wordpiece(minilm: Path) -> Any:
    """The WordPiece tokenizer of all-MiniLM-L6-v2: BERT's, with token types."""
    return _load(minilm)


@pytest.fixture(scope="session")
def stories(models_dir: Path) -> Any:
    """A Llama-type tokenizer of a real checkpoint."""
    return _load(models_dir / "stories260k")


def _load(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _fast(**settings: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(model_input_names=["input_ids", "attention_mask"], **settings)
