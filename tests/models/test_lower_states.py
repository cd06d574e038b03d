"""States below the blocks that train: the same bits, stored or not, for every family."""

import copy

import pytest
import torch
from torch import nn

from cl_graft.errors import InputError
from cl_graft.models import load_model, make_head
from cl_graft.models.lower_blocks import find_lower_part
from cl_graft.models.lower_states import freeze_below

FAMILIES = {
    "tiny_bert": "encoder",
    "tiny_roberta": "masked_lm",
    "tiny_distilbert": "encoder",
    "tiny_electra": "encoder",
    "tiny_gpt2": "causal_lm",
    "tiny_llama": "causal_lm",
}


def task_model(folder, family="encoder"):
    model = load_model(folder, family=family).model
    labels = {"encoder": None, "masked_lm": [[7], [9]], "causal_lm": [[7, 8], [9]]}[family]
    head = make_head(model, classes=2, label_token_ids=labels, seed=0)
    model.add_head(0, head)
    return model.eval()


def rows(model, lengths=(9, 4, 6)):
    draw = torch.Generator().manual_seed(0)
    x = torch.zeros(len(lengths), 2, max(lengths) + 3, dtype=torch.int64)
    for n, length in enumerate(lengths):
        x[n, 0, :length] = torch.randint(10, 60, (length,), generator=draw)
        x[n, 1, :length] = 1
        if model.family == "masked_lm":
            x[n, 0, 2] = model.mask_token_id
    return x


@pytest.fixture(params=FAMILIES)
def model(request):
    return task_model(request.getfixturevalue(request.param), FAMILIES[request.param])


def blocks_of(model):
    return next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == 2)


def test_stored_states_give_the_bits_of_computed_ones_and_the_answers_of_the_model(model):
    x = rows(model)
    with torch.no_grad():
        plain = model(x, 0)
        with freeze_below(model, 1, memory=2**20):
            first, again = model(x, 0), model(x, 0)
            states = find_lower_part(model)
            count = states.computed
            smaller = model(x[1:], 0)
            assert states.computed == count  # a row is a row in any batch
        with freeze_below(model, 1, memory=None):
            computed = model(x, 0)
    assert torch.equal(first, again)
    assert torch.equal(first, computed)
    torch.testing.assert_close(first, plain)
    torch.testing.assert_close(smaller, plain[1:])
    assert find_lower_part(model) is None


def test_gradients_are_those_of_the_upper_blocks_with_and_without_store(model):
    x, found = rows(model), []
    upper = dict(blocks_of(model)[1].named_parameters())
    for memory in (2**20, None, 0):
        with freeze_below(model, 1, memory=memory):
            for _ in range(2):
                model.zero_grad()
                model(x, 0).log_softmax(-1)[:, 0].sum().backward()
        found.append({name: p.grad.clone() for name, p in upper.items() if p.grad is not None})
        assert all(p.grad is None for p in blocks_of(model)[0].parameters())
    assert found[0]
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in found[0])


def test_train_mode_changes_nothing_below(tiny_bert):
    model = task_model(tiny_bert)
    upper = blocks_of(model)[1]
    for module in upper.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    with torch.no_grad(), freeze_below(model, 1, memory=2**20):
        model.eval()
        evaluated = model(rows(model), 0)
        model.train()
        upper.attention.self.eval()
        modes = [module.training for module in model.modules()]
        trained = model(rows(model, (9, 4, 6)), 0)
        assert modes == [module.training for module in model.modules()]
    assert torch.equal(evaluated, trained)


def test_what_is_stored_of_other_weights_is_forgotten_and_of_the_same_ones_kept(tiny_bert):
    model, x = task_model(tiny_bert), None
    x = rows(model)
    weight = blocks_of(model)[0].output.dense.weight
    before = weight.detach().clone()
    with torch.no_grad():
        with freeze_below(model, 1, memory=2**20):
            first = model(x, 0)
            states = find_lower_part(model)
            assert states.computed == 3
            weight.add_(0.5)
            other = model(x, 0)
            assert states.computed == 6
        weight.copy_(before)
        with freeze_below(model, 1, memory=2**20):
            assert find_lower_part(model) is states
            assert torch.equal(model(x, 0), first)
            assert states.computed == 9
            weight.copy_(before)
            blocks_of(model)[1].output.dense.weight.mul_(1.0)
            model(x, 0)
            assert states.computed == 9
    assert not torch.equal(first, other)


def test_what_is_stored_in_another_precision_is_forgotten(tiny_bert):
    model = task_model(tiny_bert)
    x = rows(model)
    with torch.no_grad(), freeze_below(model, 1, memory=2**20):
        exact = model(x, 0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            coarse = model(x, 0)
        assert not torch.equal(exact, coarse)
        assert torch.equal(model(x, 0), exact)
        model.precision = "bf16"
        model(x, 0)
        model.precision = "fp32"
        assert torch.equal(model(x, 0), exact)


def test_a_copy_of_the_model_has_its_blocks(tiny_bert):
    model = task_model(tiny_bert)
    x = rows(model)
    with torch.no_grad():
        plain = model(x, 0)
        with freeze_below(model, 1, memory=2**20):
            model(x, 0)
            copied = copy.deepcopy(model)
            assert torch.equal(copied(x, 0), plain)
            assert find_lower_part(copied) is None


def test_all_layers_have_nothing_below(tiny_bert):
    model = task_model(tiny_bert)
    for layers in ("all", 2):
        with freeze_below(model, layers, memory=None):
            assert find_lower_part(model) is None


def test_upper_blocks_that_look_past_the_states_are_refused(tiny_bert):
    model = task_model(tiny_bert)
    lower, upper = blocks_of(model)
    seen = []
    lower.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    upper.register_forward_pre_hook(lambda _, inputs: (inputs[0] + seen.pop(), *inputs[1:]))
    lower.register_forward_hook(lambda *_: seen.append(seen[-1] * len(seen)))
    with (
        torch.no_grad(),
        freeze_below(model, 1, memory=None),
        pytest.raises(InputError, match="more than the states"),
    ):
        model(rows(model), 0)
