"""Train mode without dropout computes what eval mode computes, and leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cl_graft.training.train_mode import dropout_off, without_dropout


class Attention(nn.Module):
    """Keeps its probability in an attribute, as transformers' Llama does."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_dropout = 0.4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, self.attention_dropout, training=self.training)


def make() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 6), nn.Dropout(0.3), nn.BatchNorm1d(6), Attention(), nn.AlphaDropout(0.2)
    )


def test_it_computes_what_eval_mode_computes_in_train_mode() -> None:
    model, x = make(), torch.randn(5, 6)
    expected = model.eval()(x)
    with without_dropout(model) as inside:
        assert inside[0].training
        assert not inside[2].training
        assert torch.equal(inside(x), expected)


@pytest.mark.parametrize("training", [True, False])
def test_dropout_can_be_off_without_a_change_of_mode(training: bool) -> None:
    model = make().train(training)
    with dropout_off(model):
        assert [module.training for module in model] == [training] * 5
        assert (model[1].p, model[3].attention_dropout, model[4].p) == (0.0, 0.0, 0.0)
    assert (model[1].p, model[3].attention_dropout, model[4].p) == (0.3, 0.4, 0.2)


def test_probabilities_and_modes_are_put_back_after_an_error() -> None:
    model = make().eval()
    model[1].train()
    with pytest.raises(KeyError), without_dropout(model):
        raise KeyError("stop")
    assert [module.training for module in model] == [False, True, False, False, False]
    assert (model[1].p, model[3].attention_dropout, model[4].p) == (0.3, 0.4, 0.2)
