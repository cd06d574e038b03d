"""Training with regions in the upper blocks alone."""

import pytest
import torch
from slow_cases import slow
from tiny_streams import TASKS, quick, text_learner

from cl_graft.models import graftable_parameters, load_model
from cl_graft.models.lower_blocks import find_lower_part


def test_training_touches_the_upper_blocks_alone_and_computes_no_gradient_below(tiny_bert):
    run = text_learner(tiny_bert, settings=quick(layers=1, localizer="base_gradient"))
    lower, upper = run.unwrapped.backbone.encoder.layer
    seen = {"lower": set(), "upper": set(), "dropout": set()}

    def note(name, module, output):
        states = output if isinstance(output, torch.Tensor) else output[0]
        if module.training:
            seen[name].add(states.requires_grad)

    lower.register_forward_hook(lambda module, _, output: note("lower", module, output))
    upper.register_forward_hook(lambda module, _, output: note("upper", module, output))
    for name, block in (("lower", lower), ("upper", upper)):
        block.output.dropout.register_forward_hook(
            lambda module, *_, name=name: module.training and seen["dropout"].add((name, module.p))
        )
    run.strategy.train(next(iter(run.train_stream)))
    assert seen["lower"] == {False}
    assert seen["upper"] == {True}
    assert seen["dropout"] == {("upper", 0.1)}
    (entry,) = run.plugin.bank.entries
    assert len(entry.owned)
    assert all(".layer.1." in name for name, *_ in entry.owned.region.by_parameter())


@pytest.fixture(scope="module")
def stored(tiny_bert):
    """A stream learned in the upper block, with stored states below, and what was computed."""
    run = text_learner(tiny_bert, TASKS[:2], settings=quick(layers=1, evaluate_every=2))
    computed = []
    lower = run.unwrapped.backbone.encoder.layer[0]
    lower.attention.register_forward_hook(
        lambda module, inputs, _: (
            find_lower_part(run.unwrapped) and computed.append(inputs[0].shape[0])
        )
    )
    return run.learn(), computed


def entries(run):
    return run.plugin.bank.entries


@pytest.mark.parametrize("memory", [0, *slow(None)])
def test_states_that_are_not_stored_train_the_same_bits(stored, tiny_bert, memory):
    settings = quick(layers=1, evaluate_every=2, states_memory=memory)
    other = text_learner(tiny_bert, TASKS[:2], settings=settings).learn()
    for one, two in zip(entries(stored[0]), entries(other), strict=True):
        assert one.owned.same_bits(two.owned)
        assert all(torch.equal(one.head[name], two.head[name]) for name in one.head)
        assert one.metadata["trained_dev"] == two.metadata["trained_dev"]


def test_each_row_passes_the_lower_blocks_once_and_alone(stored):
    run, computed = stored
    assert set(computed) == {1}
    rows = {
        tuple(x.flatten().tolist())
        for name in ("train", "valid")
        for experience in run.benchmark.streams[name]
        for x, *_ in experience.dataset
    }
    # And one of the two passes that make sure that the model allows it.
    assert len(computed) == len(rows) + 1
    assert find_lower_part(run.unwrapped) is None


def test_answers_keep_the_bits_that_the_bank_recorded(stored):
    run, _ = stored
    assert run.scores.logit_hash(1, 0) == run.scores.logit_hash(0, 0)
    run.model.eval()
    for position, entry in enumerate(entries(run)):
        run.plugin.carry(run.model, position)
        with torch.no_grad():
            logits = run.model(entry.recorded_batch.inputs, entry.label)
        own = logits[:, : entry.recorded_batch.logits.shape[1]]
        assert torch.equal(own, entry.recorded_batch.logits)


def test_evaluating_in_between_trains_the_same_bits(stored, tiny_bert):
    run = text_learner(tiny_bert, TASKS[:2], settings=quick(layers=1, evaluate_every=2))
    for experience in run.train_stream:
        run.strategy.train(experience)
    for one, two in zip(entries(stored[0]), entries(run), strict=True):
        assert one.owned.same_bits(two.owned)


def test_naive_trains_the_same_upper_blocks(kept_strategy):
    strategy = kept_strategy("naive", layers=1, run_settings={"tasks": ["topic"]})
    model = strategy.model.task_model
    base = load_model(model.name, family="encoder").model
    moved = [
        name
        for (name, one), other in zip(
            graftable_parameters(model).items(), graftable_parameters(base).values(), strict=True
        )
        if not torch.equal(one, other)
    ]
    assert moved
    assert all(".layer.1." in name for name in moved)
    assert find_lower_part(model) is None
    assert all(p.requires_grad for p in graftable_parameters(model).values())
