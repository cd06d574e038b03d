"""Whatever is learned later, an answer keeps the bits it had on the day it was learned."""

import pytest
import torch
from slow_cases import slow
from tiny_streams import (
    TASKS,
    bits,
    forgets_no_bit,
    learner,
    mlp,
    multi_head,
    quick,
    same_entries,
    text_learner,
    vector_stream,
)
from torch import nn

from cl_graft.grafts.graft import find_parameters
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.metrics import backward_transfer, forgetting


@pytest.fixture(scope="module", params=["prefix", "isolated"])
def learned(request, tiny_bert):
    return text_learner(tiny_bert, TASKS, settings=quick(mode=request.param)).learn()


def test_logits_keep_their_bits_from_the_day_they_were_learned(learned):
    assert forgets_no_bit(learned.scores)


def test_training_changed_the_answers(learned):
    for j in range(3):
        assert learned.scores.logit_hash(j, j) != learned.scores.logit_hash(-1, j)


def test_backward_transfer_and_forgetting_are_exactly_zero(learned):
    R = learned.scores.R(3)
    assert backward_transfer(R) == 0.0
    assert forgetting(R) == 0.0


def test_every_answer_has_the_weights_that_were_recorded_with_its_entry(learned):
    layout = learned.plugin.bank.layout
    for position, entry in enumerate(learned.plugin.bank.entries):
        learned.plugin.carry(learned.model, position)
        assert hash_tensors(find_parameters(learned.unwrapped, layout)) == entry.weights_sha256


def test_without_its_bank_the_model_is_its_base_again(learned, tiny_bert):
    learned.plugin.carry(learned.model, None)
    assert bits(learned.unwrapped) == bits(text_learner(tiny_bert).unwrapped)


def test_every_entry_answers_its_recorded_batch_with_the_same_bits(learned):
    learned.model.eval()
    for position, entry in enumerate(learned.plugin.bank.entries):
        learned.plugin.carry(learned.model, position)
        with torch.no_grad():
            logits = learned.model(entry.recorded_batch.inputs, entry.label)
        own = logits[:, : entry.recorded_batch.logits.shape[1]]
        assert torch.equal(own, entry.recorded_batch.logits)


def test_several_experiences_in_one_call_are_learned_as_one_by_one(tiny_bert):
    together = text_learner(tiny_bert)
    together.strategy.train(together.train_stream)
    apart = text_learner(tiny_bert).learn()
    assert same_entries(together.plugin.bank.entries, apart.plugin.bank.entries)


def test_an_isolated_task_is_the_same_whatever_came_before_it(tiny_bert):
    settings = quick(mode="isolated")
    forwards = text_learner(tiny_bert, TASKS, settings=settings).learn()
    alone = text_learner(tiny_bert, TASKS[2:], settings=settings).learn()
    assert same_entries(forwards.plugin.bank.entries[-1:], alone.plugin.bank.entries)


@pytest.mark.parametrize("dtype", ["bfloat16", *slow("float16")])
def test_half_precision_keeps_its_bits_too(tiny_bert, dtype):
    run = text_learner(tiny_bert, dtype=dtype).learn()
    assert {p.dtype for p in run.unwrapped.backbone.parameters()} == {getattr(torch, dtype)}
    assert run.scores.logit_hash(1, 0) == run.scores.logit_hash(0, 0)
    assert run.scores.logit_hash(0, 0) != run.scores.logit_hash(-1, 0)
    assert run.plugin.bank.entries[0].owned.values.dtype == getattr(torch, dtype)


@pytest.mark.parametrize(
    ("checkpoint", "family"), [("tiny_roberta", "masked_lm"), *slow(("tiny_gpt2", "causal_lm"))]
)
def test_prompted_models_forget_nothing(request, checkpoint, family):
    run = text_learner(
        request.getfixturevalue(checkpoint), ("scope", "answered"), family=family, max_length=40
    ).learn()
    assert run.scores.logit_hash(1, 0) == run.scores.logit_hash(0, 0)
    assert run.scores.logit_hash(0, 0) != run.scores.logit_hash(-1, 0)


def test_a_plain_mlp_with_one_shared_classifier_forgets_nothing():
    run = learner(mlp(drop_rate=0.2), vector_stream(labels=[0, 1, 2])).learn()
    assert forgets_no_bit(run.scores)
    assert backward_transfer(run.scores.R(3)) == 0.0


@pytest.mark.parametrize("at_once", [False, True])
def test_avalanches_multi_head_mlp_forgets_nothing_when_classes_differ(at_once):
    benchmark = vector_stream(labels=[0, 1, 2], classes=[(0, 1), (2, 3), (4, 5)])
    run = learner(multi_head(), benchmark, train_epochs=4, settings=quick(density=0.2))
    if at_once:
        run.strategy.train(run.train_stream)
        run.strategy.eval(run.test_stream)
        assert all(run.scores.R(3)[2][j] > 0.5 for j in range(3))
    else:
        assert forgets_no_bit(run.learn().scores)


def test_batch_statistics_are_those_of_the_base():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    run = learner(model, vector_stream(labels=[0, 1, 2], shape=(1, 6, 6))).learn()
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert forgets_no_bit(run.scores)
