"""Every strategy trains with the optimiser, rate, decay and warm-up that the docs' table names."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from docs.test_reference import load_extension
from slow_cases import slow_but
from small_runs import FEW
from tiny_streams import mlp, naive_strategy, vector_stream
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cl_graft.data import load_task
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.models import load_model
from cl_graft.strategies import RateSchedule, StopAfter, text_model
from cl_graft.strategies.benchmark import text_stream
from cl_graft.strategies.registry import STRATEGIES, build_strategy, list_available
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.fine_tuning import fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.rate_schedule import rate_share

STEPS = 20
NAMES = list_available()
DENSE = FineTuning(steps=STEPS, batch_size=4, evaluations=0, weight_decay=0.0)


@contextmanager
def watched_steps():
    """Collect the class and the rates of every optimiser step in a `with` block."""
    found = []

    def watch(optimizer, args, kwargs):
        found.append((type(optimizer), [group["lr"] for group in optimizer.param_groups]))

    handle = register_optimizer_step_pre_hook(watch)
    try:
        yield found
    finally:
        handle.remove()


@pytest.fixture(scope="module")
def tasks():
    return [load_task("scope", shots=8, max_test=4)]


def train(name, model, tasks, **changes):
    """Train a strategy on one task; return the class and rates of every optimiser step."""
    loaded = load_model(str(model))
    stream = text_stream(tasks, loaded.tokenizer, family="encoder", max_length=16)
    dense = replace(DENSE, **changes)
    grafting = GraftingSettings(
        fine_tuning=dense, localizer="movement", density=0.01, evaluate_every=0
    )
    inputs = StrategyInputs(
        model=text_model(loaded, stream),
        stream=stream,
        fine_tuning=dense,
        grafting=grafting,
        region_optimizer="sgd",  # whose rate is a number
    )
    strategy = build_strategy(name, inputs)
    with watched_steps() as found:
        strategy.train(stream.benchmark.train_stream[0], eval_streams=[])
    return found[-STEPS:]


def read_table():
    """Read the docs' table: optimiser, rate, decay and warm-up by strategy, of encoders."""
    found = {}
    for line in load_extension("from_the_package").rates_of_strategies().splitlines()[2:]:
        trained, optimizer, rate, decay, warm_up, names = (
            cell.strip() for cell in line.strip("|").split(" | ")
        )
        share = float(warm_up.partition(" %")[0]) / 100 if "%" in warm_up else 0.0
        lr = DENSE.lr if rate == "`fine_tuning.lr`" else rate
        if trained != "regions":
            told = getattr(torch.optim, optimizer), float(lr), decay, share
            found |= dict.fromkeys(re.findall(r"`(\w+)`", names), told)
    return found


def test_the_table_names_every_strategy():
    known = {name for name, row in STRATEGIES.items() if row.family != "ablation"}
    assert read_table().keys() == known
    rates = load_extension("from_the_package").rates_of_strategies()
    assert "| regions | AdamW | 8 · s / √k | linear | 6 %" in rates


@pytest.mark.parametrize("name", slow_but(FEW, NAMES))
def test_a_strategy_trains_as_the_table_says(still_bert, tasks, name):
    kind, lr, decay, warm_up = read_table()[name]
    found = train(name, still_bert, tasks)
    assert {one for one, _ in found} == {kind}
    expected = [lr * rate_share(t, STEPS, decay=decay, warm_up=warm_up) for t in range(STEPS)]
    for step, (_, rates) in enumerate(found):
        assert rates == pytest.approx([expected[step]] * len(rates)), step


@pytest.mark.parametrize("name", slow_but(("lora", "naive"), NAMES))
def test_one_setting_changes_the_decay_of_every_strategy(still_bert, tasks, name):
    found = train(name, still_bert, tasks, lr_decay="cosine", warm_up=0.5)
    rates = [own[0] for _, own in found]
    highest = read_table()[name][1]
    shares = [rate_share(t, STEPS, decay="cosine", warm_up=0.5) for t in range(STEPS)]
    assert rates == pytest.approx([highest * share for share in shares])
    assert rates.index(max(rates)) == STEPS // 2


def test_the_share_of_a_rate_rises_to_1_and_falls_to_0():
    for decay in ("linear", "cosine"):
        shares = [rate_share(t, 100, decay=decay, warm_up=0.1) for t in range(101)]
        assert shares[:11] == pytest.approx([(t + 1) / 11 for t in range(11)])
        assert all(a > b for a, b in pairwise(shares[10:]))
        assert shares[100] == pytest.approx(0.0)
    assert {rate_share(t, 7, decay="constant", warm_up=0.0) for t in range(9)} == {1.0}


def test_the_rate_falls_to_zero_anew_over_the_steps_of_every_task():
    model = mlp()
    strategy = naive_strategy(
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=9.0),
        plugins=[RateSchedule(lr=0.4, steps=4), StopAfter(4)],
        train_epochs=4,
    )
    with watched_steps() as found:
        for experience in vector_stream(labels=[0, 1]).streams["train"]:
            strategy.train(experience)
    assert [rate for _, rates in found for rate in rates] == pytest.approx(2 * [0.4, 0.3, 0.2, 0.1])


def test_a_dense_run_changes_its_rate_as_a_loop_does():
    model = torch.nn.Linear(2, 1)
    with watched_steps() as found:
        fine_tune(
            model,
            dict(model.named_parameters()),
            loss=lambda step: model(torch.ones(1, 2)).sum(),
            settings=replace(DENSE, lr=1.0, optimizer="adamw"),
            seed=0,
        )
    expected = [rate_share(t, STEPS, decay="linear", warm_up=0.06) for t in range(STEPS)]
    assert [rates[0] for _, rates in found] == pytest.approx(expected)
