"""The benchmarks of switching, serving and loading run, at the smallest scale."""

import sys
from dataclasses import replace

import pytest
import torch
from slow_cases import slow

MODULES = ("speed_loading", "speed_text", "speed_serving", "speed_training")


@pytest.fixture
def serving():
    with torch.random.fork_rng(devices=[]):
        import speed_serving

        yield speed_serving
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def shape(serving):
    return replace(sys.modules["speed_training"].SHAPES["tiny"], coordinates=200)


def test_even_banks_touch_every_parameter_and_owners_stay_apart(serving, shape):
    for even in (True, False):
        bank = serving.make_bank(shape, shape.model(), 3, even=even)
        assert len(bank.owned()) == sum(len(entry.owned) for entry in bank.entries)
        touched = {name for name, *_ in bank.entries[0].owned.region.by_parameter()}
        assert (touched == set(bank.layout.names)) is even


def test_switching_and_a_stream_are_timed(serving, shape):
    found = serving.switching(shape, repeats=2, tasks=4)
    found |= serving.steps_of_a_stream(shape, repeats=2, tasks=4)
    keys = {"switch/load_state_dict", "jump_1_to_4/3_jumps"}
    assert {*keys, "step_at_task_4/step_at_task_1"} <= set(found)
    assert all(len(raw) == 2 and min(raw) > 0 for raw in found.values())


def test_whole_switches_are_timed_beside_their_writes(serving, shape):
    bank = serving.make_bank(shape, shape.model(), 2, checked=True)
    assert bank.base.weights_sha256
    found = serving.checked_switching(shape, repeats=2)
    assert {"checked_switch/write", "checked_switch, ms", "write, ms"} <= set(found)
    assert all(len(raw) == 2 and min(raw) > 0 for raw in found.values())


def test_mixed_batches_are_timed_beside_the_loop_and_lora(serving, shape):
    pytest.importorskip("peft", reason="peft is not installed (pip install 'cl-graft[peft]')")
    found = serving.mixed_batches(replace(shape, rows=8, tokens=4), repeats=2, tasks=4)
    for key in ("mixed_batch_4_tasks", "loop_over_4_tasks", "peft_mixed_lora_4_tasks"):
        assert len(found[f"{key}/single_task_batch"]) == 2
        assert min(found[f"{key}/single_task_batch"]) > 0


@pytest.mark.parametrize("apart", [False, *slow(True)], ids=["here", "apart"])
def test_a_bank_is_weighed_and_read(apart, serving, shape, monkeypatch):
    import speed_loading

    if not apart:  # processes of their own import torch and transformers each
        monkeypatch.setattr(
            "speed_loading._in_a_process",
            lambda prepare, folder: speed_loading._time_both(prepare, folder)(),
        )
    found = speed_loading.loading(shape, repeats=1, tasks=3)
    for key in ("load_bank_3_tasks/load_model", "load_bank_3_tasks/map_model, once more"):
        assert len(found[key]) == 1
        assert min(found[key]) > 0
    (size,) = found["bytes_per_coordinate"]
    assert size > 4


@pytest.mark.parametrize("name", ["tiny_gpt2", "tiny_t5"])
def test_models_that_write_text_are_timed(serving, shape, name):
    import speed_text

    small = speed_text.TextShape(name, coordinates=200, tokens=12, answer=4)
    model = small.model()
    assert {p for p in model.parameters() if p.requires_grad} == {*small.graftable(model).values()}
    found = speed_text.decode_mixed_batches((small,), repeats=2, tasks=4)
    assert len(found[f"{name}_decoding_4_tasks/one_task"]) == 2
    assert min(found[f"{name}_decoding_one_task, ms"]) > 0
    for variant in ("region_step", "full_step"):
        sys.modules["speed_training"].VARIANTS[variant](small, "sgd")()
