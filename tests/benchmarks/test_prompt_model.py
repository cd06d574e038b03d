"""A language model's head is trained on an encoder, and what comes out answers prompts."""

import json

import pytest
from benchmark_scripts import run_script
from papers import run_experiment
from slow_cases import slow

from cl_graft.models import load_model


@pytest.mark.parametrize(
    ("family", "called"), [("causal_lm", "causal"), *slow(("masked_lm", "masked"))]
)
def test_a_head_is_trained_once_and_the_checkpoint_answers_prompts(
    family, called, tiny_bert, tmp_path
):
    out = tmp_path / "made"
    asked = ("--scale", "smoke", "--tasks", "scope,topic", "--model", tiny_bert, "--out", out)
    asked = (*asked, "--family", family)
    first = run_script("prompt_model.py", *asked)
    assert f"| {called} LM |" in first.stdout
    assert "| unigram |" in first.stdout
    numbers = json.loads((out / "prompt_model.json").read_text())
    assert numbers["unigram"]["tokens"] == numbers["model"]["tokens"] > 0
    assert str(tmp_path) not in json.dumps(numbers)
    again = run_script("prompt_model.py", *asked)
    assert again.stdout == first.stdout[first.stdout.index("|") :]
    other = run_script("prompt_model.py", *asked, "--steps", 3, code=2)
    assert "was not made with these settings" in other.stderr
    assert load_model(str(out), family=family).model.family == family
    sets = [f"model.name={out}", f"model.family={family}"]
    outcome = run_experiment("table1", out=tmp_path, scale="smoke", seeds=[0], sets=sets)
    assert {row.method for row in outcome.rows} >= {"fine-tuning", "grafting"}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["masked_lm", "causal_lm"])
def test_training_lowers_the_perplexity_of_held_out_texts(family, tiny_bert, tmp_path):
    found = []
    for steps in (1, 150):
        out = tmp_path / str(steps)
        asked = ("--tasks", "scope", "--model", tiny_bert, "--family", family, "--out", out)
        run_script("prompt_model.py", *asked, "--scale", "smoke", "--steps", steps)
        stored = json.loads((out / "prompt_model.json").read_text())
        found.append(stored["model"]["perplexity"])
    # It starts at the frequencies of tokens, so there is little that a tiny model adds.
    assert found[1] < 0.9 * found[0]
