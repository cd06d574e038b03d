"""What is beyond a model's embeddings is said in a sentence, before anything is computed."""

from __future__ import annotations

import shutil

import pytest
import torch
from transformers import AutoTokenizer

from cl_graft.errors import InputError
from cl_graft.models import check_batch, check_head, linear_head, load_model, longest_row


def test_a_tokenizer_larger_than_the_embeddings_is_refused_when_it_is_loaded(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    size = len(tokenizer)
    tokenizer.add_tokens(["entirelynew"])
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=rf"gives ids up to {size}, .* embeddings for {size}"):
        load_model(str(tmp_path / "model"))


@pytest.mark.parametrize(("kind", "longest"), [("bert", 256), ("roberta", 256), ("gpt2", None)])
def test_the_longest_row_is_what_the_positions_allow(request, kind, longest):
    model = load_model(str(request.getfixturevalue(f"tiny_{kind}"))).model
    assert longest_row(model) == (longest or model.backbone.config.max_position_embeddings)


def test_positions_of_minus_1_are_no_limit(tiny_bert):
    model = load_model(str(tiny_bert)).model
    model.text_config.max_position_embeddings = -1  # as in XLNet's config
    assert longest_row(model) is None


def rows(length: int = 8) -> torch.Tensor:
    return torch.ones(2, 2, length, dtype=torch.int64)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (rows().float(), "int64 of shape"),
        (rows()[:, 0], "int64 of shape"),
        (rows()[:0], "holds nothing"),
        (rows(300), "300 tokens a row, expected 1 to 256"),
        (rows() * 10**6, "token ids that are not in"),
        (-rows(), "token ids that are not in"),
        (rows() * torch.tensor([[1], [3]]), "segments are 0, 1 and 2"),
        (rows() * torch.tensor([[1], [0]]), "0 tokens a row"),
    ],
)
def test_a_batch_that_a_model_cannot_read_is_refused(tiny_bert, inputs, said):
    model = load_model(str(tiny_bert)).model
    check_batch(rows(), model)
    with pytest.raises(ValueError, match=said):
        check_batch(inputs, model)


def test_a_batch_of_a_masked_prompt_has_one_mask_a_row(tiny_bert):
    model = load_model(str(tiny_bert), family="masked_lm").model
    inputs = rows()
    with pytest.raises(ValueError, match=r"\[0, 0\] mask tokens"):
        check_batch(inputs, model)
    inputs[:, 0, 3] = model.mask_token_id
    check_batch(inputs, model)


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
