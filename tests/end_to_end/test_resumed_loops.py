"""A strategy's own loop, taken up in its middle, whatever optimiser and plugins train there."""

import pytest
import torch
from interrupted import KeptPhases, Trip
from slow_cases import slow
from tiny_streams import naive_strategy, quick, text_learner

from cl_graft.errors import InputError
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.strategies import (
    ClipGradient,
    KeepBest,
    MicroBatches,
    RateSchedule,
    ScaleLoss,
    SeededLoop,
    StopAfter,
    TextBatches,
)
from cl_graft.strategies.loop.resuming import Resuming
from cl_graft.training.precision import LossScale

STEPS = 7
OPTIMIZERS = {
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-3, centered=True),
}


def around(phases, *, scaled=False, looped=()):
    """Plugins of a loop of `STEPS` steps; epochs have 4."""
    scale = LossScale(2.0**4, growth_every=2)
    return [
        TextBatches(0),
        *([MicroBatches(3, scale=scale)] if scaled else []),
        *looped,
        ClipGradient(1.0),
        RateSchedule(lr=0.1, steps=STEPS, decay="cosine", warm_up=0.3),
        StopAfter(STEPS),
        *([ScaleLoss(scale)] if scaled else []),
        *([Resuming(phases, dict)] if phases is not None else []),
    ]


def grafted(folder, phases, optimizer, *, scaled):
    made = text_learner(
        folder,
        ("scope",),
        settings=quick(evaluate_every=2),
        optimizer=OPTIMIZERS[optimizer],
        train_epochs=3,
        grafting={"checkpoints": phases},
        plugins=around(phases, scaled=scaled),
    )
    made.strategy.train(made.train_stream[0])
    (entry,) = made.plugin.bank.entries
    passes = made.plugin.passes[0]
    return entry.weights_sha256, hash_tensors(entry.head), entry.metadata["trained_dev"], passes


def naive(folder, phases, optimizer, *, scaled, evaluations=0):
    made = text_learner(folder, ("scope",))
    keep = KeepBest(STEPS, evaluations, dev=made.benchmark.streams["valid"])
    strategy = naive_strategy(
        made.model,
        optimizer=OPTIMIZERS[optimizer](made.model),
        train_epochs=3,
        plugins=around(phases, scaled=scaled, looped=[keep, SeededLoop(0)]),
    )
    strategy.train(made.train_stream[0])
    return hash_tensors(snapshot(dict(made.model.named_parameters()))), keep.chosen, keep.rows


def naive_at_its_best(folder, phases, optimizer, *, scaled):
    return naive(folder, phases, optimizer, scaled=scaled, evaluations=4)


@pytest.mark.parametrize(
    ("learn", "optimizer", "scaled"),
    [
        (naive_at_its_best, "momentum", False),
        *slow(
            (grafted, "adamw", True),
            (grafted, "rmsprop", False),
            (naive, "momentum", False),
            (naive_at_its_best, "adamw", True),
        ),
    ],
)
@pytest.mark.parametrize("step", [5, *slow(1, 4, STEPS)])
def test_a_loop_interrupted_after_any_step_ends_on_the_same_bits(
    tiny_bert, learn, optimizer, scaled, step
):
    undisturbed = learn(tiny_bert, None, optimizer, scaled=scaled)
    phases = KeptPhases()
    assert learn(tiny_bert, phases, optimizer, scaled=scaled) == undisturbed
    before = phases.offers - STEPS
    phases = KeptPhases(trip_after=before + step)
    with pytest.raises(Trip):
        learn(tiny_bert, phases, optimizer, scaled=scaled)
    assert learn(tiny_bert, phases, optimizer, scaled=scaled) == undisturbed
    # Nothing is done twice: dense run and localization answer with their last states.
    assert phases.offers == before + STEPS


def test_a_loop_is_not_taken_up_with_other_plugins(tiny_bert):
    phases = KeptPhases(trip_after=3)
    with pytest.raises(Trip):
        naive(tiny_bert, phases, "momentum", scaled=False)
    with pytest.raises(InputError, match="written by another version"):
        naive(tiny_bert, phases, "momentum", scaled=True)


def test_a_loop_over_other_batches_is_begun_anew(tiny_bert):
    made = text_learner(tiny_bert, ("scope",))
    phases = KeptPhases()
    optimizer = OPTIMIZERS["momentum"](made.model)
    strategy = naive_strategy(made.model, optimizer=optimizer, plugins=[Resuming(phases, dict)])
    strategy.train(made.train_stream[0])
    assert phases.offers == 0
