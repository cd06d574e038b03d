"""What holds tensors or rows is shown in one short line."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from cl_graft import Graft, GraftBank, Region, load_task, localize_skill
from cl_graft.grafts.bank import BaseIdentity, Entry, RecordedBatch
from cl_graft.grafts.region import Layout
from cl_graft.integrations.skill import Skill
from cl_graft.localization import Ranking

LAYOUT = Layout(("weight",), ((1000, 1000),))
REGION = Region.of(LAYOUT, range(0, 2000, 2))
GRAFT = Graft(REGION, torch.zeros(1000))


def _bank(tasks: int) -> GraftBank:
    bank = GraftBank(LAYOUT, BaseIdentity("0" * 64, "minilm", "float32"), "isolated")
    entry = Entry("topic", 0, GRAFT, Region.empty(LAYOUT), {"weight": torch.zeros(2, 384)})
    return bank.extend([replace(entry, task=f"topic-{i}", label=i) for i in range(tasks)])


def _skill() -> Skill:
    base = nn.Linear(300, 200)
    tuned = {name: p.detach() + 0.1 for name, p in base.named_parameters()}
    return localize_skill(base, tuned, density=0.5, localizer="movement")


SHOWN: dict[str, tuple[Callable[[], object], str]] = {
    "layout": (lambda: LAYOUT, "Layout(1 parameters, 1,000,000 coordinates)"),
    "region": (lambda: REGION, "Region(1,000 of 1,000,000 coordinates, density 0.001)"),
    "graft": (lambda: GRAFT, "Graft(1,000 values in torch.float32, density 0.001)"),
    "ranking": (
        lambda: Ranking(LAYOUT, torch.arange(5000)),
        "Ranking(the best 5,000 of 1,000,000 coordinates)",
    ),
    "entry": (
        lambda: _bank(1).entries[0],
        "Entry('topic-0', label 0, owns 1,000 of the 1,000 coordinates of its region)",
    ),
    "empty bank": (
        lambda: _bank(0),
        "GraftBank(0 tasks, isolated mode, 0 of 1,000,000 coordinates owned, base 'minilm')",
    ),
    "bank": (
        lambda: _bank(100),
        "GraftBank(100 tasks ('topic-0', 'topic-1', 'topic-2', 'topic-3', 'topic-4' and 95 more), "
        "isolated mode, 1,000 of 1,000,000 coordinates owned, base 'minilm')",
    ),
    "recorded batch": (
        lambda: RecordedBatch(torch.zeros(8, 2, 64), torch.zeros(8, 3), {}),
        "RecordedBatch(8 rows, logits of shape (8, 3))",
    ),
    "skill": (
        _skill,
        "Skill(Graft(30,100 values in torch.float32, density 0.5), 0 values outside of it in 0 "
        "tensors)",
    ),
    "task": (
        lambda: load_task("scope", shots=300, max_dev=50, max_test=20),
        "TextTask('scope', 2 classes, rows: 480 train, 50 dev, 20 test)",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_one_short_line(name: str) -> None:
    make, shown = SHOWN[name]
    assert repr(make()) == str(make()) == shown
    assert len(shown) < 200


def test_a_name_that_could_steer_a_terminal_is_escaped() -> None:
    bank = _bank(1)
    hostile = replace(bank.entries[0], task="a\x1b[2J\u202eb\nc")
    for shown in (repr(hostile), repr(replace(bank, entries=(hostile,)))):
        assert shown.isprintable()
