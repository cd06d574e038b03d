"""Cost of switching between tasks and of answering several in one batch.

Every function returns lists of raw values by key: the ratios of alternating pairs in one process,
or the values themselves where the key ends in a unit. Threads are those of the process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from speed_training import Shape, draw_distinct
from time_and_memory import pairs
from torch import Tensor, nn

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.hashing import model_sha256
from cl_graft.grafts.region import Layout, Region
from cl_graft.inference.mixed_batches import mixed_batch
from cl_graft.inference.task_switch import Switch
from cl_graft.training.region_parameters import RegionParameters

Values = dict[str, list[float]]

_JUMPS = 20
"""Jumps that are timed together: one alone is too short."""


def make_bank(
    shape: Shape,
    model: nn.Module,
    tasks: int,
    *,
    even: bool = False,
    checked: bool = False,
    head: Mapping[str, Tensor] | None = None,
) -> GraftBank:
    """Return a bank in prefix mode with random values."""
    layout = Layout.of(shape.graftable(model))
    known: dict[str, object] = {}
    if checked:
        known = {"weights_sha256": model_sha256(model, exclude=("head",)), "heads": ["head"]}
    bank = GraftBank(layout, BaseIdentity("0" * 64, "random", "float32", known))
    draw = torch.Generator().manual_seed(3)
    each = -(-shape.coordinates // len(layout.names))
    count = tasks * each
    orders = [draw_distinct(size, count, draw) for size in layout.sizes] if even else []
    for task in range(tasks):
        parts = [
            start + order[task * each : (task + 1) * each]
            for start, order in zip(layout.starts, orders, strict=False)
        ]
        anywhere = torch.randint(layout.total, (shape.coordinates,), generator=draw)
        claimed = Region.of(layout, torch.cat(parts) if even else anywhere)
        free = bank.free(claimed)
        values = torch.randn(len(free), generator=draw) * 0.02
        bank = bank.append(
            Entry(f"task{task}", task, Graft(free, values), claimed - free, head=dict(head or {}))
        )
    return bank


def switching(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time jumps between tasks against reading the block parameters from a state dict."""
    model = shape.model()
    state = {name: p.detach().clone() for name, p in shape.graftable(model).items()}

    def load() -> None:
        model.load_state_dict(state, strict=False)

    found: Values = {}
    switch = Switch(model, make_bank(shape, model, 2, even=True))
    ratios, first, second = compute_ratios(_jumps(switch, 0, 1), load, repeats, of=_JUMPS)
    found["switch/load_state_dict"] = ratios
    found["switch, ms"] = [1e3 * seconds for seconds in first]
    found["load_state_dict, ms"] = [1e3 * seconds for seconds in second]
    switch.to(None)
    switch = Switch(model, make_bank(shape, model, tasks))
    near, far = _jumps(switch, 0, 1), _jumps(switch, 0, tasks - 1)
    _, first, second = compute_ratios(far, near, repeats, of=_JUMPS)
    steps = tasks - 1
    found[f"jump_1_to_{tasks}/{steps}_jumps"] = [
        a / (b / _JUMPS * steps) for a, b in zip(first, second, strict=True)
    ]
    found[f"jump_1_to_{tasks}, ms"] = [1e3 * seconds for seconds in first]
    switch.to(None)
    return found


def checked_switching(shape: Shape, *, repeats: int) -> Values:
    """Time whole jumps, with the check of the base, against the writes of the same jumps alone."""
    jumps = []
    for checked in (True, False):
        model = shape.model()
        bank = make_bank(shape, model, 2, even=True, checked=checked)
        jumps.append(_jumps(Switch(model, bank), 0, 1))
    whole, writes = pairs(*jumps, repeats=repeats)
    return {
        "checked_switch/write": [a / b for a, b in zip(whole, writes, strict=True)],
        "checked_switch, ms": [1e3 * seconds / _JUMPS for seconds in whole],
        "write, ms": [1e3 * seconds / _JUMPS for seconds in writes],
    }


def steps_of_a_stream(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time a training step of the last task of a stream against one of the first."""

    def make_step(tasks_before: int) -> Callable[[], None]:
        model = shape.model()
        bank = make_bank(shape, model, tasks_before)
        switch = Switch(model, bank)
        if tasks_before:
            switch.to(tasks_before - 1)
        free = bank.free(make_bank(shape, model, tasks_before + 1).entries[-1].region)
        live = RegionParameters(model, free)
        loss = shape.compute_loss(model)
        optimizer = torch.optim.SGD([live.vector, *model.get_submodule("head").parameters()], 1e-3)

        def step() -> None:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            live.write_()

        return step

    ratios, *_ = compute_ratios(make_step(tasks - 1), make_step(0), repeats)
    return {f"step_at_task_{tasks}/step_at_task_1": ratios}


def mixed_batches(shape: Shape, *, repeats: int, tasks: int = 8) -> Values:
    """Time the forward pass of a batch of several tasks against one of a single task.

    Beside it stand the loop over the tasks, and PEFT's mixed batch of LoRAs of rank 1.
    """
    encoder: Any = shape.model().get_submodule("encoder")
    bank = make_bank(shape, encoder, tasks, even=True)
    switch = Switch(encoder, bank)
    ids, _ = shape.batch()
    owners = [row * tasks // shape.rows for row in range(shape.rows)]

    def answer(model: Any, rows: Tensor, **settings: Any) -> Tensor:
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=shape.autocast):
            return model(rows, **settings).last_hidden_state

    @torch.inference_mode()
    def single() -> Tensor:
        with switch.carrying(tasks - 1) as model:
            return answer(model, ids)

    @torch.inference_mode()
    def together() -> Tensor:
        with mixed_batch(switch, owners) as model:
            return answer(model, ids)

    @torch.inference_mode()
    def loop() -> Tensor:
        parts = []
        for task in range(tasks):
            switch.to(task)
            parts.append(answer(encoder, ids[torch.tensor(owners, device=ids.device) == task]))
        switch.to(None)
        return torch.cat(parts)

    torch.testing.assert_close(together(), loop(), rtol=1e-3, atol=1e-1 if shape.autocast else 1e-3)
    loras = _loras(shape, tasks)
    names = [f"task{task}" for task in owners]

    @torch.inference_mode()
    def lora() -> Tensor:
        return answer(loras, ids, adapter_names=names)

    found: Values = {}
    for key, run in (
        (f"mixed_batch_{tasks}_tasks", together),
        (f"loop_over_{tasks}_tasks", loop),
        (f"peft_mixed_lora_{tasks}_tasks", lora),
    ):
        ratios, first, second = compute_ratios(run, single, repeats)
        found[f"{key}/single_task_batch"] = ratios
        found[f"{key}, ms"] = [1e3 * seconds for seconds in first]
        found.setdefault("single_task_batch, ms", []).extend(1e3 * seconds for seconds in second)
    return found


def _jumps(switch: Switch, low: int, high: int) -> Callable[[], None]:
    def jump() -> None:
        for _ in range(_JUMPS // 2):
            switch.to(high)
            switch.to(low)

    switch.to(low)
    return jump


def compute_ratios(
    a: Callable[[], object], b: Callable[[], object], repeats: int, *, of: int = 1
) -> tuple[list[float], list[float], list[float]]:
    """Return the ratios a / b of alternating pairs and the seconds of both; `a` runs `of` times."""
    first, second = pairs(a, b, repeats=repeats)
    first = [seconds / of for seconds in first]
    return [x / y for x, y in zip(first, second, strict=True)], first, second


def _loras(shape: Shape, tasks: int) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=1, target_modules="all-linear", init_lora_weights=False)
    encoder: Any = shape.model().get_submodule("encoder")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers in its old way
        model: Any = get_peft_model(encoder, config, adapter_name="task0")
        for task in range(1, tasks):
            model.add_adapter(f"task{task}", config)
    return model.eval()
