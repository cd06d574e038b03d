"""A model that cannot take a step is refused before anything is computed."""

from __future__ import annotations

import pytest
import torch

from cl_graft.data import load_task
from cl_graft.errors import InputError
from cl_graft.lab.experiments.run_setup import try_step
from cl_graft.models import load_model
from cl_graft.strategies.benchmark import text_stream
from cl_graft.training.fine_tuning_settings import FineTuning


@pytest.fixture
def loaded_and_stream(tiny_bert):
    loaded = load_model(str(tiny_bert))
    tasks = [load_task("scope", shots=8), load_task("topic", shots=8)]
    return loaded, text_stream(tasks, loaded.tokenizer, family="encoder", max_length=24)


def test_a_trial_step_leaves_model_and_generators_as_they_were(loaded_and_stream):
    loaded, stream = loaded_and_stream
    state = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    before = torch.get_rng_state()
    try_step(loaded.model, stream, FineTuning())
    assert torch.equal(torch.get_rng_state(), before)
    assert not loaded.model.heads
    assert not loaded.model.training
    assert all(torch.equal(state[name], t) for name, t in loaded.model.state_dict().items())
    assert all(p.grad is None for p in loaded.model.parameters())


def test_it_takes_as_many_of_the_longest_rows_as_are_computed_at_a_time(loaded_and_stream):
    loaded, stream = loaded_and_stream
    seen = []
    loaded.model.backbone.register_forward_pre_hook(
        lambda module, inputs, named: seen.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    try_step(loaded.model, stream, FineTuning(batch_size=8, micro_batch=2))
    longest = max(int((t.splits["train"][0][:, 1] != 0).sum(1).max()) for t in stream.tasks)
    assert seen == [(2, longest)]


class NoGradient(torch.autograd.Function):
    """Computes, and cannot be differentiated, as kernels that are made for inference alone."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("no backward kernel")


def test_a_model_that_cannot_take_a_step_is_refused_before_anything_is_computed(loaded_and_stream):
    loaded, stream = loaded_and_stream
    loaded.model.backbone.encoder.layer[1].register_forward_hook(
        lambda module, inputs, output: NoGradient.apply(output)
    )
    with pytest.raises(InputError, match="cannot take a training step on cpu with dtype float32, "):
        try_step(loaded.model, stream, FineTuning())
    assert not loaded.model.heads
