"""Heads of tokens answer alike whatever padding a batch has, and damaged ones are refused."""

from dataclasses import replace

import pytest
import torch
from stored_banks import bank_of

from cl_graft.grafts.bank import pick_recorded
from cl_graft.models import check_head, load_head, load_model
from cl_graft.models.heads import ABSENT, SpanHead, TaggingHead

HIDDEN = 32
HEADS = [
    TaggingHead(HIDDEN, 5, seed=1), TaggingHead(HIDDEN, 5, 3, seed=1), SpanHead(HIDDEN, seed=1),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tiny_bert):
    return load_model(str(tiny_bert), family="encoder").model.eval()


def rows(*lengths: int, width: int = 12) -> torch.Tensor:
    """Return encoded rows of some lengths, whose second half is the second segment."""
    drawn = torch.Generator().manual_seed(0)
    x = torch.zeros(len(lengths), 2, width, dtype=torch.int64)
    for number, length in enumerate(lengths):
        x[number, 0, :length] = torch.randint(10, 60, (length,), generator=drawn)
        x[number, 1, :length] = 1
        x[number, 1, length // 2 : length] = 2
    return x


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_answers_of_a_row_do_not_depend_on_the_padding_of_its_batch(model, head):
    model.heads["7"] = head
    x = rows(4, 12, 9)
    together = model(x, 7)
    for number in range(len(x)):
        torch.testing.assert_close(
            model(x[number : number + 1], 7)[0], together[number], rtol=0, atol=1e-5
        )
    # As wide as the row was encoded, also where every row of the batch is short.
    assert model(x[:1], 7).shape[1:] == together.shape[1:]
    del model.heads["7"]


@torch.no_grad()
def test_only_tags_of_tokens_and_intents_of_the_first_one_are_present(model):
    model.heads["7"] = TaggingHead(HIDDEN, 5, 3, seed=0)
    logits = model(rows(4, 8), 7)
    present = logits > ABSENT / 2
    expected = torch.zeros_like(present)
    expected[:, 0, 5:] = True
    expected[0, 1:4, :5] = expected[1, 1:8, :5] = True
    assert torch.equal(present, expected)
    assert (logits[~present] == ABSENT).all()
    model.heads["7"] = TaggingHead(HIDDEN, 5, seed=0)
    present = model(rows(4, 8), 7) > ABSENT / 2
    expected = torch.zeros_like(present)
    expected[0, :4] = expected[1, :8] = True
    assert torch.equal(present, expected)
    del model.heads["7"]


@torch.no_grad()
def test_a_head_of_spans_answers_with_tokens_of_the_passage_and_the_first_one(model):
    model.heads["7"] = SpanHead(HIDDEN, seed=0)
    x = rows(4, 12, 9)
    logits = model(x, 7)
    assert logits.shape == (3, 2, 12)
    passage = x[:, 1] == 2
    passage[:, 0] = True
    for of_side in logits.unbind(1):
        assert (of_side[~passage] == ABSENT).all()
        assert (of_side[passage].abs() < 100).all()
    x[0, 0, 1] += 1  # a token of the question
    assert not torch.equal(model(x, 7)[0], logits[0])
    del model.heads["7"]


def test_a_tag_has_the_same_first_values_with_intents_and_without():
    plain, more = TaggingHead(8, 3, seed=4), TaggingHead(8, 3, 2, seed=4)
    assert torch.equal(plain.tags.weight, more.tags.weight)
    assert not torch.equal(more.tags.weight[:2], more.intents.weight)


@pytest.mark.parametrize("head", HEADS)
def test_a_head_of_tokens_comes_back_from_its_tensors(model, head):
    state = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    check_head(state, model)
    found = load_head(replace(bank_of().entries[0], head=state), family="encoder")
    assert type(found) is type(head)
    assert all(torch.equal(found.state_dict()[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("head", "damage"),
    [
        (HEADS[1], {"tags.weight": torch.zeros(5, HIDDEN + 1)}),
        (HEADS[1], {"tags.weight": torch.zeros(())}),
        (HEADS[1], {"tags.weight": torch.zeros(0, HIDDEN), "tags.bias": torch.zeros(0)}),
        (HEADS[1], {"intents.bias": torch.zeros(3, 1)}),
        (HEADS[1], {"more.weight": torch.zeros(1)}),
        (HEADS[1], {"tags.bias": torch.full((5,), torch.nan)}),
        (HEADS[2], {"ends.weight": torch.zeros(1, HIDDEN)}),
        (HEADS[2], {"ends.bias": torch.tensor([0, 1])}),
    ],
)
def test_a_damaged_head_of_tokens_is_refused(model, head, damage):
    with pytest.raises(ValueError, match="head"):
        check_head({**head.state_dict(), **damage}, model)


def test_a_head_of_intents_without_tags_is_refused(model):
    intents = {n: value for n, value in HEADS[1].state_dict().items() if n.startswith("intents")}
    with pytest.raises(ValueError, match="head of shapes"):
        check_head(intents, model)


def test_a_recorded_batch_holds_tokens_that_every_row_has():
    x = rows(5, 9)
    outputs = torch.arange(2 * 12 * 3, dtype=torch.float32).view(2, 12, 3)
    picked = pick_recorded(outputs, x)
    # Of the shorter row all 5 tokens: 15 values.
    assert torch.equal(picked, outputs[:, :5].flatten(1))
    assert torch.equal(
        pick_recorded(outputs.transpose(1, 2).contiguous(), x)[:, :5], outputs[:, :5, 0]
    )
    wide = pick_recorded(torch.randn(2, 12, 40), rows(11, 12))
    assert wide.shape == (2, 64)
    assert torch.equal(pick_recorded(outputs[:, 0], x), outputs[:, 0])
