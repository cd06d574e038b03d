"""Free text beside labels in one stream, on the whole path, with decoders and encoder-decoders."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from answer_data import answer_folder
from avalanche.evaluation.metrics import loss_metrics
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.supervised import Naive
from configs import config_with
from interrupted import interrupt, outcome_of, resume_run, tripping
from slow_cases import slow, slow_but
from tiny_runs import QUICK, forgets_nothing, tiny_run

from cl_graft import StreamScores, load_bank, load_model, load_task, save_bank, text_stream
from cl_graft.banks.add import add_task
from cl_graft.banks.input_texts import read_texts
from cl_graft.banks.open_bank import open_bank, predict
from cl_graft.banks.verify import verify
from cl_graft.errors import InputError
from cl_graft.kinds.messages import read_chat
from cl_graft.kinds.text2text import make_chat_row
from cl_graft.lab.results.run_results import read_result
from cl_graft.lab.results.task_files import ANSWERS
from cl_graft.strategies import text_model

FAMILIES = {"chat": "causal_lm", "t5": "seq2seq_lm", "bart": "seq2seq_lm"}
TEXTS = ["The oil and the rain", "The team and the chip and the girl"]


@pytest.fixture(scope="module")
def settings(answer_data):
    return {**QUICK, "data": str(answer_data), "max_length": 48, "max_test": 6, "steps": 6}


@pytest.fixture(scope="module", params=slow_but(("chat",), FAMILIES))
def case(request, settings, tmp_path_factory):
    """A bank of three tasks on each family."""
    model = request.getfixturevalue(f"tiny_{request.param}")
    own = {**settings, "family": FAMILIES[request.param], "density": 0.2}
    tasks = ["instruction", "scope", "input"]
    if request.param == "chat":
        tasks[2] = "messages"
    path = tmp_path_factory.mktemp("run")
    run = tiny_run(path, model, tasks, **own)
    return SimpleNamespace(run=run, tasks=tasks, settings={**own, "model": str(model)})


def test_text_and_labels_are_learned_in_one_stream_and_nothing_is_forgotten(case):
    result = read_result(case.run)
    assert list(result.metrics.values()) == ["rouge_l", "accuracy", "rouge_l"]
    assert forgets_nothing(result)


def test_a_bank_verifies_and_a_changed_end_of_answers_is_seen(case, tmp_path):
    report = verify(case.run)
    assert report.ok
    assert {entry.recorded_batch for entry in report.entries} == {"same bits"}
    bank = load_bank(case.run / "bank")
    head = {**bank.entries[0].head, "limits": torch.tensor([1, 1])}
    entries = (replace(bank.entries[0], head=head), *bank.entries[1:])
    save_bank(replace(bank, entries=entries), tmp_path / "changed")
    assert verify(tmp_path / "changed").entries[0].recorded_batch == "differs"


@pytest.mark.parametrize("kind", ["no_such", "classification", "extractive_qa"])
def test_another_kind_of_an_entry_is_seen(case, tmp_path, kind):
    bank = load_bank(case.run / "bank")
    entry = replace(bank.entries[0], metadata={**bank.entries[0].metadata, "kind": kind})
    save_bank(replace(bank, entries=(entry, *bank.entries[1:])), tmp_path / "changed")
    report = verify(tmp_path / "changed")
    assert not report.ok
    (found,) = [check for check in report.checks if check.outcome == "differs"]
    assert found.what == f"kind of {entry.task}"
    assert kind in found.detail


def test_a_run_keeps_answers_of_the_day_a_task_was_learned_and_of_its_end(case):
    found = ANSWERS.read(case.run)
    assert set(found) == {case.tasks[0], case.tasks[2]}
    answers = found[case.tasks[0]]
    assert answers.same
    assert answers.rows == len(answers.shown) == 6
    assert all(one.learned == one.now for one in answers.shown)


@pytest.mark.parametrize("case", ["chat", *slow("t5")], indirect=True)
def test_another_token_is_a_difference_whatever_the_tolerance(case, tmp_path, monkeypatch):
    monkeypatch.setattr("cl_graft.banks.verify._tolerance", lambda opened: 2.0)
    bank = load_bank(case.run / "bank")
    recorded = bank.entries[0].recorded_batch
    assert recorded is not None
    half = recorded.logits.shape[1] // 2
    for column, outcome in ((half, "within tolerance"), (0, "differs")):
        logits = recorded.logits.clone()
        logits[0, column] += 1
        batch = replace(recorded, logits=logits, environment={"torch": "1.0"})
        entries = (replace(bank.entries[0], recorded_batch=batch), *bank.entries[1:])
        save_bank(replace(bank, entries=entries), tmp_path / outcome)
        found = verify(tmp_path / outcome).entries[0]
        moved = float((logits - recorded.logits).max())  # 1 as float32 adds it
        assert (found.recorded_batch, found.difference) == (outcome, moved if column else 0.0)


def test_a_mixed_batch_answers_as_each_task_alone(case):
    opened = open_bank(case.run)
    asked = [(text, task) for text in TEXTS for task in (0, 1, 2, 0)]
    mixed = opened.predict(asked, batch_size=8)
    alone = [opened.predict(text, task=task) for text, task in asked]
    assert [one.label for one in mixed] == [one.label for one in alone]
    assert [one.entry for one in mixed] == [task for _, task in asked]


@pytest.mark.parametrize("case", ["chat"], indirect=True)
def test_chats_are_answered_as_the_message_that_they_end_with(case, answer_data, tmp_path):
    opened = open_bank(case.run)
    file = answer_data / "messages" / "test.jsonl"
    rows = [json.loads(line)["messages"] for line in file.read_text().splitlines()]
    asked = [row[1]["content"] for row in rows]
    said = [one.label for one in opened.predict(asked, task="messages")]
    # With their system message, with none (that of training stands in), and with the answer.
    for chats in (rows, [row[:-1] for row in rows], [row[1:-1] for row in rows]):
        assert [one.label for one in opened.predict(chats, task="messages")] == said
    alone = opened.predict(rows[0], task="messages")
    assert alone.label == said[0]
    found = predict(opened, read_texts(file, task="messages"))
    assert [answer.label for _, answer in found] == said
    # Another system message, and earlier turns, are a part of what is asked.
    metadata = opened.bank.entries[2].metadata
    other = [{"role": "system", "content": "The team and the girl"}, *rows[0][1:]]
    turns = [*rows[1], *rows[0][1:]]
    made = [make_chat_row(read_chat(one, "here"), metadata) for one in (rows[0][1:], other, turns)]
    assert [[own.role for own in row.messages] for row in made] == [
        ["system", "user"],
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert [row.messages[0].content for row in made[:2]] == ["Be short.", other[0]["content"]]
    # A file of chats and texts of several tasks.
    mixed = tmp_path / "mixed.jsonl"
    lines = [{"messages": rows[0], "task": "messages"}, {"text": TEXTS[0], "task": "scope"}]
    mixed.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    answers = [answer.label for _, answer in predict(opened, read_texts(mixed))]
    assert answers == [said[0], opened.predict(TEXTS[0], task="scope").label]


@pytest.mark.parametrize("case", ["chat"], indirect=True)
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"messages": [{"role": "bot", "content": "x"}]}, r"1: message 1 has the role 'bot'"),
        ({"messages": [{"role": "system", "content": "x"}]}, "must end with one of the user, got"),
        (
            {"messages": [{"role": "user", "content": "x"}], "task": "instruction"},
            "'instruction' answers texts, got chat messages",
        ),
    ],
)
def test_chats_that_cannot_be_answered_are_refused_with_their_line(case, row, told, tmp_path):
    file = tmp_path / "asked.jsonl"
    file.write_text(f"{json.dumps({'task': 'messages', **row})}\n")
    with pytest.raises(InputError, match=told):
        list(predict(open_bank(case.run), read_texts(file)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "phase", "step"),
    [("chat", "train", 4), ("t5", "dense", 1), ("t5", "train", 4), ("t5", "evaluate", 1)],
    indirect=["case"],
)
def test_an_interrupted_run_ends_on_the_same_bits(case, tmp_path, phase, step):
    often = config_with({**case.settings, "tasks": case.tasks, "checkpoint_steps": 1})
    folder = interrupt(often, "grafting", tmp_path, tripping(phase, step, case.tasks[2]))
    resume_run(folder)
    assert outcome_of(folder) == outcome_of(case.run)


def test_a_task_is_added_later(case, tmp_path):
    bank = shutil.copytree(case.run / "bank", tmp_path / "bank")
    answer_folder(tmp_path / "more" / "later", "input")
    added = add_task(bank, "later", settings={"stream": {"data": str(tmp_path / "more")}})
    assert (added.position, added.metric) == (3, "rouge_l")
    assert verify(bank).ok


def test_a_plain_avalanche_loop_scores_free_text(tiny_gpt2, answer_data):
    loaded = load_model(str(tiny_gpt2), family="causal_lm")
    tasks = [load_task(form, data=answer_data, warn=False) for form in ("instruction", "input")]
    stream = text_stream(tasks, loaded.tokenizer, family="causal_lm", max_length=48)
    scores = StreamScores()
    strategy = Naive(
        model=(model := text_model(loaded, stream)),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=stream.criterion,
        evaluator=EvaluationPlugin(scores, loss_metrics(epoch=True), loggers=[BaseLogger()]),
        plugins=[ReplayPlugin(mem_size=8)],
    )
    for experience in stream.benchmark.train_stream:
        strategy.train(experience)
        strategy.eval(stream.benchmark.test_stream)
    for place, one in enumerate(stream.tasks):
        assert scores.R(2)[1][place] == scores.score_by(place, one.scored_by)
    losses = strategy.evaluator.get_last_metrics()
    assert all(value > 0 for name, value in losses.items() if name.startswith("Loss_Epoch"))
