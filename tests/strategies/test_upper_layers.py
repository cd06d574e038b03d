"""Training with regions in the upper blocks alone."""

import pytest
import torch
from tiny_streams import TASKS, quick, text_learner


def test_training_touches_the_upper_blocks_alone_and_computes_no_gradient_below(tiny_bert):
    run = text_learner(tiny_bert, settings=quick(layers=1, localizer="base_gradient"))
    lower, upper = run.unwrapped.backbone.encoder.layer
    seen = {"lower": set(), "upper": set()}

    def note(name, module, output):
        states = output if isinstance(output, torch.Tensor) else output[0]
        if module.training:
            seen[name].add(states.requires_grad)

    lower.register_forward_hook(lambda module, _, output: note("lower", module, output))
    upper.register_forward_hook(lambda module, _, output: note("upper", module, output))
    run.strategy.train(next(iter(run.train_stream)))
    assert seen["lower"] == {False}
    assert seen["upper"] == {True}
    (entry,) = run.plugin.bank.entries
    assert len(entry.owned)
    assert all(".layer.1." in name for name, *_ in entry.owned.region.by_parameter())


@pytest.fixture(scope="module")
def learned(tiny_bert):
    """A stream learned in the upper block."""
    return text_learner(tiny_bert, TASKS[:2], settings=quick(layers=1, evaluate_every=2)).learn()


def test_answers_keep_the_bits_that_the_bank_recorded(learned):
    assert learned.scores.logit_hash(1, 0) == learned.scores.logit_hash(0, 0)
    learned.model.eval()
    for position, entry in enumerate(learned.plugin.bank.entries):
        learned.plugin.carry(learned.model, position)
        with torch.no_grad():
            logits = learned.model(entry.recorded_batch.inputs, entry.label)
        own = logits[:, : entry.recorded_batch.logits.shape[1]]
        assert torch.equal(own, entry.recorded_batch.logits)
