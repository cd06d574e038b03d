"""Heads of tokens and of numbers fitted to the states of a frozen model."""

import pytest
import torch
from slow_cases import slow_but
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from cl_graft.grafts.graft import snapshot
from cl_graft.metrics import task_loss
from cl_graft.models.heads import SpanHead, TaggingHead
from cl_graft.runtime.seeding import generator
from cl_graft.training import linear_probe
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.linear_probe import RIDGES, fit_head

LENGTH, HIDDEN, TAGS, INTENTS = 9, 6, 3, 2
HEADS = {
    "tags": lambda: TaggingHead(HIDDEN, TAGS, seed=0),
    "tags and intents": lambda: TaggingHead(HIDDEN, TAGS, INTENTS, seed=0),
    "spans": lambda: SpanHead(HIDDEN, seed=0),
}


def make_task(kind, rows=70):
    """Make a task of rows of 4 to 9 tokens, whose states are those of an embedding."""
    draw = generator(0, kind)
    lengths = torch.randint(4, LENGTH + 1, (rows,), generator=draw)
    inside = torch.arange(LENGTH) < lengths[:, None]
    ids = torch.randint(1, 12, (rows, LENGTH), generator=draw) * inside
    segments = inside.long() + (inside & (torch.arange(LENGTH) > 1)).long()
    states = nn.Embedding(12, HIDDEN)
    head = HEADS[kind]()
    with torch.no_grad():
        states.weight.copy_(torch.randn(12, HIDDEN, generator=draw))
    if kind == "spans":
        start = torch.randint(0, 4, (rows,), generator=draw)
        start = torch.where(start == 1, 0, start)
        end = torch.maximum(start, (start > 0) * (lengths - 1))
        targets = torch.stack([start, end, torch.arange(rows)], dim=1)
    else:
        noise = torch.randint(0, 3, ids.shape, generator=draw) == 0
        targets = torch.where(noise, (ids + 1) % TAGS, ids % TAGS)
        targets[~inside | (torch.arange(LENGTH) == 0) | (ids == 11)] = -100
        if kind == "tags and intents":
            targets[:, 0] = TAGS + ids[:, 0] % INTENTS
    inputs = torch.stack([ids, segments], dim=1)
    model = nn.ModuleDict({"states": states, "head": head})

    def forward(x):
        longest = int((x[:, 1] != 0).sum(1).max())
        own_ids, own_segments = x[:, 0, :longest], x[:, 1, :longest]
        return head(states(own_ids), own_segments, x.shape[-1])

    rows_in_memory = Examples(TensorDataset(inputs, targets), tensors=(inputs, targets))
    named = dict(model.named_parameters())
    return LearnableTask(
        model=model,
        parameters={"states.weight": states.weight},
        head={name: p for name, p in named.items() if name.startswith("head")},
        forward=forward,
        criterion=task_loss,
        score=lambda logits, y: -float(task_loss(logits, y)),
        train=rows_in_memory.pick(range(50)),
        dev=rows_in_memory.pick(range(50, rows)),
        device=torch.device("cpu"),
        content=kind,
        head_module=head,
        head_takes_tokens=True,
    )


def plain_loss(task, values, places):
    """The mean over rows of the mean cross-entropy of their answers, token by token."""
    inputs, targets = task.train.batch(places)
    own = {name.removeprefix("head."): value for name, value in values.items()}
    total = torch.zeros(())
    for (ids, segments), wanted in zip(inputs, targets, strict=True):
        count = int((segments != 0).sum())
        states = task.model["states"].weight[ids[:count]].detach()
        losses = []
        if "ends.weight" in own:
            scores = states @ own["ends.weight"].T + own["ends.bias"]
            places_of_answers = [0, *(n for n in range(count) if segments[n] == 2)]
            for end in (0, 1):
                place = places_of_answers.index(int(wanted[end]))
                losses.append(F.cross_entropy(scores[places_of_answers, end], torch.tensor(place)))
        for token in range(count if "tags.weight" in own else 0):
            if wanted[token] < 0:
                continue
            name, first = ("intents", TAGS) if wanted[token] >= TAGS else ("tags", 0)
            scores = own[f"{name}.weight"] @ states[token] + own[f"{name}.bias"]
            losses.append(F.cross_entropy(scores, wanted[token] - first))
        total = total + torch.stack(losses).mean()
    return total / len(targets)


@pytest.mark.parametrize("kind", slow_but(("tags", "spans"), HEADS))
def test_a_fitted_head_of_tokens_is_where_the_plain_penalised_loss_is_flat(kind):
    task = make_task(kind)
    fitted = fit_head(task, rows=50, seed=0)
    values = {name: value.clone().requires_grad_() for name, value in fitted.items()}
    loss = plain_loss(task, values, range(50))
    gradients = dict(zip(values, torch.autograd.grad(loss, list(values.values())), strict=True))
    inputs, _ = task.train.batch(range(50))
    states = task.model["states"](inputs[:, 0])[inputs[:, 1] != 0]
    scale = float(states.detach().square().sum(1).mean())
    weights = [name for name in values if name.endswith("weight")]
    left = [
        max(float((gradients[n] + ridge * scale * fitted[n]).abs().max()) for n in weights)
        for ridge in RIDGES
    ]
    assert min(left) < 1e-3 < sorted(left)[1]
    assert float(loss.detach()) < 0.99 * float(plain_loss(task, snapshot(task.head), range(50)))


def test_a_head_of_tokens_is_fitted_to_as_many_rows_as_memory_is_given(monkeypatch):
    task = make_task("tags")
    few, all_rows = (fit_head(task, rows=rows, seed=0) for rows in (10, 50))
    order = linear_probe.permutation(50, 0, "warm-up").tolist()
    tokens = int(task.train.lengths[order[:10]].sum())
    monkeypatch.setattr(linear_probe, "_TOKENS", tokens)
    bound = fit_head(task, rows=50, seed=0)
    assert all(torch.equal(bound[name], few[name]) for name in few)
    assert not all(torch.equal(bound[name], all_rows[name]) for name in few)
