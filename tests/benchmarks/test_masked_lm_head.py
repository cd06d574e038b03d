"""A masked-LM head is trained on an encoder, and what comes out answers prompts."""

import json

from benchmark_scripts import run_script

from cl_graft.laboratory import run_experiment
from cl_graft.models import load_model


def test_a_head_is_trained_once_and_the_checkpoint_answers_prompts(tiny_bert, tmp_path):
    out = tmp_path / "masked"
    asked = ("--scale", "smoke", "--tasks", "sentiment,topic", "--model", tiny_bert, "--out", out)
    first = run_script("masked_lm_head.py", *asked)
    assert "| masked LM |" in first.stdout
    assert "| unigram |" in first.stdout
    numbers = json.loads((out / "masked_lm.json").read_text())
    assert numbers["unigram"]["tokens"] == numbers["masked LM"]["tokens"] > 0
    assert str(tmp_path) not in json.dumps(numbers)
    again = run_script("masked_lm_head.py", *asked)
    assert again.stdout == first.stdout[first.stdout.index("|") :]
    other = run_script("masked_lm_head.py", *asked, "--steps", 3, code=2)
    assert "was not made with these settings" in other.stderr
    assert load_model(str(out), family="masked_lm").model.family == "masked_lm"
    sets = [f"model={out}", "family=masked_lm"]
    outcome = run_experiment("table1", out=tmp_path, scale="smoke", seeds=[0], sets=sets)
    assert {row.method for row in outcome.rows} >= {"fine-tuning", "grafting"}


def test_training_lowers_the_perplexity_of_held_out_texts(tiny_bert, tmp_path):
    asked = ("--scale", "smoke", "--tasks", "sentiment", "--model", tiny_bert)
    found = []
    for steps in (1, 150):
        out = tmp_path / str(steps)
        run_script("masked_lm_head.py", *asked, "--out", out, "--steps", steps)
        found.append(json.loads((out / "masked_lm.json").read_text())["masked LM"]["perplexity"])
    # It starts at the frequencies of tokens, so there is little that a tiny model adds.
    assert found[1] < 0.9 * found[0]
