"""Exports of extractive QA and of regressions answer alike through transformers' own classes."""

from __future__ import annotations

import pytest
import torch
from answer_tasks import write_answer_tasks
from integrations.readme import answered
from integrations.tuned import logits_of, nudge_
from tiny_runs import tiny_run

from cl_graft.banks.input_texts import InputText
from cl_graft.banks.open_bank import open_bank
from cl_graft.integrations import export_task, import_task
from cl_graft.integrations.import_sources import as_classifier
from cl_graft.models import load_head, load_model
from cl_graft.storage import load_bank

QUESTION = "Where is a man?"
PASSAGE = "A woman is walking in the street. A man is walking in the park. Nobody is outside. " * 6


@pytest.fixture(scope="module")
def bank(tmp_path_factory, tiny_bert):
    out = tmp_path_factory.mktemp("answers")
    tasks = write_answer_tasks(out)
    return tiny_run(out, tiny_bert, tasks, max_length=48, pooling="first") / "bank"


def test_question_answering_of_transformers_has_the_same_logits(bank, tmp_path):
    from transformers import AutoModelForQuestionAnswering

    export_task(bank, "places", format="hf", out=tmp_path / "out")
    theirs = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out").eval()
    opened = open_bank(bank)
    encoded, _ = opened._encode([InputText(QUESTION, PASSAGE, "places", "text 1")], 0)
    assert len(encoded.inputs) > 3  # windows
    ours = opened.logits(encoded.inputs, 0)
    for number, places in enumerate(encoded.places or ()):
        inputs, kept = encoded.inputs[number], len(places)
        with torch.no_grad():
            found = theirs(input_ids=inputs[:1, :kept], token_type_ids=inputs[1:, :kept] - 1)
        columns = [0, *(n for n, pair in enumerate(places) if pair is not None)]
        for side, logits in enumerate((found.start_logits, found.end_logits)):
            torch.testing.assert_close(
                logits[0, columns], ours[number, side, columns], rtol=1e-5, atol=1e-5
            )


def test_the_lines_of_the_readme_find_the_banks_answer(bank, tmp_path):
    export_task(bank, "places", format="hf", out=tmp_path / "out")
    short = PASSAGE[: len(PASSAGE) // 6]
    (said,) = open_bank(bank).predict([(QUESTION, short)], task="places")
    assert answered(tmp_path / "out", QUESTION, short) == said.label
    text = (tmp_path / "out" / "README.md").read_text()
    assert "the part of a passage that answers a question" in text


def test_the_lines_of_the_readme_give_a_regressions_number(bank, tmp_path):
    export_task(bank, "cheer", format="hf", out=tmp_path / "out")
    answer = open_bank(bank).predict("It was dull, slow, empty, warm.", task="cheer")
    found = answered(tmp_path / "out", "It was dull, slow, empty, warm.")
    assert found.tolist() == pytest.approx(answer.logits)
    assert "- Answers: a number." in (tmp_path / "out" / "README.md").read_text()


def test_a_regressor_of_transformers_comes_in_and_goes_back(tiny_roberta, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tuned = AutoModelForSequenceClassification.from_pretrained(tiny_roberta, num_labels=1).eval()
    nudge_(tuned)
    tuned.save_pretrained(tmp_path / "tuned")
    AutoTokenizer.from_pretrained(tiny_roberta).save_pretrained(tmp_path / "tuned")
    import_task(tmp_path / "tuned", tmp_path / "bank", task="cheer", base=str(tiny_roberta))
    answer = open_bank(tmp_path / "bank").predict("It was warm.", task="cheer")
    expected = logits_of(tuned, tiny_roberta, "It was warm.").item()
    assert answer.label == pytest.approx(expected, abs=1e-5)
    export_task(tmp_path / "bank", "cheer", format="hf", out=tmp_path / "out")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert again.config.problem_type == "regression"
    found = logits_of(again, tmp_path / "out", "It was warm.").item()
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_a_linear_head_goes_into_a_classifier_of_each_activation(
    bank, tmp_path, request, activation
):
    names = {"tanh": "tiny_roberta", "relu": "tiny_distilbert", "gelu": "tiny_electra"}
    folder = request.getfixturevalue(names[activation])
    loaded = load_model(folder, pooling="first")
    entry = next(one for one in load_bank(bank).entries if one.task == "cheer")
    found = as_classifier(loaded.model, entry)
    assert found is not None
    assert found.config.problem_type == "regression"
    text = "It was dull, slow, empty, warm."
    with torch.no_grad():
        rows = loaded.tokenizer(text, return_tensors="pt")
        state = found.base_model(**rows).last_hidden_state[:, 0]
        head = load_head(entry, family="encoder")
        torch.testing.assert_close(found(**rows).logits, head(state), rtol=1e-4, atol=1e-4)
