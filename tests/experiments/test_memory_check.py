"""A run says what memory it will hold before it starts."""

from __future__ import annotations

import pytest
import torch
from configs import changed, config_with

from cl_graft.data import load_task
from cl_graft.errors import InputError
from cl_graft.lab.experiments.memory_check import measure_memory, memory_note
from cl_graft.lab.experiments.run import run
from cl_graft.models import load_model
from cl_graft.strategies.benchmark import text_stream
from cl_graft.training.fine_tuning_settings import FineTuning


def measure(folder, **settings):
    config = config_with({"tasks": ["sentiment", "topic"], "max_length": 40, **settings})
    loaded = load_model(str(folder), precision=config.model.precision)
    if config.model.gradient_checkpointing:
        loaded.model.recompute_()
    tasks = [load_task(name, shots=8, data_seed=0) for name in config.stream.tasks]
    stream = text_stream(
        tasks, loaded.tokenizer, family="encoder", max_length=config.stream.max_length
    )
    before = torch.get_rng_state()
    found = measure_memory(loaded.model, stream, config.fine_tuning)
    assert torch.equal(torch.get_rng_state(), before)
    assert not loaded.model.heads
    assert not loaded.model.training
    return found


def test_activations_go_with_the_rows_that_are_computed_at_a_time(tiny_bert):
    whole = measure(tiny_bert, batch_size=8)
    parts = measure(tiny_bert, batch_size=8, micro_batch=2)
    assert (whole["rows"], parts["rows"]) == (8, 2)
    assert whole["tokens"] == parts["tokens"] > 8
    assert 3.5 < whole["activations"] / parts["activations"] < 4.5
    assert whole["parameters"] == parts["parameters"]


def test_less_is_kept_with_checkpointing_and_in_half_precision(tiny_bert):
    plain = measure(tiny_bert)["activations"]
    assert measure(tiny_bert, gradient_checkpointing=True)["activations"] < 0.5 * plain
    assert measure(tiny_bert, precision="bf16")["activations"] < plain


class NoGradient(torch.autograd.Function):
    """Computes, and cannot be differentiated, as kernels that are made for inference alone."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("no backward kernel")


def test_a_model_that_cannot_take_a_step_is_refused_before_anything_is_computed(tiny_bert):
    loaded = load_model(str(tiny_bert))
    stream = text_stream(
        [load_task("sentiment", shots=8)], loaded.tokenizer, family="encoder", max_length=24
    )
    loaded.model.backbone.encoder.layer[1].register_forward_hook(
        lambda module, inputs, output: NoGradient.apply(output)
    )
    with pytest.raises(InputError, match="cannot take a training step on cpu with dtype float32, "):
        measure_memory(loaded.model, stream, FineTuning())
    assert not loaded.model.heads


def test_a_run_tells_it_first_and_keeps_it_in_its_results(tiny_config, tmp_path):
    steps = []
    config = changed(tiny_config, {"tasks": ["sentiment"]})
    result = run(config, strategy="naive", seed=0, out=tmp_path, progress=steps.append)
    assert steps[0].phase == "memory"
    assert steps[0].note.startswith(memory_note(result.memory))
    assert not any(step.note for step in steps[1:])
    assert result.memory["activations"] > 0
