"""The same weights under another config are another base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from configs import config_with
from interrupted import interrupt, resume_run, tripping
from slow_cases import slow
from small_runs import SMALL
from tiny_runs import tiny_run

from cl_graft import InputError
from cl_graft.banks.add import add_task
from cl_graft.banks.open_bank import open_bank
from cl_graft.banks.verify import verify
from cl_graft.errors import WrongBase
from cl_graft.models import load_model
from cl_graft.models.answering_config import config_settings, describe_other_settings


@pytest.fixture
def base(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "base")


def edit(base: Path, **settings: object) -> None:
    path = base / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num_attention_heads", 1),
        *slow(("hidden_act", "relu"), ("layer_norm_eps", 0.1), ("is_decoder", True)),
    ],
)
def test_the_same_weights_under_another_config_are_another_base(base, tmp_path, setting, value):
    bank = tiny_run(tmp_path / "out", base, ["scope"]) / "bank"
    edit(base, **{setting: value})
    said = f"the weights are the same, but its config is not: {setting} was"
    for use in (open_bank, verify, lambda folder: add_task(folder, "topic")):
        with pytest.raises(WrongBase, match=said):
            use(bank)


def test_what_answers_do_not_depend_on_may_change(base, tmp_path):
    bank = tiny_run(tmp_path / "out", base, ["scope"]) / "bank"
    kept = open_bank(bank).predict("It was a delight.", task="scope")
    edit(base, hidden_dropout_prob=0.3, initializer_range=0.5, id2label={"0": "no", "1": "yes"})
    edit(base, transformers_version="9.0.0", a_setting_of_later_versions=3)
    assert open_bank(bank).predict("It was a delight.", task="scope") == kept


def test_a_run_does_not_go_on_under_another_config(base, tmp_path):
    config = config_with({**SMALL, "model": str(base), "checkpoint_steps": 1})
    interrupt(config, "grafting", tmp_path, tripping("train", 2, "topic"))
    edit(base, hidden_act="relu")
    with pytest.raises(InputError, match=r"model's config \(hidden_act was 'gelu', is 'relu'\)"):
        resume_run(tmp_path)


def test_settings_are_numbers_texts_and_switches_by_dotted_name(tiny_llama):
    found = config_settings(load_model(str(tiny_llama), family="causal_lm").model.backbone)
    assert found["rope_parameters.rope_theta"] == 10000.0
    assert found["hidden_act"] == "silu"
    assert not any("dropout" in name or name.startswith(("id2label", "_")) for name in found)
    assert config_settings(torch.nn.Linear(2, 2)) == {}
    assert describe_other_settings(None, found) == ""
    assert describe_other_settings({**found, "hidden_act": "relu", "gone": 1}, found) == (
        "hidden_act was 'relu', is 'silu'"
    )
