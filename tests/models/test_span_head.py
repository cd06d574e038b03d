"""The head of spans: what it answers does not depend on padding, and damaged ones are refused."""

from __future__ import annotations

import pytest
import torch

from cl_graft.models import TaskModel, load_model
from cl_graft.models.stored_heads import check_head
from cl_graft.models.token_heads import ABSENT, SpanHead


def made_rows():
    """Return rows of questions and passages of two lengths, padded to 20 tokens."""
    ids = torch.randint(5, 90, (3, 20), generator=torch.Generator().manual_seed(0))
    segments = torch.ones_like(ids)
    segments[:, 4:] = 2
    segments[1:, 9:] = 0
    segments[2, 3:7] = 1  # a longer question
    return torch.stack([ids * (segments != 0), segments], 1)


@pytest.fixture(scope="module")
def model(tiny_bert) -> TaskModel:
    loaded = load_model(str(tiny_bert), family="encoder").model.eval()
    loaded.add_head(0, SpanHead(loaded.hidden_size, seed=0))
    return loaded


@torch.no_grad()
def test_logits_are_of_the_passage_and_the_first_token_alone(model):
    rows = made_rows()
    logits = model(rows, 0)
    assert logits.shape == (3, 2, 20)
    passage = rows[:, 1] == 2
    passage[:, 0] = True
    for of_side in logits.unbind(1):
        assert (of_side[~passage] == ABSENT).all()
        assert (of_side[passage].abs() < 100).all()


@torch.no_grad()
def test_trimmed_padding_changes_no_bit_and_rows_beside_only_the_last_ones(model):
    rows = made_rows()
    alone = model(rows[1:2], 0)
    assert alone.shape == (1, 2, 20)  # as wide as encoded, though 9 tokens were read
    assert torch.equal(alone, model(torch.nn.functional.pad(rows[1:2], (0, 5)), 0)[..., :20])
    torch.testing.assert_close(alone, model(rows, 0)[1:2], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_question_in_the_first_segment_counts(model):
    rows = made_rows()
    moved = rows.clone()
    moved[0, 0, 1] += 1
    assert not torch.equal(model(rows, 0)[0], model(moved, 0)[0])


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: head.pop("ends.bias"),
        lambda head: head.update({"ends.weight": head["ends.weight"][:, :5]}),
        lambda head: head.update({"ends.weight": head["ends.weight"][:1]}),
        lambda head: head.update({"ends.bias": torch.tensor([0.0, float("nan")])}),
        lambda head: head.update({"ends.bias": torch.tensor([0, 1])}),
        lambda head: head.update({"other.weight": torch.zeros(2, 2)}),
    ],
)
def test_a_damaged_head_is_refused(model, damage):
    head = dict(SpanHead(model.hidden_size, seed=0).state_dict())
    check_head(head, model)
    damage(head)
    with pytest.raises(ValueError, match="head"):
        check_head(head, model)
