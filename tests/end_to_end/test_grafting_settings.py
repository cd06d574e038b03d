"""What the settings of grafting mean for a stream."""

import logging

import pytest
import torch
from slow_cases import slow
from tiny_streams import learner, mlp, quick, text_learner, vector_stream

from cl_graft import GraftBank, GraftingPlugin
from cl_graft.strategies import TaskMetadata


def test_a_task_without_a_free_coordinate_is_answered_by_the_prefix(caplog):
    run = learner(
        mlp(), vector_stream(labels=[0, 1, 2]), settings=quick(density=1.0, avoid_owned=False)
    )
    run.strategy.train(run.train_stream[0])
    before = run.hashes()
    with caplog.at_level(logging.WARNING, logger="cl_graft"):
        run.strategy.train(run.train_stream[1])
    assert "no coordinate of its region is free" in caplog.text
    bank = run.plugin.bank
    assert [len(entry.owned) for entry in bank.entries] == [bank.layout.total, 0]
    assert run.hashes() == before
    run.strategy.train(run.train_stream[2])
    assert len(run.plugin.bank) == 3


@pytest.mark.parametrize("avoid_owned", [True, *slow(False)])
def test_a_full_bank_takes_tasks_with_heads_and_trains_only_these(tiny_bert, avoid_owned, caplog):
    run = text_learner(tiny_bert, settings=quick(density=1.0, avoid_owned=avoid_owned))
    with caplog.at_level(logging.WARNING, logger="cl_graft"):
        run.learn()
    assert "through its own head" in caplog.text
    assert len(run.plugin.bank.entries[1].owned) == 0
    assert run.scores.logit_hash(1, 0) == run.scores.logit_hash(0, 0)


def test_refill_keeps_late_tasks_at_their_whole_budget():
    regions = {}
    for avoid_owned in (True, False):
        settings = quick(density=0.3, avoid_owned=avoid_owned)
        run = learner(mlp(), vector_stream(labels=[0, 1, 2]), settings=settings)
        run.strategy.train(run.train_stream)
        regions[avoid_owned] = [(len(e.region), len(e.owned)) for e in run.plugin.bank.entries]
    k = round(0.3 * run.plugin.bank.layout.total)
    assert regions[True] == [(k, k)] * 3
    assert [claimed for claimed, _ in regions[False]] == [k] * 3
    assert regions[False][0] == (k, k)
    assert all(owned < k for _, owned in regions[False][1:])


def test_a_region_trains_without_dropout_where_it_is_not_wanted():
    values = {}
    for rate, wanted in ((0.5, False), (0.0, True), (0.5, True)):
        model = mlp(drop_rate=rate)
        settings = quick(dropout=wanted, localizer="random")
        run = learner(model, vector_stream(labels=[0, 1]), settings=settings)
        run.strategy.train(run.train_stream[0])
        values[rate, wanted] = run.plugin.bank.entries[0].owned.values
        assert [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)] == [rate]
    assert torch.equal(values[0.5, False], values[0.0, True])
    assert not torch.equal(values[0.5, True], values[0.0, True])


def test_an_entry_records_what_was_said_of_its_task(tiny_bert):
    grown = []
    metadata = {0: TaskMetadata("mood", "f1", {"shots": 16})}
    run = text_learner(tiny_bert, grafting={"metadata": metadata, "on_entry": grown.append})
    run.strategy.train(run.train_stream)
    first, second = run.plugin.bank.entries
    assert (first.task, first.metadata["metric"], first.metadata["shots"]) == ("mood", "f1", 16)
    assert second.task == "task1"
    assert [len(bank) for bank in grown] == [1, 2]
    assert run.plugin.seconds.keys() == {0, 1}
    assert run.plugin.seconds[0].keys() == {"dense", "localize", "region"}


def test_a_cache_answers_another_order_of_the_stream_with_the_same_bits(tiny_bert):
    class DictCache:
        def __init__(self):
            self.kept, self.hits = {}, 0

        def get(self, key):
            self.hits += key in self.kept
            return self.kept.get(key)

        def put(self, key, tensors, values):
            self.kept[key] = ({n: t.clone() for n, t in tensors.items()}, dict(values))

        def __len__(self):
            return len(self.kept)

    def learn(names):
        settings = quick(mode="isolated", localizer="learned_mask")
        made = text_learner(tiny_bert, names, settings=settings, grafting={"cache": stored})
        return made.learn().plugin.bank.entries

    stored = DictCache()
    forwards = learn(("scope", "topic"))
    assert (stored.hits, len(stored)) == (0, 4)
    backwards = learn(("topic", "scope"))
    assert stored.hits == 4
    for one, other in zip(forwards, backwards[::-1], strict=True):
        assert one.owned.same_bits(other.owned)


def test_a_bank_is_gone_on_with_in_its_own_mode_only():
    run = learner(mlp(), vector_stream(labels=[0, 1]), settings=quick(mode="isolated"))
    run.strategy.train(run.train_stream[0])
    assert isinstance(run.plugin.bank, GraftBank)
    with pytest.raises(ValueError, match="isolated mode"):
        GraftingPlugin(quick(), bank=run.plugin.bank)


def test_looking_at_dev_does_not_change_how_a_region_trains_and_the_best_look_is_kept():
    def learned(**settings):
        stream = vector_stream(labels=[0, 1])
        run = learner(mlp(), stream, settings=quick(density=0.2, **settings))
        run.strategy.train(run.train_stream)
        return run.plugin.bank

    plain, looked = learned(), learned(evaluate_every=10_000)
    for left, right in zip(plain.entries, looked.entries, strict=True):
        assert left.owned.same_bits(right.owned)  # one look, at the last step: it is the best
    often = learned(evaluate_every=1)
    for none, last, best in zip(plain.entries, looked.entries, often.entries, strict=True):
        assert none.metadata["trained_dev"] is None
        assert best.metadata["trained_dev"] >= last.metadata["trained_dev"]
