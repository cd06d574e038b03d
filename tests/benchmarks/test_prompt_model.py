"""A language model's head is trained on an encoder, and what comes out answers prompts."""

import json

import pytest
import torch
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


@pytest.fixture(scope="module")
def trained(tiny_bert, tmp_path_factory):
    """A function that returns the folder of a model trained for so many steps on scope."""
    out = tmp_path_factory.mktemp("trained")

    def train(family, steps):
        folder = out / f"{family}{steps}"
        if not folder.exists():
            asked = ("--tasks", "scope", "--model", tiny_bert, "--family", family)
            asked = (*asked, "--scale", "smoke", "--steps", steps)
            run_script("prompt_model.py", *asked, "--out", folder)
        return folder

    return train


@pytest.mark.parametrize("family", ["masked_lm", *slow("causal_lm")])
def test_training_lowers_the_perplexity_of_held_out_texts(family, trained):
    folders = [trained(family, steps) for steps in (1, 150)]
    told = [json.loads((folder / "prompt_model.json").read_text()) for folder in folders]
    found = [one["model"]["perplexity"] for one in told]
    # It starts at the frequencies of tokens, so there is little that a tiny model adds.
    assert found[1] < 0.9 * found[0]


def test_a_causal_model_sees_no_later_token_and_goes_on_with_a_masked_ones_head(trained, tmp_path):
    from transformers import AutoModelForMaskedLM

    masked, causal = trained("masked_lm", 150), tmp_path / "causal"
    asked = ("--scale", "smoke", "--tasks", "scope", "--family", "causal_lm", "--steps", 1)
    run_script("prompt_model.py", *asked, "--model", masked, "--out", causal)
    model = load_model(str(causal), family="causal_lm").model.backbone
    rows = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 8, 3]])
    with torch.no_grad():
        first, other = (model(input_ids=row[None]).logits for row in rows)
    assert torch.equal(first[:, :4], other[:, :4])
    assert not torch.equal(first[:, 4], other[:, 4])
    kept = AutoModelForMaskedLM.from_pretrained(masked).get_output_embeddings().bias
    step = (kept - model.get_output_embeddings().bias).abs().max()
    assert step < 0.002  # one step of AdamW, not the frequencies of tokens again
