"""Evaluation in the middle of training, early stopping, and exceptions leave nothing behind."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.evaluation.metrics import loss_metrics
from avalanche.training.plugins import EarlyStoppingPlugin
from slow_cases import slow
from tiny_streams import bits, learner, quick, same_entries, text_learner, vector_stream

from cl_graft.errors import WrongBase
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.runtime import seeding
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger


class Trip(SupervisedPlugin):
    """Raise once at a hook, when the experience counter and the count of calls have come."""

    def __init__(self, hook, *, experience, call):
        super().__init__()
        self.left = call
        self.experience = experience
        setattr(self, hook, self.trip)

    def trip(self, strategy, **kwargs):
        if strategy.clock.train_exp_counter != self.experience:
            return
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("tripped")


@pytest.fixture(scope="module")
def undisturbed(tiny_bert):
    run = text_learner(tiny_bert, train_epochs=2)
    run.strategy.train(run.train_stream, eval_streams=[run.test_stream])
    run.learned = run.hashes()
    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["iteration", "epoch"])
def test_evaluating_in_between_trains_the_same_bits(tiny_bert, undisturbed, tmp_path, mode):
    logger = OncePerStepTensorboardLogger(tmp_path)
    run = text_learner(
        tiny_bert,
        train_epochs=2,
        eval_every=1,
        peval_mode=mode,
        metrics=[loss_metrics(minibatch=True, epoch=True, experience=True, stream=True)],
        loggers=[logger],
    ).learn()
    assert same_entries(run.plugin.bank.entries, undisturbed.plugin.bank.entries)
    assert run.hashes() == undisturbed.learned
    logger.writer.flush()
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_early_stopping_gives_its_best_point_to_the_bank(tiny_bert):
    kept = []

    class Keep(EarlyStoppingPlugin):
        def before_training_epoch(self, strategy, **kwargs):
            super().before_training_epoch(strategy, **kwargs)
            kept.append(None if self.best_state is None else dict(self.best_state))

    # A loss can only get worse at this rate, so the first state measured is the best one.
    stop = Keep(patience=1, val_stream_name="test_stream", metric_name="Loss_Stream", mode="min")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Metric Loss_Stream used by the EarlyStopping")
        run = text_learner(
            tiny_bert,
            ("scope",),
            optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=50.0),
            train_epochs=5,
            eval_every=1,
            plugins=[stop],
            metrics=[loss_metrics(stream=True)],
        )
        run.strategy.train(run.train_stream[0], eval_streams=[run.test_stream])
    assert run.strategy.clock.train_exp_epochs < 5
    best, prefix = kept[-1], "task_model."
    layout, entry = run.plugin.bank.layout, run.plugin.bank.entries[0]
    assert entry.weights_sha256 == hash_tensors({n: best[prefix + n] for n in layout.names})
    assert torch.equal(entry.head["weight"], best[prefix + "heads.0.weight"])


@pytest.mark.parametrize(
    ("hook", "call"),
    [
        ("before_update", 2),
        *slow(
            ("before_eval_iteration", 2),
            ("after_eval_exp", 1),
            ("after_training_iteration", 3),
            ("after_training_epoch", 1),
        ),
    ],
)
def test_after_an_exception_everything_goes_on_as_if_the_call_had_never_come(
    tiny_bert, undisturbed, hook, call
):
    run = text_learner(tiny_bert, train_epochs=2, eval_every=1)
    run.strategy.train(run.train_stream[0], eval_streams=[run.test_stream])
    run.strategy.plugins.insert(-3, Trip(hook, experience=1, call=call + 2 * ("eval" in hook)))
    with pytest.raises(RuntimeError, match="tripped"):
        run.strategy.train(run.train_stream[1], eval_streams=[run.test_stream])
    assert run.hashes()[0] == undisturbed.learned[0]
    run.strategy.train(run.train_stream[1], eval_streams=[run.test_stream])
    assert same_entries(run.plugin.bank.entries, undisturbed.plugin.bank.entries)
    assert run.hashes() == undisturbed.learned


def test_an_interrupted_task_can_be_given_up_by_hand(tiny_bert):
    run = text_learner(tiny_bert)
    run.strategy.train(run.train_stream[0])
    before = bits(run.unwrapped)
    groups = [list(map(id, g["params"])) for g in run.strategy.optimizer.param_groups]
    run.strategy.plugins.insert(1, Trip("after_update", experience=1, call=2))
    with pytest.raises(RuntimeError, match="tripped"):
        run.strategy.train(run.train_stream[1])
    with pytest.raises(ValueError, match="no experience in training"):
        run.plugin.carry(run.model, 0)
    run.plugin.abandon()
    assert bits(run.unwrapped) == before
    held = [list(map(id, g["params"])) for g in run.strategy.optimizer.param_groups]
    assert [ids[: len(groups[0])] for ids in held] == groups
    run.plugin.carry(run.model, 0)
    assert len(run.plugin.bank) == 1


@pytest.mark.slow
def test_a_dense_run_that_diverges_leaves_the_stream_usable(tiny_bert, undisturbed):
    from cl_graft import FineTuning
    from cl_graft.errors import DivergedError

    wild = quick(fine_tuning=FineTuning(steps=8, lr=1e18, clip=0, evaluations=0))
    run = text_learner(tiny_bert, train_epochs=2, grafting={"by_label": {1: wild}})
    run.strategy.train(run.train_stream[0])
    with pytest.raises(DivergedError):
        run.strategy.train(run.train_stream[1])
    assert run.hashes()[0] == undisturbed.learned[0]
    run.plugin._by_label.clear()
    run.strategy.train(run.train_stream[1])
    assert same_entries(run.plugin.bank.entries, undisturbed.plugin.bank.entries)


def test_a_plugin_that_writes_outside_the_region_is_found_out(tiny_bert):
    class Rogue(SupervisedPlugin):
        def after_training_epoch(self, strategy, **kwargs):
            with torch.no_grad():
                next(strategy.model.task_model.backbone.parameters()).add_(1.0)

    run = text_learner(tiny_bert, ("scope",), plugins=[Rogue()])
    with pytest.raises(RuntimeError, match="outside the region changed"):
        run.strategy.train(run.train_stream[0])
    assert len(run.plugin.bank) == 0


class Norms(torch.nn.Module):
    """A model with spectral norms, and perhaps with buffers that it moves itself."""

    def __init__(self, moves=False):
        super().__init__()
        torch.manual_seed(0)
        norm = torch.nn.utils.parametrizations.spectral_norm
        self.first, self.last = norm(torch.nn.Linear(12, 8)), torch.nn.Linear(8, 2)
        self.register_buffer("seen", torch.zeros(1))
        self.moves = moves

    def forward(self, x):
        if self.training and self.moves:
            self.seen += 1
        return self.last(torch.relu(self.first(x)))


def test_a_model_with_spectral_norms_learns_and_keeps_the_buffers_of_the_base():
    model = Norms()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    run = learner(model, vector_stream(labels=[0, 1, 2])).learn()
    assert len(run.plugin.bank) == 3
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({}, WrongBase, "a layer that writes its own buffers in train mode"),
        # It makes no dense run, so the buffers move while the region trains.
        ({"localizer": "fisher"}, RuntimeError, r"buffers changed .* seen first\): the model"),
    ],
)
def test_buffers_that_a_model_writes_itself_are_blamed(settings, error, said):
    run = learner(Norms(moves=True), vector_stream(labels=[0, 1, 2]), settings=quick(**settings))
    with pytest.raises(error, match=said):
        run.strategy.train(run.train_stream[0])


@pytest.mark.parametrize("fails", [False, True])
def test_the_generator_of_every_device_is_put_back(fails, monkeypatch):
    device = torch.Generator().manual_seed(3)
    monkeypatch.setattr(seeding, "global_generators", lambda: [torch.default_generator, device])

    class Draws(SupervisedPlugin):
        def after_training_epoch(self, strategy, **kwargs):
            torch.rand(5, generator=device)
            torch.rand(5)
            if fails:
                raise KeyError

    run = learner(Norms(), vector_stream(labels=[0, 1, 2]), plugins=[Draws()])
    before = device.get_state()
    with pytest.raises(KeyError) if fails else nullcontext():
        run.strategy.train(run.train_stream[0])
        assert not fails
    assert torch.equal(device.get_state(), before) is not fails
    run.plugin.abandon()
    assert torch.equal(device.get_state(), before)
