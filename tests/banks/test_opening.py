"""A bank that is opened answers as the model that learned it, task by task."""

import json
from pathlib import Path

import pytest
import torch
from tiny_runs import tiny_run

from cl_graft import InputError
from cl_graft.banks.opening import OpenedBank, open_bank
from cl_graft.data.synthetic import generate

FAMILIES = [("bert", "encoder"), ("roberta", "masked_lm"), ("gpt2", "causal_lm")]


@pytest.fixture(scope="module", params=FAMILIES, ids=[family for _, family in FAMILIES])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OpenedBank:
    kind, family = request.param
    model = request.getfixturevalue(f"tiny_{kind}")
    out = tmp_path_factory.mktemp(family)
    tasks = ["sentiment", str(pairs(out / "answers.jsonl"))]
    return open_bank(tiny_run(out / "run", model, tasks, family=family, max_length=48) / "bank")


def pairs(path: Path) -> Path:
    """Write a task on pairs whose label names are words of the tiny checkpoints."""
    rows = generate("answer_entailment", split="train", rows=60, seed=0)
    lines = [
        {"text": row.text, "text_pair": row.text_pair, "label": ["no", "yes"][int(row.label) % 2]}
        for row in rows
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_an_entry_answers_the_same_whatever_was_asked_before(opened):
    first = [entry.canary for entry in opened.bank.entries]
    for order in ([0, 1], [1, 0], [1, 1, 0, 0]):
        for position in order:
            logits = opened.logits(first[position].inputs, position)
            assert torch.equal(logits, first[position].logits)


def test_texts_are_answered_with_label_names_and_probabilities(opened):
    answers = opened.answer(["It was a delight.", "It was a bore!"], task="sentiment")
    assert len(answers) == 2
    for answer in answers:
        assert set(answer.probabilities) == {"negative", "positive"}
        assert sum(answer.probabilities.values()) == pytest.approx(1)
        assert answer.label == max(answer.probabilities, key=answer.probabilities.__getitem__)


def test_batches_do_not_change_the_answer(opened):
    texts = ["It was a delight.", "Bad.", "The film was long and the plot was thin."]
    whole = opened.answer(texts, task="sentiment")
    parts = opened.answer(texts, task="sentiment", batch_size=1)
    assert [answer.label for answer in whole] == [answer.label for answer in parts]


def test_a_task_on_pairs_wants_pairs(opened):
    (answer,) = opened.answer(["Who wrote it?"], pairs=["A teacher."], task="answers")
    assert answer.label in answer.probabilities
    with pytest.raises(InputError, match="pairs of texts"):
        opened.answer(["Who wrote it?"], task="answers")
    with pytest.raises(InputError, match="single texts"):
        opened.answer(["Good."], pairs=["Bad."], task="sentiment")
    with pytest.raises(InputError, match="do not pair up"):
        opened.answer(["Who?", "What?"], pairs=["A teacher."], task="answers")


def test_a_task_is_named_or_counted(opened):
    assert opened.answer(["Good."], task=0) == opened.answer(["Good."], task="sentiment")
    with pytest.raises(InputError, match="did you mean 'sentiment'"):
        opened.answer(["Good."], task="sentimen")
    with pytest.raises(InputError, match="positions are 0 to 1"):
        opened.answer(["Good."], task=2)


def test_an_empty_text_is_refused(opened):
    with pytest.raises(InputError, match="text 1 is empty"):
        opened.answer(["Good.", " "], task="sentiment")
