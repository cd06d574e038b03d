"""What it costs to switch between tasks, to answer several in one batch, to load what they know.

Every function returns lists of raw values by key: the ratios of alternating pairs in one process,
or the values themselves where the key ends in a unit. Threads are those of the process.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import pairs
from safetensors.torch import load_file
from speed_training import Shape, graftable, loss_of
from torch import Tensor, nn

from cl_graft.bank import BaseIdentity, Entry, GraftBank
from cl_graft.graft import Graft
from cl_graft.region import Layout, Region
from cl_graft.serving import mixed
from cl_graft.sparse import RegionParameters
from cl_graft.store import load_bank, save_bank
from cl_graft.switch import Switch

__all__ = ["Values", "bank_of", "loading", "mixed_batches", "steps_of_a_stream", "switching"]

Values = dict[str, list[float]]

_JUMPS = 20
"""Jumps that are timed together: one alone is too short."""

_PAGE = 1024
"""Values of fp32 on a page of memory."""


def bank_of(shape: Shape, model: nn.Module, tasks: int, *, even: bool = False) -> GraftBank:
    """Return a bank in prefix mode with random values, without heads.

    Args:
        shape: Tells the coordinates an entry.
        model: Whose block parameters they lie in.
        tasks: Number of entries.
        even: Give every parameter equally many, as long as it has any; otherwise the coordinates
            are drawn from all weights alike, and a vector of 768 rarely gets one.
    """
    layout = Layout.of(graftable(model))
    bank = GraftBank(layout, BaseIdentity("0" * 64, "random", "float32"))
    draw = torch.Generator().manual_seed(3)
    each = -(-shape.coordinates // len(layout.names))
    orders = [torch.randperm(size, generator=draw) for size in layout.sizes] if even else []
    for task in range(tasks):
        parts = [
            start + order[task * each : (task + 1) * each]
            for start, order in zip(layout.starts, orders, strict=False)
        ]
        anywhere = torch.randint(layout.total, (shape.coordinates,), generator=draw)
        claimed = Region.of(layout, torch.cat(parts) if even else anywhere)
        free = bank.free(claimed)
        values = torch.randn(len(free), generator=draw) * 0.02
        bank = bank.append(Entry(f"task{task}", task, claimed, Graft(free, values)))
    return bank


def switching(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time jumps between tasks against reading the block parameters from a state dict."""
    model = shape.model()
    state = {name: p.detach().clone() for name, p in graftable(model).items()}

    def load() -> None:
        model.load_state_dict(state, strict=False)

    found: Values = {}
    for flat in (False, True):
        mark = ", flat" if flat else ""
        switch = Switch(model, bank_of(shape, model, 2, even=True), flat=flat)
        ratios, first, second = _ratios(_jumps(switch, 0, 1), load, repeats, of=_JUMPS)
        found[f"switch{mark}/load_state_dict"] = ratios
        found[f"switch{mark}, ms"] = [1e3 * seconds for seconds in first]
        found["load_state_dict, ms"] = [1e3 * seconds for seconds in second]
        switch.to(None)
        switch = Switch(model, bank_of(shape, model, tasks), flat=flat)
        near, far = _jumps(switch, 0, 1), _jumps(switch, 0, tasks - 1)
        _, first, second = _ratios(far, near, repeats, of=_JUMPS)
        steps = tasks - 1
        found[f"jump_1_to_{tasks}{mark}/{steps}_jumps"] = [
            a / (b / _JUMPS * steps) for a, b in zip(first, second, strict=True)
        ]
        found[f"jump_1_to_{tasks}{mark}, ms"] = [1e3 * seconds for seconds in first]
        switch.to(None)
    return found


def steps_of_a_stream(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time a training step of the last task of a stream against one of the first."""

    def step_of(tasks_before: int) -> Callable[[], None]:
        model = shape.model()
        bank = bank_of(shape, model, tasks_before)
        switch = Switch(model, bank)
        if tasks_before:
            switch.to(tasks_before - 1)
        free = bank.free(bank_of(shape, model, tasks_before + 1).entries[-1].claimed)
        live = RegionParameters(model, free)
        loss = loss_of(shape, model)
        optimizer = torch.optim.SGD([live.vector, *model.get_submodule("head").parameters()], 1e-3)

        def step() -> None:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            live.write_()

        return step

    ratios, *_ = _ratios(step_of(tasks - 1), step_of(0), repeats)
    return {f"step_at_task_{tasks}/step_at_task_1": ratios}


def mixed_batches(shape: Shape, *, repeats: int, tasks: int = 8) -> Values:
    """Time the forward pass of a batch of several tasks against one of a single task.

    Beside it stand the loop over the tasks, and PEFT's mixed batch of LoRAs of rank 1.
    """
    encoder: Any = shape.model().get_submodule("encoder")
    bank = bank_of(shape, encoder, tasks, even=True)
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
        with mixed(switch, owners) as model:
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
        ratios, first, second = _ratios(run, single, repeats)
        found[f"{key}/single_task_batch"] = ratios
        found[f"{key}, ms"] = [1e3 * seconds for seconds in first]
        found.setdefault("single_task_batch, ms", []).extend(1e3 * seconds for seconds in second)
    return found


def loading(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time reading a bank, every byte checked, against reading a model; weigh the bank.

    ``load_model`` makes a module without values and reads its safetensors file into it. Beside it
    stand ``map_model``, which is what `cl_graft.load_model` does with the weights (transformers
    maps the file; every page is touched here, as a first answer does), and ``load_weights``, which
    reads the file into a module whose memory is warm. All files are in the system's cache.
    """
    from transformers import AutoModel

    model = shape.model()
    encoder: Any = model.get_submodule("encoder")
    bank = bank_of(shape, model, tasks)
    owned = len(bank.owned())
    with tempfile.TemporaryDirectory() as folder:
        save_bank(bank, Path(folder) / "bank")
        encoder.save_pretrained(Path(folder) / "model")
        weights = Path(folder) / "model" / "model.safetensors"
        files = [path for path in (Path(folder) / "bank").rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)

        def read_bank() -> None:
            load_bank(Path(folder) / "bank")

        def load_model() -> None:
            with torch.device("meta"):
                made = AutoModel.from_config(encoder.config, add_pooling_layer=False)
            made.to_empty(device="cpu").load_state_dict(load_file(weights), strict=False)

        def map_model() -> None:
            made = AutoModel.from_pretrained(Path(folder) / "model", add_pooling_layer=False)
            for parameter in made.parameters():
                parameter.detach().view(-1)[::_PAGE].sum()

        def load_weights() -> None:
            encoder.load_state_dict(load_file(weights))

        found: Values = {"bytes_per_coordinate": [size / owned]}
        for other in (load_model, map_model, load_weights):
            ratios, first, second = _ratios(read_bank, other, repeats)
            key = f"load_bank_{tasks}_tasks"
            found[f"{key}/{other.__name__}"] = ratios
            found.setdefault(f"{key}, ms", []).extend(1e3 * seconds for seconds in first)
            found[f"{other.__name__}, ms"] = [1e3 * seconds for seconds in second]
    return found


def _jumps(switch: Switch, low: int, high: int) -> Callable[[], None]:
    def jump() -> None:
        for _ in range(_JUMPS // 2):
            switch.to(high)
            switch.to(low)

    switch.to(low)
    return jump


def _ratios(
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
