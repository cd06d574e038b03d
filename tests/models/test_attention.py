"""Which attention a model trains with, and that it computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cl_graft.models import TaskModel, load_model
from cl_graft.models.task_model import LONGEST_PLAIN

HALF = [{"precision": "bf16"}, {"precision": "fp16"}, {"dtype": "bfloat16"}]


def answering(checkpoint: Any, **settings: str) -> TaskModel:
    model = load_model(str(checkpoint), **settings).model
    model.add_head(0, nn.Linear(model.hidden_size, 2))
    return model


def rows(length: int = 9) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 30, (3, length), generator=draw)
    return torch.stack([ids, torch.ones_like(ids)], dim=1)


def attention(model: TaskModel) -> str:
    config: Any = model.backbone.config
    return config._attn_implementation


@pytest.mark.parametrize("settings", HALF)
def test_short_rows_train_with_plain_products_and_answers_keep_the_bits_of_the_model(
    tiny_bert, settings
):
    model = answering(tiny_bert, **settings)
    with torch.no_grad():
        before = model(rows(), 0)
        assert attention(model) == "sdpa"
    model(rows(), 0)
    assert attention(model) == "eager"
    model(rows(LONGEST_PLAIN + 1), 0)
    assert attention(model) == "sdpa"
    model(rows(), 0)
    with torch.no_grad():
        assert torch.equal(model(rows(), 0), before)
    assert attention(model) == "sdpa"


def test_a_model_that_was_given_another_attention_keeps_it(tiny_bert):
    backbone: Any = load_model(str(tiny_bert), precision="bf16").model.backbone
    backbone.set_attn_implementation("eager")
    model = TaskModel(backbone, family="encoder", precision="bf16")
    model.add_head(0, nn.Linear(model.hidden_size, 2))
    with torch.no_grad():
        model(rows(), 0)
    assert attention(model) == "eager"


def test_what_is_computed_again_is_what_was_computed_before(tiny_bert):
    model = answering(tiny_bert, precision="bf16").train()
    model.recompute_()
    loss = model(rows(), 0).sum()
    with torch.no_grad():
        model(rows(), 0)
    loss.backward()
    assert attention(model) == "sdpa"
