"""Heads and pooling on plain tensors."""

from __future__ import annotations

import pytest
import torch

from cl_graft.models import check_head, load_model
from cl_graft.models.heads import LabelStrings, first_token, linear_head, mean_of_tokens


def test_a_linear_head_is_a_function_of_its_seed_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    head, again, other = (linear_head(64, 50, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(head.weight, again.weight)
    assert not torch.equal(head.weight, other.weight)
    assert not head.bias.any()
    # 3,200 draws: the standard error of the standard deviation is 0.00025.
    assert float(head.weight.detach().std()) == pytest.approx(0.02, abs=0.001)
    assert head.weight.requires_grad


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        ([], "at least one token"),
        ([(1,), ()], "at least one token"),
        ([(1, 2), (3,), (1, 2)], "labels 0 and 2 have the same tokens"),
    ],
)
def test_label_strings_that_cannot_be_told_apart_are_refused(strings, message):
    with pytest.raises(ValueError, match=message):
        LabelStrings(strings)


def test_pooling_ignores_what_stands_in_the_padding():
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [torch.nan, torch.inf]]])
    mask = torch.tensor([[True, True, False]])
    assert mean_of_tokens(hidden, mask).tolist() == [[2.0, 4.0]]
    assert first_token(hidden, mask).tolist() == [[1.0, 2.0]]


def test_pooling_half_precision_is_done_in_fp32():
    hidden = torch.full((1, 300, 1), 300.0, dtype=torch.float16)  # the sum is beyond fp16
    pooled = mean_of_tokens(hidden, torch.ones(1, 300, dtype=torch.bool))
    assert pooled.dtype == torch.float32
    assert pooled.tolist() == [[300.0]]


def test_a_head_that_a_model_cannot_answer_with_is_refused(tiny_bert):
    model = load_model(str(tiny_bert)).model
    good = linear_head(model.hidden_size, 3, seed=0).state_dict()
    check_head(good, model)
    for change, said in [
        ({"weight": torch.ones(3, 5)}, "shapes"),
        ({"bias": torch.ones(2)}, "shapes"),
        ({"mine": torch.ones(2)}, "shapes"),
        ({"weight": torch.ones(0, model.hidden_size), "bias": torch.ones(0)}, "shapes"),
        ({"weight": good["weight"] / 0}, "NaN or infinite"),
        ({"weight": good["weight"].long()}, "floating"),
    ]:
        with pytest.raises(ValueError, match=said):
            check_head({**good, **change}, model)
    with pytest.raises(ValueError, match="shapes"):
        check_head({}, model)


@pytest.mark.parametrize(
    "head",
    [
        {"token_ids": torch.tensor([[1, 2], [3, 0]]), "lengths": torch.tensor([2, 3])},
        {"token_ids": torch.tensor([[1, 2], [10**6, 0]]), "lengths": torch.tensor([2, 1])},
        {"token_ids": torch.tensor([[1, -2], [3, 0]]), "lengths": torch.tensor([2, 1])},
        {"token_ids": torch.tensor([[1.0, 2], [3, 0]]), "lengths": torch.tensor([2, 1])},
        {"token_ids": torch.tensor([1, 2])},
        {},
    ],
)
def test_labels_that_are_no_tokens_are_refused(tiny_gpt2, head):
    model = load_model(str(tiny_gpt2), family="causal_lm").model
    good = {"token_ids": torch.tensor([[1, 2], [3, 0]]), "lengths": torch.tensor([2, 1])}
    check_head(good, model)
    with pytest.raises(ValueError, match=r"head of shapes|vocabulary"):
        check_head(head, model)
