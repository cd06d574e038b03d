"""A GGUF file is a plain float model: loaded bit for bit, saved, hashed; a bad one is refused."""

import pytest
import torch

pytest.importorskip("gguf")

from gguf_models import write_llama
from small_runs import Runs
from tiny_runs import cl_graft

from cl_graft.errors import InputError
from cl_graft.lab.commands.plan import plan_command
from cl_graft.models import gguf_file, load_model
from cl_graft.models.config_settings import config_settings, describe_other_settings
from cl_graft.models.load import read_config
from cl_graft.settings.bank_metadata import base_hashes, checkpoint_files


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A GGUF file alone in a folder, and the weights that were written."""
    folder = tmp_path_factory.mktemp("gguf")
    path = folder / "model" / "tiny.gguf"
    path.parent.mkdir()
    return path, write_llama(path, folder / "tokenizer")


@pytest.fixture(scope="module")
def loaded(written):
    return load_model(str(written[0]), family="causal_lm")


def refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_model(name, family="causal_lm")
    assert "\n" not in str(caught.value)


def test_its_weights_are_those_that_were_written_bit_for_bit(written, loaded):
    path, weights = written
    found = loaded.model.backbone.state_dict()
    assert found.keys() == weights.keys() | {"lm_head.weight"}
    assert all(torch.equal(found[name], value) for name, value in weights.items())
    assert loaded.path == path


def test_quantized_weights_become_floats(tmp_path):
    weights = write_llama(tmp_path / "q8.gguf", tmp_path / "tokenizer", quantized=True)
    backbone = load_model(str(tmp_path / "q8.gguf"), family="causal_lm").model.backbone
    found = backbone.state_dict()
    for name, value in weights.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)
    assert {value.dtype for value in found.values()} == {torch.float32}


def test_it_is_a_plain_model_that_trains_and_is_saved(loaded, tmp_path):
    backbone = loaded.model.backbone
    assert not hasattr(backbone.config, "quantization_config")
    backbone.save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    again = load_model(str(tmp_path), family="causal_lm")
    settings = [config_settings(model) for model in (backbone, again.model.backbone)]
    assert describe_other_settings(*settings) == ""
    inputs = torch.tensor([loaded.tokenizer("The film is warm")["input_ids"]])
    logits = backbone(inputs).logits
    assert torch.equal(logits, again.model.backbone(inputs).logits)
    logits.sum().backward()
    assert all(weight.grad is not None for weight in backbone.model.layers.parameters())
    backbone.zero_grad()


def test_its_folder_names_it_and_gives_the_same_base(written, loaded):
    by_folder = load_model(str(written[0].parent), family="causal_lm")
    assert by_folder.path == written[0]
    assert base_hashes(by_folder) == base_hashes(loaded)
    assert checkpoint_files(loaded.path).keys() == {"tiny.gguf"}
    assert read_config(str(written[0]), family="causal_lm").num_hidden_layers == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"GGML" + data[4:],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data[:2000],
        lambda data: data[:-5000],
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(written, tmp_path, change):
    path = tmp_path / "altered.gguf"
    path.write_bytes(change(written[0].read_bytes()))
    refused(str(path), "cannot read the GGUF file altered.gguf: .* damaged, cut off")


def test_an_architecture_that_transformers_cannot_read_is_named(tmp_path):
    write_llama(tmp_path / "x.gguf", tmp_path / "tokenizer", architecture="plamo")
    refused(str(tmp_path / "x.gguf"), "cannot read GGUF files of its architecture .*plamo")


def test_a_bank_on_it_opens_in_another_process_with_the_same_bits(written, tmp_path):
    runs = Runs(written[0], tmp_path, {"model.family": "causal_lm", "tasks": ["scope"]})
    bank = runs.folder("grafting") / "bank"
    told = cl_graft("verify", bank, "--json")
    assert told.code == 0, told.err
    found = {check["what"]: check["outcome"] for check in told.json["checks"]}
    assert found["base tiny.gguf"] == "same"
    text = ("predict", bank, "A warm and funny film.", "--task", "scope", "--json")
    first, second = (cl_graft(*text) for _ in range(2))
    assert first.out == second.out
    assert first.code == 0


def test_memory_can_be_planned_for_it(tmp_path, capsys):
    path = tmp_path / "tiny.gguf"
    write_llama(path, tmp_path / "tokenizer", layers=1)  # each layer takes seconds
    plan_command(model=str(path), family="causal_lm", max_length=32)
    assert "tiny.gguf (causal_lm, float32)" in capsys.readouterr().out


def test_several_files_in_a_folder_are_named(written, tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(written[0].read_bytes())
    refused(str(tmp_path), r"has 2 GGUF files \(a.gguf, b.gguf\); name one of them")


def test_without_the_package_it_says_what_to_install(written, monkeypatch):
    monkeypatch.setattr(gguf_file.importlib.util, "find_spec", lambda name: None)
    refused(str(written[0]), r"pip install 'cl-graft\[gguf\]'")


def test_under_an_older_transformers_it_says_which_one_reads_it(written, monkeypatch):
    monkeypatch.setattr(gguf_file, "version", lambda name: "5.5.4")
    refused(str(written[0]), r"transformers reads from 5\.6 on, and 5\.5\.4 is installed")
