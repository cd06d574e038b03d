"""A model folder whose sizes its files cannot have is refused at once; real ones are not."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from cl_graft.errors import InputError
from cl_graft.models import find_minilm, load_model
from cl_graft.models.checkpoint_folder import check_model_folder
from cl_graft.models.load import read_config

KINDS = ["bert", "distilbert", "electra", "roberta", "gpt2", "llama"]


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(folder: Path, message: str) -> None:
    start = time.perf_counter()
    for load in (load_model, read_config):
        with pytest.raises(InputError, match=message):
            load(str(folder))
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("kind", KINDS)
def test_real_checkpoints_are_not_refused(request, kind):
    check_model_folder(request.getfixturevalue(f"tiny_{kind}"), name=kind)
    check_model_folder(find_minilm(), name="minilm")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers in its config.json is 10,000,000, its"),
        ({"vocab_size": 10**12}, "vocab_size in its config.json is 1,000,000,000,000, its files"),
        ({"max_position_embeddings": 10**9}, "max_position_embeddings in its config.json"),
        ({"hidden_size": 10**6}, "hidden_size in its config.json is 1,000,000, too wide"),
        (
            {"model_type": "gpt2", "n_layer": 2, "n_embd": 50_000},
            "n_embd in its config.json is 50,000, too wide",
        ),
        ({"text_config": {"num_decoder_layers": 10**9}}, "num_decoder_layers in its config.json"),
    ],
)
@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_size_that_the_files_cannot_have_is_refused_before_anything_is_built(
    folder, values, message, weights
):
    (folder / "model.safetensors").rename(folder / weights)
    change(folder / "config.json", **values)
    refused(folder, message)


def test_a_token_id_far_beyond_the_tokens_is_refused(folder):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    whole = path.read_text()
    tokenizer["model"]["vocab"]["zzzz"] = 10**9
    path.write_text(json.dumps(tokenizer))
    refused(folder, "a token of the id 1,000,000,000 but")
    tokenizer = json.loads(whole)
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 10**9})
    path.write_text(json.dumps(tokenizer))
    refused(folder, "a token of the id 1,000,000,000 but")


@pytest.mark.parametrize("content", ["[]", "{", "\udcff"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_what_is_no_json_object_is_said_in_a_sentence(folder, name, content):
    (folder / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    refused(folder, f"cannot read its {name}")
