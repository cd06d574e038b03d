"""Training with regions in the upper blocks alone."""

import torch
from tiny_streams import quick, text_learner


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
    assert seen["dropout"] == {("lower", 0.0), ("upper", 0.1)}
    (entry,) = run.plugin.bank.entries
    assert len(entry.owned)
    assert all(".layer.1." in name for name, *_ in entry.owned.region.by_parameter())
