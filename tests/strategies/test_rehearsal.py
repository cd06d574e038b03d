"""Rehearsal by its own definitions: what is kept, and what is done with it."""

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import AGEMPlugin, GEMPlugin
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
    """Notes the products of the gradient with those of kept rows, once there are any."""

    def __init__(self, references):
        super().__init__()
        self.references, self.dots = references, []

    def after_backward(self, strategy, **kwargs):
        if len(references := self.references()):
            now = [
                torch.zeros(p.numel()) if p.grad is None else p.grad.flatten()
                for p in strategy.model.parameters()
            ]
            self.dots.append(torch.atleast_2d(references) @ torch.cat(now))


def products(kept_strategy, name, kind, references):
    """Return the products before and after a plugin of a kind projects: (steps, references)."""
    probes = []

    def before(strategy):
        place = next(n for n, p in enumerate(strategy.plugins) if isinstance(p, kind))
        projects = strategy.plugins[place]
        probes[:] = [Probe(lambda: references(projects)), Probe(lambda: references(projects))]
        strategy.plugins[place : place + 1] = [probes[0], projects, probes[1]]

    kept_strategy(name, before=before)
    raw, projected = (torch.stack(probe.dots) for probe in probes)
    assert len(raw) == SMALL["steps"]
    return raw, projected


def test_a_gem_step_opposes_the_gradient_of_no_earlier_task(kept_strategy):
    pytest.importorskip("quadprog", reason="quadprog (GPL) is installed by who wants GEM")
    raw, projected = products(kept_strategy, "gem", GEMPlugin, lambda plugin: plugin.G)
    opposed = (raw < 0).any(dim=1)
    assert opposed.any()
    assert (projected[~opposed] == raw[~opposed]).all()
    assert (projected[opposed] > 0).all()  # memory_strength asks for more than 0


def test_an_a_gem_step_does_not_oppose_the_gradient_on_kept_rows(kept_strategy):
    raw, projected = products(
        kept_strategy,
        "agem",
        AGEMPlugin,
        lambda plugin: plugin.reference_gradients if len(plugin.buffers) else torch.empty(0),
    )
    for then, now in zip(raw.flatten(), projected.flatten(), strict=True):
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
