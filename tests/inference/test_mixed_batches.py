"""Mixed batches: every row is answered as if the model had switched to its task."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import TwoLayers, model_bits, quick
from slow_cases import slow
from torch import Tensor, nn
from two_layer_banks import LAYOUT, draw_bank, draw_some_of_each, empty_bank, grow, stream

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, Mode
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.inference.mixed_batches import MatrixMethod, mixed_batch
from cl_graft.inference.task_switch import Switch
from cl_graft.models import graftable_parameters, load_model

MODES = pytest.mark.parametrize("mode", ["prefix", "isolated"])


def _unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    now = model_bits(model)
    return all(torch.equal(now[name], before[name]) for name in before)


def _switching(switch: Switch, rows: Tensor, positions: list[int | None]) -> Tensor:
    """Answer row by row, moving the switch."""
    with torch.no_grad():
        answers = []
        for row, position in zip(rows, positions, strict=True):
            with switch.carrying(position) as model:
                answers.append(model(row[None]))
        return torch.cat(answers)


@quick
@given(st.data())
def test_rows_of_different_tasks_are_answered_as_by_switching(data):
    whole = draw_bank(data)
    bank = empty_bank(whole.mode)
    for entry in whole.entries:
        generator = torch.Generator().manual_seed(len(bank))
        values = torch.randn(len(entry.owned), generator=generator)
        bank = bank.append(replace(entry, owned=Graft(entry.owned.region, values)))
    model = TwoLayers().eval()
    switch = Switch(model, bank)
    places = st.none() | st.integers(0, len(bank) - 1)
    positions = data.draw(st.lists(places, min_size=1, max_size=6))
    switch.to(data.draw(places))
    before, position = model_bits(model), switch.position
    rows = torch.randn(len(positions), 4, generator=torch.Generator().manual_seed(0))
    expected = _switching(switch, rows, positions)
    method: MatrixMethod = data.draw(st.sampled_from(["fastest", "add", "by_task"]))
    with mixed_batch(switch, positions, method=method) as serving, torch.no_grad():
        answers = serving(rows)
    torch.testing.assert_close(answers, expected, rtol=1e-4, atol=1e-4)
    assert switch.position == position
    assert _unchanged(model, before)


def _real_bank(model: nn.Module, mode: Mode, dtype: torch.dtype) -> GraftBank:
    """Three tasks that change every graftable parameter, LayerNorms and biases too, visibly."""
    layout = Layout.of(graftable_parameters(model))
    bank = GraftBank(layout, BaseIdentity("f" * 64, "tiny", str(dtype).split(".")[1]), mode)
    generator = torch.Generator().manual_seed(0)
    for number in range(3):
        claimed = draw_some_of_each(layout, generator)
        free = bank.free(claimed)
        values = torch.randn(len(free), generator=generator).to(dtype)
        bank = bank.append(Entry(f"t{number}", number, Graft(free, values), claimed - free))
    return bank


@MODES
@pytest.mark.parametrize("method", ["add", "by_task"])
@pytest.mark.parametrize("dtype", [torch.float32, *slow(torch.bfloat16)])
@pytest.mark.parametrize("family", ["tiny_bert", *slow("tiny_roberta"), "tiny_gpt2"])
def test_transformers_answer_mixed_batches_as_by_switching(family, dtype, mode, method, request):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(request.getfixturevalue(family), dtype=dtype).eval()
    switch = Switch(model, _real_bank(model, mode, dtype))
    before = model_bits(model)
    positions = [2, None, 0, 0, 1, 2]
    ids = torch.randint(5, 90, (6, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[2, 4:] = 0
    with mixed_batch(switch, positions, method=method), torch.no_grad():
        answers = model(input_ids=ids, attention_mask=mask).last_hidden_state
    assert _unchanged(model, before)
    with torch.no_grad():
        for position in (None, 0, 1, 2):
            with switch.carrying(position):
                expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
            mine = torch.tensor([place == position for place in positions])
            atol = 1e-5 if dtype == torch.float32 else 0.06  # bf16 rounds 4.0 by up to 0.016
            torch.testing.assert_close(answers[mine], expected[mine], rtol=1e-4, atol=atol)
            assert not torch.allclose(answers[~mine], expected[~mine], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("method", ["add", "by_task", "fastest"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_batches_are_answered_in_the_precision_of_the_model(tiny_bert, precision, method):
    model = load_model(str(tiny_bert), precision=precision).model
    switch = Switch(model, _real_bank(model, "prefix", torch.float32))
    ids = torch.randint(5, 90, (4, 7), generator=torch.Generator().manual_seed(1))
    positions = [2, 0, 0, 2]
    with torch.no_grad():
        with mixed_batch(switch, positions, method=method):
            answers = model.features(ids, torch.ones_like(ids))
        for position in (0, 2):
            with switch.carrying(position):
                expected = model.features(ids, torch.ones_like(ids))
            mine = torch.tensor([place == position for place in positions])
            torch.testing.assert_close(answers[mine], expected[mine], rtol=1e-2, atol=0.06)
            assert not torch.allclose(answers[~mine], expected[~mine], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("method", ["add", "by_task"])
def test_a_cache_of_cast_weights_is_no_harm(method):
    model = TwoLayers().eval()
    switch = Switch(model, stream("prefix"))
    rows = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=True):
        model(rows)
        with mixed_batch(switch, [0, 3, 0, 3], method=method):
            answers = model(rows)
        for position, mine in ((0, [0, 2]), (3, [1, 3])):
            with switch.carrying(position):
                expected = model(rows)[mine]
            torch.testing.assert_close(answers[mine], expected, rtol=2e-2, atol=1e-2)


@MODES
def test_an_exception_in_the_middle_of_a_layer_leaves_the_model_as_it_was(mode):
    model = TwoLayers().eval()
    calls = []

    def fail(x: Tensor) -> Tensor:
        calls.append(len(x))
        if len(calls) == 2:
            raise KeyError("stop")
        return nn.Linear.forward(model.second, x)

    model.second.forward = fail
    switch = Switch(model, stream(mode))
    switch.to(2)
    before = model_bits(model)
    with suppress(KeyError), mixed_batch(switch, [0, 1, 3]), torch.no_grad():
        model(torch.randn(3, 4))
    assert calls == [1, 1]
    assert switch.position == 2
    assert _unchanged(model, before)
    assert model.second.forward is fail
    assert type(model.first) is nn.Linear
    assert list(vars(model.first)) == list(vars(nn.Linear(1, 1)))


@MODES
def test_a_copy_made_in_the_block_is_a_plain_model_that_answers_by_itself(mode):
    model = TwoLayers().eval()
    switch = Switch(model, stream(mode))
    rows = torch.randn(3, 4)
    with mixed_batch(switch, [0, 1, 3]) as serving, torch.no_grad():
        for made in (copy.deepcopy(serving), pickle.loads(pickle.dumps(serving))):
            assert [type(m) for m in made.modules()] == [type(m) for m in TwoLayers().modules()]
            for parameter in made.parameters():
                parameter.zero_()
            assert not made(rows[:2]).any()
        assert serving(rows).any()


@MODES
def test_an_added_task_is_answered(mode):
    whole = stream(mode, tasks=4)
    first = GraftBank(whole.layout, whole.base, mode, whole.entries[:3])
    model = TwoLayers().eval()
    switch = Switch(model, first)
    rows = torch.randn(4, 4)
    with mixed_batch(switch, [0, 1, 2, 2]), torch.no_grad():
        early = model(rows)
    switch.to(1)
    switch.add(whole)
    assert switch.position == 1
    switch.to(None)
    expected = _switching(Switch(model, whole), rows, [0, 3, 2, 3])
    with mixed_batch(switch, [0, 3, 2, 3]), torch.no_grad():
        late = model(rows)
    torch.testing.assert_close(late, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(late[[0, 2]], early[[0, 2]], rtol=1e-4, atol=1e-4)


def test_a_bank_that_is_not_the_current_one_with_more_entries_is_refused():
    whole = stream("prefix")
    switch = Switch(TwoLayers(), whole)
    shorter = GraftBank(LAYOUT, whole.base, "prefix", whole.entries[:2])
    other = grow(grow(empty_bank(), Region.of(LAYOUT, [1])), Region.of(LAYOUT, [2]))
    for bank in (shorter, stream("isolated"), other):
        with pytest.raises(ValueError, match="expected the bank of 4 entries that is open"):
            switch.add(bank)


def test_the_switch_is_not_moved_while_a_mixed_batch_is_answered():
    switch = Switch(TwoLayers().eval(), stream("prefix"))
    with mixed_batch(switch, [0, 1]) as model, torch.no_grad():
        with pytest.raises(RuntimeError, match="answering a mixed batch"):
            switch.to(3)
        with pytest.raises(RuntimeError, match="answering a mixed batch"):
            mixed_batch(switch, [0, 2]).__enter__()
        model(torch.randn(2, 4))


class Shared(nn.Module):
    """A block whose second layer uses the first one's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Functional(TwoLayers):
    """A model that reads a layer's weight without calling the layer."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.first(x), self.second.weight)


class Flattening(TwoLayers):
    """A model that hands its layers more rows than the batch has."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.cat([x, x]))


def _any_bank(model: nn.Module) -> GraftBank:
    layout = Layout.of(dict(model.named_parameters()))
    bank = GraftBank(layout, BaseIdentity("f" * 64, "any", "float32"))
    for number in range(2):
        region = Region.of(layout, torch.arange(number, layout.total, 2))
        graft = Graft(region, torch.ones(len(region)))
        bank = bank.append(Entry("t", number, graft, Region.empty(layout)))
    return bank


@pytest.mark.parametrize(
    ("model", "refusal"),
    [
        (Shared, "weight of 'first' is a parameter of 'second' too"),
        (Functional, r"2 of the 3 modules.*'norm' first"),
        (Flattening, r"'first' \(Linear\), which is called with .*\(4, 4\)"),
        (partial(nn.MultiheadAttention, 4, 2, batch_first=True), "MultiheadAttention"),
    ],
)
def test_a_module_that_cannot_answer_row_by_row_is_refused(model, refusal):
    model = model().eval()
    switch = Switch(model, _any_bank(model))
    before = model_bits(model)
    x = torch.randn(2, 3, 4) if refusal == "MultiheadAttention" else torch.randn(2, 4)
    with pytest.raises((ValueError, RuntimeError), match=refusal), mixed_batch(switch, [0, 1]):
        model(*[x] * (3 if x.dim() == 3 else 1))
    assert switch.position is None
    assert _unchanged(model, before)


def test_a_model_in_training_mode_an_empty_batch_and_an_unknown_method_are_refused():
    switch = Switch(TwoLayers(), stream("prefix"))
    with pytest.raises(ValueError, match="the model is in training mode"):
        mixed_batch(switch, [0, 1]).__enter__()
    with pytest.raises(ValueError, match="at least one row"):
        mixed_batch(switch, []).__enter__()
    method: Any = "compute_by_group"
    with pytest.raises(ValueError, match="must be one of 'fastest', 'add', 'by_task', got"):
        mixed_batch(switch, [0], method=method).__enter__()


def test_gradients_through_a_mixed_batch_are_refused_by_autograd():
    model = TwoLayers().eval()
    with mixed_batch(Switch(model, stream("prefix")), [0, 1], method="by_task"):
        loss = model(torch.randn(2, 4)).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
