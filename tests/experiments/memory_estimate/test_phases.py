"""Fake models have the parameters of real ones; their phases take what real ones take."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from slow_cases import slow
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.experiments.memory_estimate.fake_model import FakeModel, make_fake_model
from cl_graft.lab.experiments.memory_estimate.memory_tracker import MemoryTracker
from cl_graft.lab.experiments.memory_estimate.phases import (
    PHASES,
    PhaseMemory,
    Workload,
    measure_phase,
)
from cl_graft.lab.experiments.memory_estimate.plan import advise
from cl_graft.metrics import task_loss
from cl_graft.models import LabelStrings, TaskModel, graftable_parameters, linear_head, load_model
from cl_graft.models.load import read_config
from cl_graft.models.text_generation import ANSWER as ANSWER_SEGMENT
from cl_graft.models.text_generation import TextHead
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
WHOLE = {
    ("tiny_gpt2", "causal_lm"),
    ("tiny_t5", "seq2seq_lm"),
}
"""Models on which all phases run, as on BERT. Another architecture is differentiated densely,
differentiated at coordinates, and answers; the rest of a phase is the same for all."""
BY_ARCHITECTURE = ("dense fine-tuning, SGD", "region training", "evaluation")
WORK = Workload(
    batch_size=4,
    micro_batch=None,
    eval_batch=8,
    length=32,
    region=10,
    candidates=200,
)
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


def measure_phases(fake: FakeModel, names: Iterable[str]) -> dict[str, PhaseMemory]:
    """Measure phases, each of which leaves the model as it was."""
    flags = [p.requires_grad for p in fake.model.parameters()]
    found = {name: measure_phase(PHASES[name], fake, WORK) for name in names}
    assert all(memory.step > 0 for memory in found.values())
    assert [p.requires_grad for p in fake.model.parameters()] == flags
    assert all(p.grad is None for p in fake.model.parameters())
    again = "region training" if len(found) == len(PHASES) else "evaluation"
    assert measure_phase(PHASES[again], fake, WORK) == found[again]
    return found


@pytest.mark.parametrize(("fixture", "family"), [LLAMA, *slow(*MODELS)])
def test_every_phase_runs_on_every_family_and_leaves_the_model_as_it_was(fixture, family, request):
    answer = ANSWER if family == "seq2seq_lm" else 0
    fake = fake_of(request.getfixturevalue(fixture), family, answer=answer, layers=1)
    measure_phases(fake, PHASES if (fixture, family) in WHOLE else BY_ARCHITECTURE)


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
    prompts = texts[:, :, :-ANSWER]
    with torch.no_grad(), MemoryTracker(tensors_of(real)) as tracker:
        real(prompts, 0)
    planned = measure_phase(PHASES["evaluation"], fake, WORK).step
    assert tracker.peak <= planned <= 2 * tracker.peak


def test_dense_fine_tuning_holds_base_best_and_gradients_and_no_other_copy_of_the_weights(minilm):
    fake = fake_of(minilm, "encoder")
    work = dataclasses.replace(WORK, batch_size=1, length=8)
    found = measure_phase(PHASES["dense fine-tuning, SGD"], fake, work)
    weights = sum(parameter.nbytes for parameter in fake.parameters.values())
    assert found.kept == pytest.approx(2 * weights, rel=0.01)
    assert found.step == pytest.approx(weights, rel=0.1)


def test_every_phase_runs_and_candidates_and_regions_keep_less_than_dense_phases(tiny_bert):
    found = measure_phases(fake_of(tiny_bert, "encoder", layers=1), PHASES)
    kept = {name: memory.kept for name, memory in found.items()}
    dense = [f"dense fine-tuning, {how}" for how in ("SGD with path integral", "AdamW", "SGD")]
    names = [*dense, "region training", "evaluation"]
    ordered = [kept[name] for name in names]
    assert ordered == sorted(ordered, reverse=True)
    assert kept["localization, candidates"] < kept["localization, learned mask"]


def test_checkpointing_parts_and_half_precision_lower_what_a_step_needs(tiny_bert):
    fake = fake_of(tiny_bert, "encoder", layers=4)
    saving = fake_of(tiny_bert, "encoder", layers=4, gradient_checkpointing=True)
    half = fake_of(tiny_bert, "encoder", layers=4, precision="bf16")
    work = dataclasses.replace(WORK, batch_size=256)
    phase = PHASES["region training"]
    step = measure_phase(phase, fake, work).step
    assert measure_phase(phase, saving, work).step < step / 2
    assert measure_phase(phase, half, work).step < step
    parts = dataclasses.replace(work, micro_batch=64)
    assert measure_phase(phase, fake, parts).step < step / 2


@pytest.mark.parametrize("share", [0.1, *slow(0.5, 0.9)])
def test_the_number_of_rows_that_is_advised_fits(minilm, share):
    fake = fake_of(minilm, "encoder", layers=2)
    phase, work = PHASES["evaluation"], dataclasses.replace(WORK, eval_batch=512)
    found = measure_phase(phase, fake, work)
    left = round(share * found.step)
    said = advise(phase, fake, work, found, left=left)
    rows = int(re.fullmatch(r"--eval-batch (\d+) fits", said)[1])
    again = measure_phase(phase, fake, dataclasses.replace(work, eval_batch=rows))
    assert 1 <= rows < 512
    assert again.kept + again.step <= left
    assert advise(phase, fake, work, found, left=found.step) == ""


LARGE = """
import json, resource, sys
from cl_graft.settings import config_from
from cl_graft.lab.experiments.memory_estimate import make_plan

small = config_from({"stream": {"tasks": ["any"]}, "model": {"name": sys.argv[2]}})
large = {"model.name": sys.argv[1], "model.family": "causal_lm", "model.dtype": "bfloat16"}
make_plan(small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
plan = make_plan(small.with_values(large))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"parameters": plan.parameters, "bytes": plan.model_bytes, "grown": grown * 1024}))
"""


@pytest.mark.slow
def test_a_model_of_70_billion_parameters_is_planned_without_allocating_it(tmp_path, tiny_bert):
    config = {
        "model_type": "llama",
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-c", LARGE, str(tmp_path), str(tiny_bert)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    plan = json.loads(answer.stdout)
    assert plan["parameters"] == 70_553_706_496
    assert plan["bytes"] > 2 * plan["parameters"]
    assert plan["grown"] < 300 * 2**20


def test_what_is_no_text_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(InputError, match="takes no token ids, so it is no text model"):
        fake_of(tmp_path, "encoder")
    with pytest.raises(InputError, match="cannot read its config as causal_lm"):
        fake_of(tmp_path, "causal_lm")
