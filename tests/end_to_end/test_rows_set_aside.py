"""Rows that are set aside for choosing are trained on by nobody."""

import pytest
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import ReplayPlugin
from tiny_streams import learner, mlp, quick, quiet_evaluator, sgd, text_learner, vector_stream

from cl_graft import GraftingContinual
from cl_graft.errors import InputError
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.strategies import TextBatches
from cl_graft.strategies.experience_tasks import set_aside


class Seen(SupervisedPlugin, supports_distributed=True):
    """Notes every row that the host's loop computes, by task label."""

    def __init__(self, trip_at=None):
        super().__init__()
        self.rows = {}
        self.sizes, self.evaluated = [], []
        self.trip_at = trip_at

    def after_training_iteration(self, strategy, **kwargs):
        label = int(min(getattr(strategy.experience, "task_labels", [0])))
        self.sizes.append(len(strategy.experience.dataset))
        for row, task in zip(strategy.mb_x, strategy.mb_task_id, strict=True):
            self.rows.setdefault((label, int(task)), set()).add(key(row))
        if self.trip_at is not None and strategy.clock.train_exp_iterations >= self.trip_at:
            raise RuntimeError("tripped")

    def after_eval_exp(self, strategy, **kwargs):
        self.evaluated.append(len(strategy.adapted_dataset))


def key(row):
    return hash_tensors({"row": row})


def parts(experience, seed=0):
    """The rows that may be trained on, and those that are set aside."""
    rest = set_aside(experience, seed=seed)
    return ({key(item[0]) for item in part.dataset} for part in (rest, rest.set_aside))


def test_the_hosts_loop_trains_on_all_rows_but_those_set_aside():
    seen = Seen()
    run = learner(mlp(), vector_stream(labels=[0, 1], rows=120), plugins=[seen], train_epochs=2)
    run.strategy.train(run.train_stream)
    for label, experience in enumerate(run.train_stream):
        rest, aside = parts(experience)
        assert len(aside) == 6
        assert seen.rows[label, label] == rest
        assert len(experience.dataset) == 120  # the experience itself is whole


@pytest.mark.parametrize("batches", [True, False])
def test_text_streams_train_on_all_rows_but_those_set_aside(tiny_bert, batches):
    seen = Seen()
    plugins = [TextBatches(0), seen] if batches else [seen]
    run = text_learner(tiny_bert, ("scope",), grafting={"dev": None}, plugins=plugins)
    run.strategy.train(run.train_stream[0])
    rest, aside = parts(run.train_stream[0])
    assert aside
    assert seen.rows[0, 0] == rest - aside


def test_memories_of_other_plugins_never_hold_rows_set_aside():
    replay, seen = ReplayPlugin(mem_size=400, batch_size_mem=32), Seen()
    run = learner(
        mlp(), vector_stream(labels=[0, 1, 2], rows=120), plugins=[replay, seen], train_epochs=8
    )
    run.strategy.train(run.train_stream)
    for label, experience in enumerate(run.train_stream):
        rest, _ = parts(experience)
        for later in range(label, 3):
            assert seen.rows[later, label] <= rest
    held = {key(item[0]) for item in replay.storage_policy.buffer}
    assert held == set().union(*(set(next(iter(parts(e)))) for e in run.train_stream))


def test_after_an_exception_and_after_training_nothing_stays_set_aside():
    seen = Seen(trip_at=1)
    run = learner(mlp(), vector_stream(labels=[0, 1], rows=120), plugins=[seen])
    first = run.train_stream[0]
    with pytest.raises(RuntimeError, match="tripped"):
        run.strategy.train(first)
    assert len(first.dataset) == 120
    seen.trip_at = None
    run.strategy.train(first)
    run.strategy.eval(run.train_stream)
    assert seen.evaluated == [120, 120]
    assert run.strategy.experience is None
    assert not hasattr(first, "set_aside")
    assert set(seen.sizes) == {114}


def test_with_dev_given_all_rows_train():
    seen, stream = Seen(), vector_stream(labels=[0], rows=120)
    model = mlp()
    strategy = GraftingContinual(
        model=model,
        optimizer=sgd(model),
        train_mb_size=8,
        evaluator=quiet_evaluator(),
        plugins=[seen],
        grafting=quick(),
        dev=stream.streams["test"],
    )
    strategy.train(stream.streams["train"])
    assert seen.rows[0, 0] == {key(item[0]) for item in stream.streams["train"][0].dataset}


def test_a_single_row_cannot_be_set_aside():
    with pytest.raises(InputError, match="has none to set aside"):
        set_aside(vector_stream(1, rows=1).streams["train"][0], seed=0)
