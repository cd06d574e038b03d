"""Tiny random checkpoints in the layout of real ones, for tests.

Each function saves a model with random weights (hidden size 32, two layers, a masked-LM or
causal-LM head) and a tokenizer made from `CORPUS` to a folder, from which `AutoModel`,
`AutoTokenizer` and `cl_graft.models.load_model` read it as they would read the published checkpoint
of that family. The special tokens follow the published tokenizers: GPT-2 and Llama have no padding
token, RoBERTa pads with id 1 and has one segment type, DistilBERT takes no segments.

The words of `LABEL_WORDS` are one token in every tokenizer, also with a space in front.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from family_tokenizers import ROBERTA_TOKENS, byte_level
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import cl_graft  # noqa: F401  before transformers, which imports torchvision where it finds it

# isort: split
import transformers
from transformers import PreTrainedTokenizerFast

LABEL_WORDS: tuple[str, ...] = (
    "great", "terrible", "good", "bad", "yes", "no", "maybe", "positive", "negative", "correct",
    "incorrect", "world", "sports", "business", "technology", "objective", "subjective", "similar",
    "Yes", "No", "Maybe", "World", "Sports", "Business", "Tech", "Great", "Terrible",
)  # fmt: skip

_PARAGRAPHS: tuple[str, ...] = (
    "The film is a warm, funny and moving story about two sisters who grow up by the sea.",
    "It was dull from the first scene to the last, and nobody in the audience laughed once.",
    "A slow and empty picture. The actors do what they can, but the writing gives them nothing.",
    "This phone is small and light, and the battery lasts for two days; I would buy it again.",
    "The screen broke after a week. The shop did not answer my letters. Do not buy this!",
    "The minister met the president on Monday to talk about trade, oil prices and the war.",
    "The team won the final match by three goals to one, after ninety minutes in the rain.",
    "Shares of the company fell by ten percent when it said that profits would be lower.",
    "A new chip makes computers faster and needs half of the energy, researchers said.",
    "Who wrote the book? It was written by a teacher in a small town near the mountains.",
    "What is the largest river of the country? How many people live there? When did it start?",
    "A man is playing a guitar on the street. A woman in a red dress is walking with her dog.",
    "Two children are running on the beach. Nobody is outside because it is very cold today.",
    "If the weather is good, they will travel to the north; otherwise they stay at home.",
    "The answer follows from the sentence, does not follow from it, or says the opposite.",
    "Once upon a time there was a little girl named Lily. She liked to play in the park.",
)

CORPUS: tuple[str, ...] = _PARAGRAPHS + tuple(
    f"{word} {word} it was {word}. {word}, {word}" for word in LABEL_WORDS for _ in range(12)
)


def tiny_bert(path: Path) -> Path:
    """Save a BERT with segments (vocabulary of 2 types) to `path` and return it."""
    return _save(
        path,
        transformers.BertForMaskedLM,
        _small(transformers.BertConfig(type_vocab_size=2)),
        _wordpiece(),
    )


def tiny_distilbert(path: Path) -> Path:
    """Save a DistilBERT, which takes no segments, to `path` and return it."""
    sizes = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "pad_token_id": 0}
    config = transformers.DistilBertConfig(
        **sizes, max_position_embeddings=256, initializer_range=0.1
    )
    return _save(path, transformers.DistilBertForMaskedLM, config, _wordpiece(segments=False))


def tiny_electra(path: Path) -> Path:
    """Save an ELECTRA generator, whose embeddings are narrower than its blocks, to `path`."""
    config = _small(transformers.ElectraConfig(embedding_size=16, type_vocab_size=2))
    return _save(path, transformers.ElectraForMaskedLM, config, _wordpiece())


def tiny_roberta(path: Path) -> Path:
    """Save a RoBERTa (byte-level BPE, padding id 1, positions from 2) to `path` and return it."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = _byte_level(special)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    mask = AddedToken("<mask>", lstrip=True, special=True)
    fast = _fast(tokenizer, **ROBERTA_TOKENS, mask_token=mask)
    config = transformers.RobertaConfig(
        type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2
    )
    config = _small(config, max_position_embeddings=258)
    return _save(path, transformers.RobertaForMaskedLM, config, fast)


def tiny_gpt2(path: Path) -> Path:
    """Save a GPT-2 (byte-level BPE, one special token, no padding token) to `path`."""
    fast = _fast(_byte_level([_END]), bos_token=_END, eos_token=_END, unk_token=_END)
    return _save_gpt2(path, fast)


def tiny_llama(path: Path) -> Path:
    """Save a Llama (grouped-query attention, `<s>` in front, no padding token) to `path`."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    fast = _fast(tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    ends = {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
    heads = {"num_key_value_heads": 2, "max_position_embeddings": 256}
    config = transformers.LlamaConfig(**_SIZES, **heads, **ends)
    return _save(path, transformers.LlamaForCausalLM, config, fast)


CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_chat(path: Path) -> Path:
    """Save a GPT-2 with ChatML's tokens and template to `path`."""
    marks = ["<|im_start|>", "<|im_end|>"]
    ends = {"bos_token": _END, "eos_token": _END, "unk_token": _END}
    fast = _fast(_byte_level([_END, *marks]), additional_special_tokens=marks, **ends)
    fast.chat_template = CHAT_TEMPLATE
    return _save_gpt2(path, fast)


def tiny_t5(path: Path) -> Path:
    """Save a T5 (an encoder-decoder with relative positions, tied and scaled head) to `path`."""
    fast = _with_end(["<pad>", "</s>", "<unk>"])
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = transformers.T5Config(**sizes, **ids, dropout_rate=0.0)
    return _save(path, transformers.T5ForConditionalGeneration, config, fast)


def tiny_bart(path: Path) -> Path:
    """Save a BART (an encoder-decoder with learned positions, tied head) to `path`."""
    fast = _with_end(["<pad>", "</s>", "<unk>", "<s>"], begin="<s>")
    half = {"layers": 2, "ffn_dim": 64, "attention_heads": 4}
    sizes = {f"{part}_{name}": half[name] for part in ("encoder", "decoder") for name in half}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 3, "decoder_start_token_id": 1}
    config = transformers.BartConfig(
        d_model=32, **sizes, **ids, max_position_embeddings=256, init_std=0.1, forced_eos_token_id=1
    )
    return _save(path, transformers.BartForConditionalGeneration, config, fast)


def _with_end(special: list[str], begin: str = "") -> PreTrainedTokenizerFast:
    """Make a byte-level tokenizer that ends every text with ``</s>``."""
    tokenizer = _byte_level(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A </s>".strip(),
        pair=f"{begin} $A </s> $B </s>".strip(),
        special_tokens=[(one, special.index(one)) for one in ("</s>", begin) if one],
    )
    more = {"bos_token": begin} if begin else {}
    return _fast(tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", **more)


def one_layer_config(model: Path, folder: Path) -> Path:
    """Write a model's config with one layer, of which a plan takes half the time."""
    config = json.loads((model / "config.json").read_text())
    layers = "n_layer" if "n_layer" in config else "num_hidden_layers"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {layers: 1}))
    return folder


BUILDERS = {
    "bart": tiny_bart,
    "chat": tiny_chat,
    "t5": tiny_t5,
    "bert": tiny_bert,
    "distilbert": tiny_distilbert,
    "electra": tiny_electra,
    "gpt2": tiny_gpt2,
    "llama": tiny_llama,
    "roberta": tiny_roberta,
}

_SIZES = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.1}
_SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4}
_VOCABULARY = 800
_END = "<|endoftext|>"


def _small(
    config: transformers.PreTrainedConfig, *, max_position_embeddings: int = 256
) -> transformers.PreTrainedConfig:
    """Set the sizes that BERT, ELECTRA and RoBERTa name alike, and return the configuration."""
    config.update({**_SIZES, "max_position_embeddings": max_position_embeddings})
    return config


def _wordpiece(*, segments: bool = True) -> PreTrainedTokenizerFast:
    """Make an uncased WordPiece tokenizer of the corpus' words, with BERT's special tokens.

    The vocabulary is written down, not trained: WordPiece training breaks ties at random.
    """
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer = normalizers.BertNormalizer(lowercase=True)
    splitter = pre_tokenizers.BertPreTokenizer()
    words = {
        word
        for text in CORPUS
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    }
    letters = {letter for word in words for letter in word}
    pieces = [*special, *sorted(words | letters), *sorted(f"##{letter}" for letter in letters)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.WordPiece()
    second = 1 if segments else 0
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_max_length=256,
        model_input_names=inputs if segments else [inputs[0], inputs[2]],
    )


def _byte_level(special: list[str]) -> Tokenizer:
    return byte_level(special, texts=CORPUS, vocabulary=_VOCABULARY)


def _fast(tokenizer: Tokenizer, **special: Any) -> PreTrainedTokenizerFast:
    """Make a tokenizer of transformers, without segments, from one of tokenizers."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=256,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )


def _save_gpt2(path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(initializer_range=0.1, **sizes, **ends)
    return _save(path, transformers.GPT2LMHeadModel, config, tokenizer)


def _save(
    path: Path,
    architecture: type[transformers.PreTrainedModel],
    config: transformers.PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
) -> Path:
    """Save a model with seeded random weights, and its tokenizer, to `path` and return it."""
    config.vocab_size = len(tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = architecture(config)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
