"""The phases before region training: dense run, localization, budget, cache."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from cl_graft.errors import InputError
from cl_graft.examples import Examples
from cl_graft.graft import snapshot
from cl_graft.learning import (
    GraftingSettings,
    TaskProblem,
    fine_tune_task,
    locate_task,
)
from cl_graft.randomness import generator
from cl_graft.region import Layout, Region
from cl_graft.training import FineTuning

FAST = FineTuning(steps=30, batch_size=16, lr=0.5, evaluations=2)


class MemoryCache:
    def __init__(self) -> None:
        self.kept: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}
        self.hits: list[str] = []

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if key in self.kept:
            self.hits.append(key.split("-")[0])
        return self.kept.get(key)

    def put(self, key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.kept[key] = ({n: t.clone() for n, t in tensors.items()}, dict(facts))


def make_task() -> TaskProblem:
    draw = generator(0, "learning")
    body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 8))
    model = nn.ModuleDict({"body": body, "head": nn.Linear(8, 2)})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    inputs = torch.randn(200, 8, generator=draw)
    targets = (inputs[:, 0] * inputs[:, 1] > 0).long()
    data = TensorDataset(inputs, targets)
    named = dict(model.named_parameters())
    return TaskProblem(
        model=model,
        parameters={n: p for n, p in named.items() if n.startswith("body")},
        head={n: p for n, p in named.items() if n.startswith("head")},
        forward=lambda x: model["head"](model["body"](x)),
        criterion=nn.functional.cross_entropy,
        score=lambda logits, y: float((logits.argmax(1) == y).float().mean()),
        train=Examples(data, range(150)),
        dev=Examples(data, range(150, 200)),
        device=torch.device("cpu"),
        content="xor",
    )


def settings(**changes: Any) -> GraftingSettings:
    values = {"density": 0.05, "mask_steps": 4, "mask_batch": 32, "micro_batch": 16}
    return GraftingSettings(**{**values, "fine_tuning": FAST, **changes})


def nothing(task: TaskProblem) -> Region:
    return Region.empty(Layout.of(snapshot(task.parameters)))


def test_the_dense_run_and_localization_leave_the_model_at_its_base():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    locate_task(task, settings(), owned=nothing(task))
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_the_dense_run_moves_the_graftable_parameters_and_the_head():
    task = make_task()
    body, head, dev = fine_tune_task(task, FAST, seed=0)
    assert all(not torch.equal(body[n], p) for n, p in task.parameters.items())
    assert all(not torch.equal(head[n], p) for n, p in task.head.items())
    assert dev is not None
    assert 0 <= dev <= 1


def test_the_outcome_is_a_function_of_content_settings_and_seed():
    first = locate_task(make_task(), settings(), owned=nothing(make_task()))
    torch.manual_seed(99)
    second = locate_task(make_task(), settings(), owned=nothing(make_task()))
    other = locate_task(make_task(), settings(seed=1), owned=nothing(make_task()))
    assert first.claimed == second.claimed
    assert all(torch.equal(first.tuned[n], second.tuned[n]) for n in first.tuned)
    assert not all(torch.equal(first.tuned[n], other.tuned[n]) for n in first.tuned)


def test_the_cache_answers_with_the_same_bits():
    cache = MemoryCache()
    task = make_task()
    computed = locate_task(task, settings(), owned=nothing(task), cache=cache)
    assert cache.hits == []
    answered = locate_task(make_task(), settings(), owned=nothing(task), cache=cache)
    assert cache.hits == ["dense", "ranking"]
    assert computed.claimed == answered.claimed
    assert all(torch.equal(computed.head[n], answered.head[n]) for n in computed.head)


def test_another_density_shares_the_dense_run_but_not_the_ranking():
    cache = MemoryCache()
    task = make_task()
    locate_task(task, settings(), owned=nothing(task), cache=cache)
    locate_task(task, settings(density=0.1), owned=nothing(task), cache=cache)
    assert cache.hits == ["dense"]


def test_refill_keeps_the_whole_budget_and_passes_over_what_is_owned():
    task = make_task()
    first = locate_task(task, settings(), owned=nothing(task))
    refilled = locate_task(task, settings(), owned=first.claimed)
    without = locate_task(task, settings(refill=False), owned=first.claimed)
    assert len(refilled.claimed) == len(first.claimed)
    assert len(refilled.claimed & first.claimed) == 0
    assert without.claimed == first.claimed


def test_auto_density_takes_the_smallest_budget_that_keeps_the_asked_share():
    task = make_task()
    budgets = (0.01, 0.05, 0.2, 1.0)
    easy = settings(density="auto", budgets=budgets, auto_share=0.01)
    found = locate_task(task, easy, owned=nothing(task))
    assert len(found.claimed) == round(0.01 * found.claimed.layout.total)
    hard = settings(density="auto", budgets=budgets, auto_share=1.0)
    whole = locate_task(task, hard, owned=nothing(task))
    assert whole.graft_dev is not None
    assert whole.dense_dev is not None
    assert whole.graft_dev >= whole.dense_dev or whole.claimed.density == 1.0


@pytest.mark.parametrize("density", [0, -0.1, 1.5])
def test_a_density_out_of_range_is_refused(density):
    with pytest.raises(ValueError, match=r"density must be in \(0, 1\]"):
        GraftingSettings(density=density)


def test_an_unknown_localizer_is_refused_when_the_settings_are_made():
    with pytest.raises(InputError, match="did you mean 'learned_mask'"):
        GraftingSettings(localizer="learned-mask")


def test_a_split_holds_every_row_once():
    task = make_task()
    rest, part = task.train.split(0.05, seed=3)
    assert len(part) == 8
    assert sorted([*rest.rows, *part.rows]) == list(range(150))
