"""A plan says what a run then takes."""

from __future__ import annotations

import json

import pytest
from configs import config_with
from slow_cases import slow
from tiny_models import one_layer_config
from tiny_runs import QUICK, tiny_run

from cl_graft.errors import InputError
from cl_graft.lab.experiments.memory_estimate import make_plan
from cl_graft.lab.experiments.memory_estimate import plan as plan_module
from cl_graft.runtime.byte_sizes import parse_bytes, readable_bytes
from cl_graft.settings import config_from
from cl_graft.storage import load_bank


def plan_config(model, **settings):
    """Return a config of some task on a model."""
    return config_with({"tasks": ["any"], "model": str(model), **settings})


@pytest.fixture
def no_phases(monkeypatch):
    """Plan no phases, where a test looks at none."""
    monkeypatch.setattr(plan_module, "_track_phases", lambda *given, **named: ())


@pytest.mark.parametrize("density", [0.3, 0.001, *slow(0.01)])
def test_bytes_and_coordinates_of_a_task_are_those_of_a_written_entry(
    density, tiny_bert, tmp_path, no_phases
):
    folder = tiny_run(tmp_path, tiny_bert, ["topic"], density=density) / "bank"
    config = plan_config(tiny_bert, max_length=QUICK["max_length"], density=density)
    entry, bank = next((folder / "entries").iterdir()), load_bank(folder)
    plan = make_plan(config, classes=5)
    assert plan.entry_total == pytest.approx(entry.stat().st_size, rel=0.05)
    assert (plan.entry.indices < plan.region) == (density == 0.3)  # less than a byte each
    assert plan.graftable == bank.layout.total
    assert plan.graftable_tensors == len(bank.layout.names)
    assert plan.region == len(bank.entries[0].region)
    assert plan.tasks == bank.layout.total // plan.region


@pytest.mark.parametrize(
    ("settings", "phases"),
    [
        ({}, ["dense run", "localization", "region training"]),
        ({"localizer": "base_gradient"}, ["localization", "region training"]),
        *slow(({"localizer": "path_integral"}, ["dense run", "localization", "region training"])),
        *slow(({"retrain": False}, ["dense run", "localization"])),
    ],
)
def test_the_phases_are_those_of_the_config(tiny_bert, tmp_path, settings, phases):
    model = one_layer_config(tiny_bert, tmp_path / "model")
    plan = make_plan(plan_config(model, max_length=24, batch_size=4, **settings))
    assert [phase.name for phase in plan.phases] == phases
    for phase in plan.phases:
        assert phase.peak == plan.model_bytes + phase.kept + phase.step


@pytest.mark.parametrize(
    ("settings", "arguments", "said"),
    [
        ({}, {"classes": 0}, "classes must be at least 1, got 0"),
        ({"max_length": 300}, {}, "max_length must be at most 256, the positions of"),
        ({"layers": 3}, {}, r"layers must be in \[1, 2\]"),
    ],
)
def test_what_is_out_of_range_is_refused(tiny_bert, settings, arguments, said):
    with pytest.raises(InputError, match=said):
        make_plan(plan_config(tiny_bert, **settings), **arguments)


def test_a_model_that_decides_by_its_numbers_is_refused_in_a_sentence(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 100}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4}
    config = {"model_type": "mixtral", **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"\(mixtral\) cannot be planned: its computation depends"):
        make_plan(plan_config(tmp_path, family="causal_lm"))


def test_sizes_are_read_and_written_with_their_units():
    sizes = {"24GiB": 24 * 2**30, "512 MB": 512 * 10**6, "1.5kib": 1536, "1000": 1000}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    with pytest.raises(InputError, match="no size of memory: '2T'"):
        parse_bytes("2T")
    shown = [readable_bytes(n) for n in (0, 999, 1536, 24 * 2**30, 700 * 2**20, 10**15)]
    assert shown == ["0 B", "999 B", "1.50 KiB", "24.0 GiB", "700 MiB", "909 TiB"]


def text_config(model, **task):
    """Return a config of a task of free text on a causal model."""
    settings = {"any": {"kind": "text2text"} | task}
    stream = {"tasks": ["any"], "max_length": 40, "task_settings": settings}
    return config_from({"stream": stream, "model": {"name": str(model), "family": "causal_lm"}})


def test_answers_of_a_config_are_planned_as_long_as_a_run_makes_them(tiny_gpt2, no_phases):
    named = text_config(tiny_gpt2, decoding={"longest_answer": 5})
    assert make_plan(named).answer_tokens == 5
    assert make_plan(text_config(tiny_gpt2)).answer_tokens == 20
    assert make_plan(named, answer_tokens=0).answer_tokens == 0


def test_answers_that_leave_no_prompt_and_answers_of_an_encoder_are_refused(tiny_gpt2, tiny_bert):
    with pytest.raises(InputError, match="1 to 39 of the 40 tokens of max_length, got 40"):
        make_plan(text_config(tiny_gpt2), answer_tokens=40)
    with pytest.raises(InputError, match="'encoder' writes no text"):
        make_plan(plan_config(tiny_bert), answer_tokens=4)
