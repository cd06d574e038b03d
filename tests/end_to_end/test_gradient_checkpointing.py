"""Gradient checkpointing keeps less and gives the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.experiments.plan import MemoryTracker
from cl_graft.models import TaskModel, graftable_parameters, load_model, make_head
from cl_graft.training.region_parameters import RegionParameters
from cl_graft.training.train_mode import without_dropout

KINDS = [("tiny_bert", "encoder"), ("tiny_gpt2", "causal_lm"), ("tiny_llama", "causal_lm")]


@pytest.fixture(params=KINDS, ids=[kind[0] for kind in KINDS])
def pair(request):
    """A tiny model without and with checkpointing, and a batch."""

    def make(recompute: bool) -> TaskModel:
        folder, family = request.param
        model = load_model(str(request.getfixturevalue(folder)), family=family).model
        words = None if family == "encoder" else [(7,), (9, 4)]
        model.add_head(0, make_head(model, classes=2, label_token_ids=words, seed=0))
        if recompute:
            model.recompute_()
        return model

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 60, (6, 12), generator=generator)
    return make(False), make(True), torch.stack([ids, torch.ones_like(ids)], dim=1)


def loss(model: TaskModel, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x, 0), torch.arange(len(x)) % 2)


def test_dense_gradients_are_the_same_with_less_kept(pair):
    *models, x = pair
    gradients, sizes = [], []
    for model in models:
        with without_dropout(model):
            with MemoryTracker([*model.parameters(), *model.buffers()]) as tracker:
                value = loss(model, x)
                sizes.append(tracker.now)
            value.backward()
        gradients.append({n: p.grad for n, p in graftable_parameters(model).items()})
    assert sizes[1] < 0.6 * sizes[0]
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])
        assert gradient.abs().max() > 0 or "k_proj.bias" in name or "key.bias" in name


def test_a_regions_gradients_are_the_same_under_frozen_weights(pair):
    *models, x = pair
    gradients = []
    for model in models:
        layout = Layout.of(graftable_parameters(model))
        region = Region.of(layout, range(0, layout.total, 37))
        model.requires_grad_(False)
        with RegionParameters(model, region) as live, without_dropout(model):
            loss(model, x).backward()
            gradients.append(live.vector.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    assert gradients[0].abs().max() > 0


def test_with_dropout_the_second_pass_drops_what_the_first_dropped(pair):
    *models, x = pair
    gradients = []
    for model in models:
        torch.manual_seed(3)
        loss(model.train(), x).backward()
        gradients.append([p.grad for p in graftable_parameters(model).values()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_model_without_checkpointing_says_so():
    from transformers import BertConfig

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = BertConfig(hidden_size=8)
            self.layer = nn.Linear(2, 2)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.layer(input_ids)

    with pytest.raises(InputError, match="no gradient checkpointing"):
        TaskModel(Plain(), family="encoder").recompute_()
