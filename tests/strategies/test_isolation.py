"""Parameter isolation: earlier tasks keep their bits, and a task adds the bytes that it should."""

import math
from dataclasses import replace

import pytest
import torch
from slow_cases import slow_but
from small_runs import FEW, Runs
from tiny_runs import forgets_nothing

from cl_graft.errors import InputError
from cl_graft.lab.baselines.lora import LoRASettings, OrthogonalLoRA, add_lora_
from cl_graft.lab.baselines.masks import ChosenWeights, PackedWeights, choose_largest
from cl_graft.lab.baselines.own_values import add_adapters_, add_prompt_
from cl_graft.models import load_model
from cl_graft.strategies import find_plugin
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.registry import STRATEGIES, find_strategy, list_available

FORGET_NOTHING = [name for name in list_available() if STRATEGIES[name].family == "isolation"]
ON_THE_PATH_OF_THE_STREAM = {"packnet", "wsn"}
WHATEVER_THE_ORDER = [name for name in FORGET_NOTHING if name not in ON_THE_PATH_OF_THE_STREAM]
HIDDEN, INNER, BLOCKS = 32, 64, 2


@pytest.mark.parametrize("name", slow_but(FEW, FORGET_NOTHING))
def test_isolated_tasks_keep_their_bits_and_backward_transfer_is_exactly_zero(small_runs, name):
    result = small_runs(name)
    assert result.backward_transfer == result.forgetting == 0.0
    assert forgets_nothing(result)


def test_there_is_forgetting_where_none_of_that_is_done(small_runs):
    for name in ("naive", "sequential_lora"):
        hashes = small_runs(name).logit_hashes["scope"]
        assert hashes["end"] != hashes["learned"]


@pytest.mark.parametrize("name", slow_but(("lora",), WHATEVER_THE_ORDER))
def test_a_task_is_learned_with_its_dropout_as_if_it_were_alone(
    tiny_bert, tmp_path, small_runs, name
):
    alone, later = (
        Runs(tiny_bert, tmp_path / str(len(order)), drawn=small_runs.drawn)(name, tasks=order)
        for order in (["topic"], ["scope", "topic"])
    )
    assert alone.logit_hashes["topic"]["learned"] == later.logit_hashes["topic"]["learned"]
    assert alone.bytes["topic"] == pytest.approx(later.bytes["topic"], rel=0.02)
    still = small_runs(name)
    assert later.logit_hashes["topic"]["learned"] != still.logit_hashes["topic"]["learned"]


def linears():
    """Inputs and outputs of the linear layers of a block."""
    return [(HIDDEN, HIDDEN)] * 4 + [(HIDDEN, INNER), (INNER, HIDDEN)]


def weights():
    return BLOCKS * sum(n * m for n, m in linears())


EXTRA = {
    "bitfit": 4 * BLOCKS * (sum(m for _, m in linears()) + 2 * HIDDEN),
    "lora": 4 * BLOCKS * sum(n + m for n, m in linears()),
    "adapters": 4 * BLOCKS * (2 * HIDDEN * 4 + 4 + HIDDEN),
    "prompt_tuning": 4 * 10 * HIDDEN,
    "piggyback": weights() // 8,
}


@pytest.mark.parametrize("name", slow_but(("bitfit", "lora", "piggyback"), EXTRA))
def test_a_task_adds_its_head_and_the_bytes_of_its_own_part(small_runs, name):
    heads = small_runs("naive").bytes
    own = small_runs(name).bytes
    assert {task: own[task] - heads[task] for task in heads} == dict.fromkeys(heads, EXTRA[name])


@pytest.mark.parametrize("name", ["lora", "adapters", "prompt_tuning"])
def test_a_task_of_a_base_in_float16_learns_in_float32_and_keeps_half_the_bytes(small_runs, name):
    heads = small_runs("naive", dtype="float16").bytes
    own = small_runs(name, dtype="float16")
    extra = {task: own.bytes[task] - heads[task] for task in heads}
    assert extra == dict.fromkeys(heads, EXTRA[name] // 2)
    assert forgets_nothing(own)


@pytest.mark.parametrize(
    ("layers", "variant", "sides"),
    [("mlp", "dora", linears()[4:]), ("attention", "rslora", linears()[:4])],
)
def test_a_lora_stands_in_the_layers_that_it_is_told(small_runs, layers, variant, sides):
    heads = small_runs("naive").bytes
    run = small_runs("lora", own={"layers": layers, "variant": variant, "rank": 2})
    numbers = sum(2 * (n + m) + (variant == "dora") * m for n, m in sides)
    assert {task: run.bytes[task] - heads[task] for task in heads} == dict.fromkeys(
        heads, 4 * BLOCKS * numbers
    )
    assert forgets_nothing(run)


def test_a_lora_of_layers_that_a_model_lacks_is_refused(asked):
    for layer in asked[0].backbone.encoder.layer:
        layer.intermediate.dense = layer.output.dense = torch.nn.Linear(HIDDEN, HIDDEN)
    shape = StreamShape(asked[0], 2, 2, 24, batch_size=8, localizer="movement")
    find_strategy("lora").check_stream(shape, {})
    with pytest.raises(InputError, match=r"layers 'mlp' .* none was found .*: choose 'all'"):
        find_strategy("lora").check_stream(shape, {"layers": "mlp"})


def test_owners_and_scores_are_held_once(small_runs):
    heads = small_runs("naive").bytes
    packed, chosen = small_runs("packnet").bytes, small_runs("wsn").bytes
    assert packed["scope"] - heads["scope"] == weights()
    assert packed["topic"] == heads["topic"]
    assert chosen["scope"] - heads["scope"] == weights() // 8 + 4 * weights()
    assert chosen["topic"] - heads["topic"] == weights() // 8


def test_wsn_chooses_the_scores_that_are_largest_in_absolute_value(kept_strategy):
    strategy = kept_strategy("wsn", share=0.5)
    chosen = [m for m in strategy.model.modules() if isinstance(m, ChosenWeights)]
    assert chosen
    for one in chosen:
        with torch.no_grad():
            one.scores.mul_(torch.where(torch.arange(one.scores.shape[1]) % 2 == 0, -1.0, 1.0))
        left = one.scores.detach().abs()
        cut = left.flatten().sort(descending=True).values[round(0.5 * left.numel()) - 1]
        assert torch.equal(one.choose(), left >= cut)


def test_a_choice_by_absolute_value_hands_its_gradient_to_the_scores_with_their_sign():
    choice = ChosenWeights(torch.tensor([[-3.0, 1.0, 2.0]]), choose_largest(2 / 3), absolute=True)
    weight = torch.tensor([[5.0, 7.0, 11.0]])
    assert choice(weight).tolist() == [[5.0, 0.0, 11.0]]
    choice(weight).sum().backward()
    assert choice.scores.grad.tolist() == [[-5.0, 7.0, 11.0]]


def test_packnet_shares_out_each_matrix_exactly(kept_strategy):
    strategy = kept_strategy("packnet", prune=0.75)
    plugin = find_plugin(strategy, PackedWeights)
    for name, owner in plugin.owners.items():
        total = owner.numel()
        first = math.ceil(0.25 * total)
        second = math.ceil(0.25 * (total - first))
        assert owner.unique(return_counts=True)[1].tolist() == [
            total - first - second,
            first,
            second,
        ]
        weight = strategy.model.task_model.get_parameter(name)
        assert not weight[owner == 0].any()
        assert weight[owner == 1].abs().min() > 0


def test_orthogonality_keeps_the_next_subspace_apart(kept_strategy):
    def overlap(weight):
        longer = {"steps": 20}
        strategy = kept_strategy("o_lora", run_settings=longer, orthogonality=weight, lr=0.02)
        plugin = find_plugin(strategy, OrthogonalLoRA)
        pairs = [(first, second) for first, second in plugin.bases.values()]
        return sum(float((a @ b.T).abs().sum()) for a, b in pairs)

    assert overlap(100.0) < 0.5 * overlap(0.0)


@pytest.fixture
def asked(still_bert):
    """A model with a head, and rows to ask it."""
    model = load_model(str(still_bert)).model
    model.add_head(0, torch.nn.Linear(HIDDEN, 3))
    ids = torch.randint(5, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    segments = torch.ones_like(ids)
    segments[1:, 6:] = 0
    return model.eval(), torch.stack([ids * segments, segments], dim=1)


@pytest.mark.parametrize(
    "add",
    [
        lambda model: add_adapters_(model, size=4, seed=0),
        lambda model: add_lora_(model, LoRASettings(rank=2, alpha=4), seed=0),
        lambda model: add_lora_(model, LoRASettings(rank=2, variant="dora"), seed=0),
    ],
    ids=["adapters", "lora", "dora"],
)
def test_adapters_and_loras_answer_as_the_base_at_first(asked, add):
    model, rows = asked
    before = model(rows, 0)
    add(model)
    torch.testing.assert_close(model(rows, 0), before, rtol=0, atol=1e-6)


def test_a_prompt_changes_answers_and_leaves_the_shape(asked):
    model, rows = asked
    before = model(rows, 0)
    add_prompt_(model, tokens=3, seed=0)
    after = model(rows, 0)
    assert after.shape == before.shape
    assert not torch.equal(after, before)


def test_a_prompt_that_does_not_fit_is_refused(small_runs):
    with pytest.raises(InputError, match="puts 300 vectors before texts of up to 24 tokens"):
        small_runs("prompt_tuning", own={"tokens": 300})


def test_packnet_is_refused_for_more_tasks_than_a_byte_numbers(asked):
    shape = StreamShape(asked[0], 256, 2, 24, batch_size=8, localizer="movement")
    with pytest.raises(InputError, match="255 tasks at most, got 256"):
        find_strategy("packnet").check_stream(shape, {})
    find_strategy("packnet").check_stream(replace(shape, tasks=255), {})
