"""A tiny Llama as a GGUF file, written as llama.cpp's converter writes one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants
from tiny_models import tiny_gpt2
from transformers import LlamaConfig, LlamaForCausalLM

_NAMES = {
    "input_layernorm": "attn_norm",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.k_proj": "attn_k",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_proj": "attn_q",
    "self_attn.v_proj": "attn_v",
}
_WIDTH, _HEADS, _KEYS = 32, 4, 2


def llama_weights(vocabulary: int, *, layers: int = 2) -> dict[str, torch.Tensor]:
    """Weights of a Llama with tied embeddings, by their names in transformers."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=_WIDTH,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KEYS,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = LlamaForCausalLM(config).state_dict()
    return {name: value for name, value in weights.items() if name != "lm_head.weight"}


def write_llama(
    path: Path,
    folder: Path,
    *,
    architecture: str = "llama",
    layers: int = 2,
    quantized: bool = False,
) -> dict[str, torch.Tensor]:
    """Write the GGUF file, and the tokenizer's checkpoint to `folder`; returns the weights.

    Quantized matrices are in blocks of Q8_0, and the weights returned are what they stand for.
    """
    tokenizer = json.loads((tiny_gpt2(folder) / "tokenizer.json").read_text())["model"]
    tokens = list(tokenizer["vocab"])
    weights = llama_weights(len(tokens), layers=layers)
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(256)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, value in weights.items():
        stored = value.numpy()
        heads = _HEADS if "q_proj" in name else _KEYS if "k_proj" in name else 0
        if quantized and value.ndim == 2:
            blocks = quants.quantize(stored, GGMLQuantizationType.Q8_0)
            stored = quants.dequantize(blocks, GGMLQuantizationType.Q8_0)
            weights[name] = torch.from_numpy(stored.copy())
        if heads:  # llama.cpp turns halves of heads, transformers' rotation, into pairs
            halves = stored.reshape(heads, 2, -1, _WIDTH)
            stored = halves.swapaxes(1, 2).reshape(stored.shape)
        if quantized and value.ndim == 2:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(_name(name), quants.quantize(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(_name(name), np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _name(name: str) -> str:
    """A tensor's name in GGUF."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_NAMES[rest.removesuffix('.weight')]}.weight"
