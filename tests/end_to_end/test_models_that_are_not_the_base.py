"""A bank answers and learns on its own base alone, whoever opens it."""

import copy
import gc

import pytest
import torch
from slow_cases import slow
from tiny_streams import (
    bits,
    learner,
    multi_head,
    naive_strategy,
    quick,
    same_entries,
    vector_stream,
)
from torch import nn

from cl_graft import load_bank, save_bank
from cl_graft.errors import WrongBase
from cl_graft.grafts.hashing import model_sha256
from cl_graft.inference.task_switch import Switch


class Blocks(nn.Module):
    """Embeddings, BatchNorm and a graftable stack of blocks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Linear(12, 8)
        self.norm = nn.BatchNorm1d(8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(2)
        )
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        x = self.norm(self.embedding(x))
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


def stream(tasks=3):
    return vector_stream(labels=list(range(tasks)))


def trained(model=None, *, tasks=2, **chosen):
    run = learner(model or Blocks(), stream(), settings=quick(density=0.1), **chosen)
    run.strategy.train(list(run.train_stream)[:tasks])
    return run


def given(model, bank, **more):
    """A second strategy that was given a bank, and has called nothing yet."""
    settings = quick(density=0.1, mode=bank.mode)
    return learner(model, stream(), settings=settings, grafting={"bank": bank} | more)


def assert_refused(second, model, bank, said):
    """Assert that every use of a bank on a model is refused, and leaves its bits."""
    before = bits(model)
    for use in (
        second.hashes,
        lambda: second.strategy.train(second.train_stream[2]),
        lambda: second.plugin.carry(model, 0),
        lambda: Switch(model, bank),
    ):
        with pytest.raises(WrongBase, match=said):
            use()
        assert bits(model) == before


@pytest.mark.parametrize("mode", ["prefix", *slow("isolated")])
def test_a_second_strategy_answers_the_trained_model_as_the_first_one_does(mode):
    run = learner(Blocks(), stream(), settings=quick(density=0.1, mode=mode))
    run.strategy.train(run.train_stream)
    expected = run.hashes()
    bank = run.plugin.bank
    second = given(run.model, bank)
    assert second.hashes() == expected
    assert run.hashes() == expected  # and the first one still does
    assert second.hashes() == expected
    copied = given(copy.deepcopy(run.model), bank)
    assert copied.hashes() == expected


def test_two_strategies_of_one_model_take_turns_in_learning():
    alone = trained(tasks=3)
    run = trained(tasks=2)
    second = given(run.model, run.plugin.bank)
    second.strategy.train(second.train_stream[2])
    entry, expected = second.plugin.bank.entries[2], alone.plugin.bank.entries[2]
    assert entry.owned.same_bits(expected.owned)
    assert second.hashes() == alone.hashes()
    run.strategy.train(run.train_stream[2])
    assert run.plugin.bank.entries[2].owned.same_bits(expected.owned)


def test_a_model_that_carries_a_prefix_is_refused_where_nobody_holds_its_base():
    run = trained()
    model, bank = copy.deepcopy(run.model), run.plugin.bank
    del run
    gc.collect()
    said = r"carries the values of entry 1 \('task1'\)"
    assert_refused(given(model, bank), model, bank, said)


def other_embeddings(model):
    model.embedding.weight.add_(0.5)


def other_statistics(model):
    model.norm.running_mean.add_(0.5)


def other_blocks(model):
    model.blocks[1][0].weight.mul_(1.01)


CHANGES = [other_embeddings, other_statistics, other_blocks]


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_with_other_weights_or_buffers_is_refused_before_a_bit_is_written(change):
    run = trained()
    bank = run.plugin.bank
    model = Blocks()
    with torch.no_grad():
        change(model)
    assert_refused(given(model, bank), model, bank, "not the base of the bank")


def test_the_bank_records_the_hash_of_its_base_and_where_the_heads_are(tmp_path):
    model = multi_head()
    expected = model_sha256(model, exclude=("classifier",))
    run = trained(model)
    save_bank(run.plugin.bank, tmp_path / "bank")
    base = load_bank(tmp_path / "bank").base
    assert base.weights_sha256 == expected
    assert base.heads == ("classifier",)
    run.plugin.carry(model, None)
    assert isinstance(Switch(model, load_bank(tmp_path / "bank")), Switch)


def reset(model):
    model.load_state_dict(Blocks().state_dict())


def train_by_another(model):
    naive_strategy(model).train(stream().streams["train"][0])


@pytest.mark.parametrize("position", [0, *slow(None, 1)])
def test_a_model_that_was_reset_to_its_base_in_between_is_answered_and_learns_as_ever(position):
    run, alone = trained(), trained(tasks=3)
    expected = run.hashes()
    run.plugin.carry(run.model, position)
    reset(run.model)
    assert run.hashes()[:2] == expected[:2]
    run.plugin.carry(run.model, position)
    reset(run.model)
    run.strategy.train(run.train_stream[2])
    assert run.hashes() == alone.hashes()


def other_dtype(model):
    model.double()


@pytest.mark.parametrize("use", ["train", *slow("eval")])
@pytest.mark.parametrize("change", [*CHANGES, train_by_another, other_dtype])
def test_a_base_that_was_moved_in_between_is_noticed_before_it_answers_or_learns(change, use):
    run = trained()
    run.hashes()
    context = torch.no_grad() if change in CHANGES else torch.enable_grad()
    with context:
        change(run.model)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    with pytest.raises(WrongBase, match="not the base of the bank"):
        run.hashes() if use == "eval" else run.strategy.train(run.train_stream[2])
    after = run.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def in_turn(model, benchmark, **chosen):
    """Learn a stream with a new plugin, whose bank is returned and which then is gone."""
    settings = quick(**({"density": 0.1} | chosen))
    return learner(model, benchmark, settings=settings).learn().plugin.bank


def growing():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.mark.parametrize("make", [multi_head, *slow(growing, Blocks)])
def test_a_loop_over_settings_learns_on_one_model_what_it_learns_on_fresh_ones(make):
    shared = make()
    for density in (0.1, 0.05):
        again = in_turn(shared, stream(), density=density)
        gc.collect()
        fresh = in_turn(make(), stream(), density=density)
        assert again.base.fingerprint == fresh.base.fingerprint
        assert same_entries(again.entries, fresh.entries)


def test_a_model_whose_grafts_were_mixed_with_other_weights_is_refused():
    model = Blocks()
    trained(model)
    gc.collect()
    with torch.no_grad():
        model.embedding.bias.add_(1.0)
    with pytest.raises(WrongBase, match="carries values of a bank of 2 entries"):
        trained(model)
    model.load_state_dict(Blocks().state_dict())
    assert len(trained(model).plugin.bank) == 2
