"""Loading: what works, and one sentence for what does not."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers import AutoTokenizer

from cl_graft.banks.open_bank import load_base
from cl_graft.errors import InputError
from cl_graft.models import load, load_model
from cl_graft.settings import config_from
from cl_graft.settings.bank_metadata import base_identity, load_base_model


def test_a_path_is_a_name_and_a_model_in_memory_is_answered_with_how_to_save_it(tiny_bert):
    loaded = load_model(tiny_bert)
    assert loaded.name == str(tiny_bert)
    for wrong in (loaded.model.backbone, loaded, None):
        with pytest.raises(InputError, match=r"got an? \w+; model\.save_pretrained\(folder\)"):
            load_model(wrong)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra", "roberta", "gpt2", "llama"])
def test_an_encoder_is_loaded_bit_for_bit_and_without_a_pooler(request, kind):
    path = request.getfixturevalue(f"tiny_{kind}")
    loaded = load_model(str(path))
    head = "causal_lm" if kind in ("gpt2", "llama") else "masked_lm"
    whole = load_model(str(path), family=head).model.backbone.base_model.state_dict()
    parts = loaded.model.backbone.state_dict()
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[key], whole[key]) for key in parts)
    assert not any("pooler" in name for name in parts)
    assert not loaded.model.training
    assert (loaded.name, loaded.path) == (str(path), path)
    assert len(loaded.tokenizer) == loaded.model.backbone.config.vocab_size


def test_loading_is_quiet_and_gives_the_verbosity_back(tiny_bert, capfd, caplog):
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load_model(str(tiny_bert))
    with pytest.raises(InputError):
        load_model(str(tiny_bert), family="causal_lm")
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "encodr"}, "no model family 'encodr': did you mean 'encoder'"),
        ({"dtype": "bf16"}, "no dtype 'bf16'"),
        ({"pooling": "max"}, "no pooling 'max'"),
        ({"family": "causal_lm"}, "reads in both directions"),
    ],
)
def test_a_setting_that_cannot_be_is_named(tiny_bert, settings, message):
    with pytest.raises(InputError, match=message):
        load_model(str(tiny_bert), **settings)


def test_a_checkpoint_without_the_family_s_head_is_not_filled_at_random(tiny_bert, tmp_path):
    loaded = load_model(str(tiny_bert))
    loaded.model.backbone.save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    load_model(str(tmp_path))
    with pytest.raises(InputError, match=r"lacks \d+ of the weights.*saved from BertModel"):
        load_model(str(tmp_path), family="masked_lm")


def copied(folder, target):
    return shutil.copytree(folder, target / "copy")


def test_an_encoder_decoder_that_names_no_token_to_begin_with_is_refused(tiny_t5, tmp_path):
    folder = copied(tiny_t5, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["decoder_start_token_id"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json names no decoder_start_token_id"):
        load_model(str(folder), family="seq2seq_lm")


def test_folders_that_hold_no_checkpoint_are_refused_in_one_sentence(tiny_bert, tmp_path):
    with pytest.raises(InputError, match="expected a folder with config"):
        load_model(str(tmp_path))
    (tmp_path / "tiny.gguf").touch()
    for quantized in (tmp_path, tmp_path / "tiny.gguf"):
        with pytest.raises(InputError, match="give the checkpoint that it was made from"):
            load_model(str(quantized))
    folder = copied(tiny_bert, tmp_path)
    (folder / "config.json").write_text(json.dumps({"optimizer": "adam"}))
    with pytest.raises(InputError, match="cannot read its config"):
        load_model(str(folder))
    shutil.copy(tiny_bert / "config.json", folder)
    for name in ("tokenizer.json", "config.json"):
        for content in (b"[]", b"{", b"\xed\xb3\xbf"):
            (folder / name).write_bytes(content)
            with pytest.raises(InputError, match=f"cannot read its {name.split('.')[0]}"):
                load_model(str(folder))


@pytest.mark.parametrize("texts", ["single", "pair"])
def test_a_tokenizer_that_fails_at_its_first_text_is_refused(tiny_bert, tmp_path, texts):
    folder = copied(tiny_bert, tmp_path)
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["post_processor"][texts][-1]["SpecialToken"]["id"] = "[END]"
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    with pytest.raises(InputError, match="tokenizer"):
        load_model(str(folder))


def test_a_tokenizer_larger_than_the_embeddings_is_refused_when_it_is_loaded(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    size = len(tokenizer)
    tokenizer.add_tokens(["entirelynew"])
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=rf"gives ids up to {size}, .* embeddings for {size}"):
        load_model(str(tmp_path / "model"))


def test_damaged_or_missing_weights_are_refused(tiny_bert, tmp_path):
    folder = copied(tiny_bert, tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    for damage in (lambda: None, weights.unlink):
        damage()
        with pytest.raises(InputError, match="cannot read its weights"):
            load_model(str(folder))


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "llama"])
def test_a_checkpoint_without_a_tokenizer_is_refused(request, kind, tmp_path):
    folder = copied(request.getfixturevalue(f"tiny_{kind}"), tmp_path)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(InputError, match="tokenizer"):
        load_model(str(folder))


def test_code_in_a_checkpoint_does_not_run_unless_asked_for(tiny_bert, tmp_path):
    folder = copied(tiny_bert, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "strange.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "strange.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match="trust_remote_code"):
        load_model(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", "not a name"])
def test_a_name_that_can_only_be_a_missing_folder_is_refused_at_once(name):
    with pytest.raises(InputError, match="no such folder"):
        load_model(name)


def test_a_hub_id_that_cannot_be_had_is_refused_within_seconds():
    start = time.monotonic()
    with pytest.raises(InputError, match=r"no model 'cl-graft/no-such-model'.*cache has no copy"):
        load_model("cl-graft/no-such-model")
    assert time.monotonic() - start < 20


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """An empty cache of the hub, which does not answer, as if its variables had been set."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("offline")
def test_a_cached_hub_id_loads_without_the_network_and_a_bank_loads_the_revision_of_its_base(
    tiny_bert, tmp_path
):
    old, new = "0" * 40, "1" * 40
    folder = tmp_path / "models--owner--tiny"
    for revision in (old, new):
        shutil.copytree(tiny_bert, folder / "snapshots" / revision)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(new)
    cached = load_model("owner/tiny")
    assert (cached.path.name, cached.revision) == (new, new)
    config = config_from({"model": {"name": "owner/tiny"}, "stream": {"tasks": ["scope"]}})
    base = base_identity(load_base_model(config.model), config, seed=0)
    assert base.metadata["revision"] == new
    assert load_base(base).path.name == new
    earlier = replace(base, metadata={**base.metadata, "revision": old})
    assert load_base(earlier).path.name == old


@dataclass
class Trap:
    """A pickle that creates a file when it is read."""

    path: Path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_pickled_weights_are_read_without_running_what_is_pickled(tiny_bert, tmp_path):
    folder = copied(tiny_bert, tmp_path)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    parts = load_model(str(folder)).model.backbone.state_dict()
    key = "encoder.layer.1.output.dense.weight"
    assert torch.equal(parts[key], weights[f"bert.{key}"])
    torch.save({**weights, "trap": Trap(tmp_path / "sprung")}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot read its weights"):
        load_model(str(folder))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.usefixtures("offline")
def test_without_package_and_hub_minilm_is_not_offered_in_place_of_itself(monkeypatch):
    monkeypatch.setattr(load, "_MINILM_PACKAGE", "not_installed")
    with pytest.raises(
        InputError, match=r"pip install 'cl-graft\[demo\]'.*or pass a folder"
    ) as said:
        load_model("minilm")
    assert "did you mean" not in str(said.value)
