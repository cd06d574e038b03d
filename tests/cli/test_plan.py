"""`cl-graft plan` as its users meet it."""

from __future__ import annotations

import json

import pytest
from tiny_models import one_layer_config
from tiny_runs import Told, cl_graft_each

EXPECTED = {
    "unknown model": "did you mean 'minilm'?",
    "no config": "holds no transformer: expected a folder with config.json",
    "encoder-decoder": "is an encoder-decoder (t5): use family 'seq2seq_lm'",
    "no memory": "no size of memory: 'much'; expected one such as 24GiB or 512MB",
    "bad config": "say it with --max-length",
}


@pytest.fixture(scope="module")
def told(tiny_bert, tiny_gpt2, tmp_path_factory) -> dict[str, Told]:
    there = tmp_path_factory.mktemp("models")
    bert = one_layer_config(tiny_bert, there / "bert")
    gpt2 = one_layer_config(tiny_gpt2, there / "gpt2")
    for name in ("t5", "none"):
        (there / name).mkdir()
    (there / "t5" / "config.json").write_text(json.dumps({"model_type": "t5"}))
    config, bad = there / "stream.yaml", there / "bad.yaml"
    config.write_text(
        f"stream: {{name: built_in, max_length: 48}}\nmodel: {{name: {bert}}}\n"
        "fine_tuning: {batch_size: 32}\n"
    )
    bad.write_text("stream: {tasks: [a], max_length: null}\n")
    tasks = there / "tasks.yaml"
    tasks.write_text(
        f"stream: {{tasks: [scope], shots: 8, max_length: 24, max_test: 16}}\n"
        f"model: {{name: {bert}}}\nfine_tuning: {{steps: 20, batch_size: 32}}\n"
    )
    commands: dict[str, list[object]] = {
        "unknown model": ["minilmm"],
        "no config": [there / "none"],
        "encoder-decoder": [there / "t5"],
        "no memory": [tiny_bert, "--memory", "much"],
        "table": [config, "--memory", "4MiB"],
        "bad config": [bad],
        "options": [tasks, "--batch-size", "16", "--density", "0.9", "--json"],
        "json": [gpt2, "--family", "causal_lm", "--quiet", "--json"],
        "dense": [gpt2, "--family", "causal_lm", "--localizer", "movement", "--quiet", "--json"],
    }
    answers = cl_graft_each([["plan", *rest] for rest in commands.values()])
    return dict(zip(commands, answers, strict=True))


@pytest.mark.parametrize("case", EXPECTED)
def test_bad_input_is_told_in_one_sentence(told, case):
    answer = told[case]
    assert answer.code == 2, answer
    assert EXPECTED[case] in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_a_table_for_a_config_says_what_fits_and_what_to_lower(told):
    answer = told["table"]
    assert answer.code == 0, answer
    for text in ("parameters", "graftable", "peak", "fits 4.00 MiB", "no", "yes", "on disk"):
        assert text in answer.out
    assert "To lower a phase: --micro-batch" in answer.out
    assert "Memory, 32 × 48 tokens a step" in answer.out


def test_json_is_one_document_with_all_numbers_in_bytes(told):
    answer = told["json"]
    plan = answer.json
    assert answer.code == 0
    assert answer.err == ""
    assert {"parameters", "graftable", "tasks", "entry", "phases"} <= set(plan)
    peaks = {phase["name"]: phase["peak"] for phase in told["dense"].json["phases"]}
    assert peaks["region training"] < peaks["dense run"]
    assert {phase["name"] for phase in plan["phases"]} == set(peaks) - {"dense run"}


def test_options_go_before_the_config_of_a_run(told):
    other = told["options"]
    assert other.code == 0, other
    plan = other.json
    assert plan["batch_size"] == 16
    assert plan["max_length"] == 24
    assert plan["region"] == round(0.9 * plan["graftable"])
