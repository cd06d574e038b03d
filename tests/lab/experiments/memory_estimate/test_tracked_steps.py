"""Fake models have the parameters of real ones; their phases take what real ones take."""

from __future__ import annotations

import gc
import json
import resource
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from slow_cases import slow
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.experiments.memory_estimate import make_plan
from cl_graft.lab.experiments.memory_estimate.fake_model import FakeModel, make_fake_model
from cl_graft.lab.experiments.memory_estimate.tracked_steps import (
    MemoryTracker,
    PlannedPhase,
    track_dense_run,
    track_gradients,
    track_region,
)
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.metrics import task_loss
from cl_graft.models import LabelStrings, TaskModel, graftable_parameters, linear_head, load_model
from cl_graft.models.load import read_config
from cl_graft.models.text_generation import ANSWER as ANSWER_SEGMENT
from cl_graft.models.text_generation import TextHead
from cl_graft.settings import config_from
from cl_graft.settings.parts import ModelSettings
from cl_graft.training.fine_tuning import fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.region_parameters import RegionParameters

MODELS = [
    ("tiny_bert", "encoder"),
    ("tiny_bert", "masked_lm"),
    ("tiny_distilbert", "encoder"),
    ("tiny_electra", "masked_lm"),
    ("tiny_roberta", "encoder"),
    ("tiny_roberta", "masked_lm"),
    ("tiny_gpt2", "causal_lm"),
    ("tiny_gpt2", "encoder"),
    ("tiny_t5", "seq2seq_lm"),
    ("tiny_bart", "seq2seq_lm"),
]
LLAMA = ("tiny_llama", "causal_lm")
LENGTH = 32
SHORT = FineTuning(batch_size=4)
SOME = GraftingSettings(density=10 / 30_000, fine_tuning=SHORT)
PHASES: dict[str, Callable[[FakeModel], PlannedPhase]] = {
    "dense run": lambda fake: track_dense_run(fake, SHORT, length=LENGTH),
    "gradients": lambda fake: track_gradients(fake, SOME, length=LENGTH),
    "region": lambda fake: track_region(fake, SHORT, length=LENGTH, coordinates=10),
}
WRITERS = [
    ("tiny_gpt2", "causal_lm"),
    ("tiny_t5", "seq2seq_lm"),
    *slow((("tiny_bart", "seq2seq_lm"),)),
]
ANSWER = 8


def fake_of(
    folder: object, family: str, *, answer: int = 0, layers: int | None = None, **settings: Any
) -> FakeModel:
    config = read_config(str(folder), family=family)
    if layers is not None:
        config.num_hidden_layers = layers
    own = ModelSettings(name=str(folder), family=family, **settings)
    return make_fake_model(config, own, answer=answer)


@pytest.mark.parametrize(("fixture", "family"), [*MODELS, LLAMA, ("minilm", "encoder")])
def test_a_fake_model_has_the_graftable_parameters_of_the_loaded_one(fixture, family, request):
    folder = request.getfixturevalue(fixture)
    real = load_model(str(folder), family=family).model
    fake = fake_of(folder, family)
    assert Layout.of(fake.parameters) == Layout.of(graftable_parameters(real))
    sizes = [
        sum(parameter.numel() for parameter in model.backbone.parameters())
        for model in (real, fake.model)
    ]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(("fixture", "family"), [LLAMA, *slow(*MODELS)])
def test_every_phase_runs_on_every_family_and_leaves_the_model_as_it_was(fixture, family, request):
    answer = ANSWER if family == "seq2seq_lm" else 0
    fake = fake_of(request.getfixturevalue(fixture), family, answer=answer, layers=1)
    flags = [p.requires_grad for p in fake.model.parameters()]
    memory = {name: track(fake) for name, track in PHASES.items()}
    assert all(phase.step > 0 for phase in memory.values())
    assert [p.requires_grad for p in fake.model.parameters()] == flags
    assert all(p.grad is None for p in fake.model.parameters())
    assert PHASES["region"](fake) == memory["region"]


def texts() -> torch.Tensor:
    """Eight rows of which one is shorter, so that attention is masked."""
    inputs = torch.ones(8, 2, 32, dtype=torch.int64)
    inputs[0, :, 20:] = 0
    return inputs


@pytest.fixture(params=[("tiny_bert", "encoder"), *slow((("tiny_gpt2", "causal_lm"),))], ids=str)
def real_and_fake(request) -> tuple[TaskModel, FakeModel]:
    """A loaded model and the fake model of its config, each with a head."""
    fixture, family = request.param
    folder = request.getfixturevalue(fixture)
    model = load_model(str(folder), family=family).model
    encoder = family == "encoder"
    model.add_head(0, linear_head(32, 2, seed=0) if encoder else LabelStrings([[2], [3]]))
    return model, fake_of(folder, family)


def tensors_of(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def test_fake_fine_tuning_takes_what_real_fine_tuning_takes(real_and_fake):
    peaks = []
    for model in (real_and_fake[0], real_and_fake[1].model):
        gc.collect()
        with MemoryTracker(tensors_of(model)) as tracker:
            fine_tune(
                model,
                graftable_parameters(model),
                loss=lambda step, model=model: model(texts(), 0).square().sum(),
                settings=FineTuning(steps=2, optimizer="adamw", lr=1e-4),
                seed=0,
            )
        peaks.append(tracker.peak)
    assert peaks[1] == pytest.approx(peaks[0], rel=0.02)


@pytest.mark.parametrize("size", [5000, *slow(500)])
def test_a_step_of_a_fake_region_takes_what_a_real_one_takes(real_and_fake, size):
    real, fake = real_and_fake
    layout = Layout.of(graftable_parameters(real))
    drawn = torch.randperm(layout.total, generator=torch.Generator().manual_seed(0))
    opened = {
        real: RegionParameters(real, Region.of(layout, drawn[:size])),
        fake.model: RegionParameters(fake.model, fake.region(size)),
    }
    peaks = []
    for model, region in opened.items():
        with region, MemoryTracker(tensors_of(model)) as tracker:
            model(texts(), 0).square().sum().backward()
        peaks.append(tracker.peak)
    assert peaks[1] == pytest.approx(peaks[0], rel=0.05)


@pytest.fixture(params=WRITERS, ids=str)
def writers(request) -> tuple[TaskModel, FakeModel]:
    """A loaded model and the fake model of its config, each with a head that writes answers."""
    fixture, family = request.param
    folder = request.getfixturevalue(fixture)
    model = load_model(str(folder), family=family).model
    model.add_head(0, TextHead([10**9], ANSWER))
    return model, fake_of(folder, family, answer=ANSWER)


def test_a_fake_step_on_answers_takes_what_a_real_one_takes(writers):
    peaks = []
    for model in (writers[0], writers[1].model):
        inputs, targets = writers[1].texts(8, 32, learned=True).batch(range(8))
        inputs[0, 1, 20:] = torch.tensor([ANSWER_SEGMENT] * ANSWER + [0] * 4)  # attention is masked
        with MemoryTracker(tensors_of(model)) as tracker:
            task_loss(model(inputs, 0), targets).backward()
        peaks.append(tracker.peak)
    assert peaks[1] == pytest.approx(peaks[0], rel=0.02)


def test_fake_decoding_takes_at_least_what_real_decoding_takes(writers):
    real, fake = writers
    texts = fake.texts(8, 32, learned=False).batch(range(8))[0]
    peaks = []
    for model, rows in ((real, texts[:, :, :-ANSWER]), (fake.model, texts)):
        forward = fake.task(length=32, train=1, dev=8).forward if model is fake.model else None
        with torch.no_grad(), MemoryTracker(tensors_of(model)) as tracker:
            forward(rows) if forward is not None else model(rows, 0)
        peaks.append(tracker.peak)
    assert peaks[0] <= peaks[1] <= 2 * peaks[0]


def test_dense_fine_tuning_holds_base_best_and_gradients_and_no_other_copy_of_the_weights(minilm):
    fake = fake_of(minilm, "encoder")
    found = track_dense_run(fake, FineTuning(batch_size=1), length=8)
    weights = sum(parameter.nbytes for parameter in fake.parameters.values())
    assert found.kept == pytest.approx(2 * weights, rel=0.01)
    assert found.step == pytest.approx(weights, rel=0.1)


def test_a_path_keeps_more_than_adamw_that_more_than_sgd_and_candidates_less_than_a_whole_mask(
    tiny_bert,
):
    fake = fake_of(tiny_bert, "encoder", layers=1)
    adamw = replace(SHORT, optimizer="adamw")
    kept = [
        track_dense_run(fake, SHORT, length=LENGTH, path=True).kept,
        track_dense_run(fake, adamw, length=LENGTH).kept,
        track_dense_run(fake, SHORT, length=LENGTH).kept,
        PHASES["region"](fake).kept,
    ]
    assert kept == sorted(kept, reverse=True)
    whole = track_gradients(fake, replace(SOME, mask_candidates=None), length=LENGTH)
    assert PHASES["gradients"](fake).kept < whole.kept


def test_checkpointing_parts_and_half_precision_lower_what_a_step_needs(tiny_bert):
    def step(micro_batch=None, **model):
        fake = fake_of(tiny_bert, "encoder", layers=4, **model)
        work = FineTuning(batch_size=256, micro_batch=micro_batch)
        return track_region(fake, work, length=LENGTH, coordinates=10).step

    whole = step()
    assert step(gradient_checkpointing=True) < whole / 2
    assert step(precision="bf16") < whole
    assert step(micro_batch=64) < whole / 2


def test_the_peak_is_the_most_that_lived_at_once_beside_views_and_known_tensors():
    model = torch.nn.Linear(10, 10)
    with MemoryTracker(model.parameters()) as tracker:
        view = model.weight.detach().view(-1)[3:]
        model.weight.detach().mul_(2)
        assert tracker.peak == 0
        for _ in range(3):
            first = torch.zeros(100)
            second = first + 1
            del first, second
        copy = view.clone()
    assert tracker.peak == 800
    assert tracker.now == copy.nbytes == 4 * 97


def test_activations_live_until_the_backward_pass_has_used_them():
    x = torch.zeros(64, requires_grad=True)
    with MemoryTracker() as tracker:
        loss = x.exp().exp().sum()
        before = tracker.now
        loss.backward()
        del loss
    assert before == 2 * x.nbytes + 4
    assert tracker.now == x.nbytes


def test_a_fake_tensor_counts_and_its_conditions_hold():
    with FakeTensorMode():
        fake = torch.zeros(10**12)
    with MemoryTracker() as tracker:
        loss = (fake * 2).mean()
        assert bool(loss.isfinite())
        assert float(loss) == 1.0
    assert tracker.peak > 4 * 10**12


@pytest.mark.slow
def test_a_model_of_70_billion_parameters_is_planned_without_allocating_it(tmp_path):
    sizes = {"hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256}
    heads = {"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
    config = {"model_type": "llama", "tie_word_embeddings": False, **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = {"name": str(tmp_path), "family": "causal_lm", "dtype": "bfloat16"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan = make_plan(config_from({"stream": {"tasks": ["any"]}, "model": model}))
    assert plan.parameters == 70_553_706_496
    assert plan.model_bytes > 2 * plan.parameters
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 2**10


def test_what_is_no_text_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(InputError, match="takes no token ids, so it is no text model"):
        fake_of(tmp_path, "encoder")
    with pytest.raises(InputError, match="cannot read its config as causal_lm"):
        fake_of(tmp_path, "causal_lm")
