"""Training with regions in the upper blocks alone."""

import torch
from tiny_streams import TASKS, quick, text_learner


def test_regions_in_the_upper_blocks_train_without_a_gradient_below_and_keep_their_answers(
    tiny_bert,
):
    settings = quick(layers=1, localizer="base_gradient")
    run = text_learner(tiny_bert, TASKS[:2], settings=settings)
    lower, upper = run.unwrapped.backbone.encoder.layer
    seen = {"lower": set(), "upper": set()}

    def note(name, module, output):
        states = output if isinstance(output, torch.Tensor) else output[0]
        if module.training:
            seen[name].add(states.requires_grad)

    lower.register_forward_hook(lambda module, _, output: note("lower", module, output))
    upper.register_forward_hook(lambda module, _, output: note("upper", module, output))
    run.learn()
    assert seen["lower"] == {False}
    assert seen["upper"] == {True}
    assert run.scores.logit_hash(1, 0) == run.scores.logit_hash(0, 0)
    run.model.eval()
    for position, entry in enumerate(run.plugin.bank.entries):
        assert len(entry.owned)
        assert all(".layer.1." in name for name, *_ in entry.owned.region.by_parameter())
        run.plugin.carry(run.model, position)
        with torch.no_grad():
            logits = run.model(entry.recorded_batch.inputs, entry.label)
        own = logits[:, : entry.recorded_batch.logits.shape[1]]
        assert torch.equal(own, entry.recorded_batch.logits)
