"""A server answers rows of different tasks as the model does after switching, heads included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from two_layer_banks import draw_some_of_each

from cl_graft.errors import InputError
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout
from cl_graft.inference.task_switch import Switch
from cl_graft.models import TaskModel, TaskServer, graftable_parameters, load_model, make_head

LABELS = {
    "masked_lm": [[["great"], ["terrible"]], [["yes"], ["no"], ["maybe"]], [["good"], ["bad"]]],
    "causal_lm": [
        [["Great"], ["Terrible"]],
        [["World"], ["Sports", "Business"], ["Tech"]],
        [["Yes"], ["No", "No", "Maybe"]],
    ],
}
FAMILIES = [
    ("bert", "encoder"),
    ("roberta", "encoder"),
    ("roberta", "masked_lm"),
    ("gpt2", "causal_lm"),
]


def _server(
    request: pytest.FixtureRequest, kind: str, family: str, *, one_token: bool = False
) -> tuple[TaskServer, Tensor]:
    """A model, a bank of three tasks with heads of different widths, and a batch of six rows."""
    loaded = load_model(str(request.getfixturevalue(f"tiny_{kind}")), family=family)
    model, tokenizer = loaded.model, loaded.tokenizer
    layout = Layout.of(graftable_parameters(model))
    bank = GraftBank(layout, BaseIdentity("f" * 64, kind, "float32"))
    draw = torch.Generator().manual_seed(0)
    for number in range(3):
        claimed = draw_some_of_each(layout, draw)
        free = bank.free(claimed)
        strings = None
        if family != "encoder":
            words = [label[:1] if one_token else label for label in LABELS[family][number]]
            strings = [
                [tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in label]
                for label in words
            ]
        classes = 2 + number if strings is None else len(strings)
        head = make_head(model, classes=classes, label_token_ids=strings, seed=number)
        graft = Graft(free, torch.randn(len(free), generator=draw))
        own = {"head": head.state_dict()}
        bank = bank.append(Entry(f"t{number}", number, graft, claimed - free, **own))
        model.add_head(number, head)
    x = torch.zeros(6, 2, 12, dtype=torch.int64)
    x[:, 0] = tokenizer.pad_token_id or 0
    for row, length in enumerate([5, 9, 3, 7, 9, 4]):
        x[row, 0, :length] = torch.randint(10, 90, (length,), generator=draw)
        x[row, 1, :length] = 1
        if family == "masked_lm":
            x[row, 0, 1] = tokenizer.mask_token_id
            ids = x[row, 0, 2:length]
            ids[ids == tokenizer.mask_token_id] = 11
    return TaskServer(Switch(model, bank)), x


@pytest.mark.parametrize("how", ["add", "by_task", "fastest"])
@pytest.mark.parametrize(("kind", "family"), FAMILIES)
def test_every_row_gets_the_answer_of_its_task_through_its_head(request, kind, family, how):
    server, x = _server(request, kind, family)
    model = server.switch.model
    assert isinstance(model, TaskModel)
    positions = [2, 0, 1, 1, 2, 0]
    answers = server.answer(x, positions, method=how)
    assert server.switch.position is None
    for row, position in enumerate(positions):
        with server.switch.carrying(position), torch.no_grad():
            expected = model(x[row : row + 1], position)[0]
        torch.testing.assert_close(answers[row], expected, rtol=1e-4, atol=1e-5)


def test_labels_of_one_token_need_no_longer_rows(request):
    server, x = _server(request, "gpt2", "causal_lm", one_token=True)
    model = server.switch.model
    positions = [2, 0, 1, 1, 2, 0]
    seen = []
    handle = model.backbone.register_forward_pre_hook(
        lambda _m, _a, settings: seen.append(settings["input_ids"].shape[0]), with_kwargs=True
    )
    answers = server.answer(x, positions)
    handle.remove()
    assert seen == [6]
    with server.switch.carrying(1), torch.no_grad():
        torch.testing.assert_close(answers[2], model(x[2:3], 1)[0], rtol=1e-4, atol=1e-5)


def test_tasks_are_added_while_it_serves(request):
    server, x = _server(request, "bert", "encoder")
    bank = server.switch.bank
    model = server.switch.model
    young = TaskServer(Switch(model, replace(bank, entries=bank.entries[:2])))
    with pytest.raises(ValueError, match="entry 2 is not in the bank: positions are 0 to 1"):
        young.answer(x[:2], [0, 2])
    young.switch.add(bank)
    answers = young.answer(x[:2], [0, 2])
    expected = server.answer(x[:2], [0, 2])
    torch.testing.assert_close(answers, expected)


def test_tasks_are_asked_by_name_or_position(request):
    server, x = _server(request, "bert", "encoder")
    names = [entry.task for entry in server.switch.bank.entries]
    asked = server.answer(x, [names[2], 0, names[1], 1, names[2], names[0]])
    torch.testing.assert_close(asked, server.answer(x, [2, 0, 1, 1, 2, 0]), rtol=0, atol=0)
    with pytest.raises(InputError, match=f"no task 'tsk1' in the bank; did you mean {names[1]!r}"):
        server.answer(x[:1], ["tsk1"])


def test_a_batch_without_an_entry_for_every_row_and_a_bare_model_are_refused(request):
    server, x = _server(request, "bert", "encoder")
    with pytest.raises(ValueError, match="a task for each of 6 rows, got 2"):
        server.answer(x, [0, 1])
    bare = server.switch.model.backbone
    layout = Layout.of(graftable_parameters(bare))
    switch = Switch(bare, GraftBank(layout, server.switch.bank.base))
    with pytest.raises(TypeError, match="expected the switch of a TaskModel, got BertModel"):
        TaskServer(switch)
