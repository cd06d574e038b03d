"""Rehearsal by its own definitions: what is kept, and what is done with it."""

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import AGEMPlugin
from small_runs import SMALL
from torch.utils.data import default_collate

ROW = 2 * SMALL["max_length"] * 8 + 8
"""Bytes of a row: tokens and segments, and the target."""


def test_replay_keeps_as_many_rows_as_it_is_told_and_shares_them_among_tasks(small_runs):
    heads = small_runs("naive").bytes
    own = small_runs("replay", own={"mem_size": 10}).bytes
    assert own["scope"] - heads["scope"] == 10 * ROW
    assert own["topic"] == heads["topic"]


def test_a_gem_keeps_rows_of_each_task(small_runs):
    heads = small_runs("naive").bytes
    own = small_runs("agem", own={"patterns_per_experience": 6, "sample_size": 4}).bytes
    assert {task: own[task] - heads[task] for task in heads} == dict.fromkeys(heads, 6 * ROW)


def test_gdumb_with_room_for_all_rows_of_a_task_is_naive_on_it(small_runs):
    alone = {"tasks": ["scope"]}
    kept = small_runs("gdumb", own={"mem_size": 1000}, **alone)
    assert kept.logit_hashes == small_runs("naive", **alone).logit_hashes


class Probe(SupervisedPlugin):
    """Notes the products of the gradient with that of kept rows, once there are any."""

    def __init__(self, plugin):
        super().__init__()
        self.plugin, self.dots = plugin, []

    def after_backward(self, strategy, **kwargs):
        if self.plugin.buffers:
            now = [
                torch.zeros(p.numel()) if p.grad is None else p.grad.flatten()
                for p in strategy.model.parameters()
            ]
            self.dots.append(float(self.plugin.reference_gradients @ torch.cat(now)))


def test_an_a_gem_step_does_not_oppose_the_gradient_on_kept_rows(kept_strategy):
    probes = []

    def before(strategy):
        place = next(n for n, p in enumerate(strategy.plugins) if isinstance(p, AGEMPlugin))
        projects = strategy.plugins[place]
        probes[:] = [Probe(projects), Probe(projects)]
        strategy.plugins[place : place + 1] = [probes[0], projects, probes[1]]

    kept_strategy("agem", before=before)
    raw, projected = (probe.dots for probe in probes)
    assert len(raw) == SMALL["steps"]
    for then, now in zip(raw, projected, strict=True):
        if then >= 0:
            assert now == then
        else:
            assert abs(now) <= 1e-3 * abs(then) + 1e-6


def test_der_keeps_the_logits_that_its_rows_had_when_their_task_was_learned(kept_strategy):
    strategy = kept_strategy("der", run_settings={"tasks": ["scope"]})
    buffer = strategy.storage_policy.buffer
    inputs, _, labels, logits = default_collate([buffer[n] for n in range(len(buffer))])
    strategy.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(strategy.model(inputs, labels), logits)
