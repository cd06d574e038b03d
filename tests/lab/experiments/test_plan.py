"""A plan says what a run then takes: fake models and their phases are as large as real ones."""

from __future__ import annotations

import gc
import json
import resource
from typing import Any

import pytest
import torch
from configs import config_with
from slow_cases import slow
from tiny_models import one_layer_config
from tiny_runs import QUICK, tiny_run
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.experiments import plan as plan_module
from cl_graft.lab.experiments.plan import (
    FakeModel,
    MemoryTracker,
    make_fake_model,
    make_plan,
    track_dense_run,
    track_localization,
    track_region,
)
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.metrics import task_loss
from cl_graft.models import LabelStrings, TaskModel, graftable_parameters, linear_head, load_model
from cl_graft.models.load import read_config
from cl_graft.models.text_generation import ANSWER, TextHead
from cl_graft.runtime.byte_sizes import parse_bytes, readable_bytes
from cl_graft.settings import config_from
from cl_graft.settings.parts import ModelSettings
from cl_graft.storage import load_bank
from cl_graft.training.fine_tuning import fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.region_parameters import RegionParameters

MODELS = [
    ("tiny_bert", "encoder"),
    ("tiny_electra", "masked_lm"),
    ("tiny_roberta", "encoder"),
    ("tiny_gpt2", "causal_lm"),
    ("tiny_t5", "seq2seq_lm"),
    ("tiny_bart", "seq2seq_lm"),
]
LLAMA = ("tiny_llama", "causal_lm")
LENGTH, TOKENS = 32, 8
SHORT = FineTuning(batch_size=4)
SOME = GraftingSettings(density=10 / 30_000, fine_tuning=SHORT)


def plan_config(model, **settings):
    """Return a config of some task on a model."""
    return config_with({"tasks": ["any"], "model": str(model), **settings})


def fake_of(
    folder: object, family: str, *, answer: int = 0, layers: int | None = None, **settings: Any
) -> FakeModel:
    config = read_config(str(folder), family=family)
    if layers is not None:
        config.num_hidden_layers = layers
    own = ModelSettings(name=str(folder), family=family, **settings)
    return make_fake_model(config, own, answer=answer)


@pytest.mark.parametrize("density", [0.3, 0.001])
def test_bytes_and_coordinates_of_a_task_are_those_of_a_written_entry(
    density, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(plan_module, "_track_phases", lambda *given, **named: ())
    folder = tiny_run(tmp_path, tiny_bert, ["topic"], density=density) / "bank"
    named = {"any": {"label_names": list("abcde")}}
    asked = {"max_length": QUICK["max_length"], "density": density, "task_settings": named}
    config = plan_config(tiny_bert, **asked)
    entry, bank = next((folder / "entries").iterdir()), load_bank(folder)
    plan = make_plan(config)
    assert plan.entry_total == pytest.approx(entry.stat().st_size, rel=0.05)
    assert (plan.entry.indices < plan.region) == (density == 0.3)  # less than a byte each
    assert plan.graftable == bank.layout.total
    assert plan.region == len(bank.entries[0].region)
    assert plan.tasks == bank.layout.total // plan.region


def test_as_many_whole_regions_as_planned_fit_and_a_longer_stream_is_warned_of(
    tiny_bert, tmp_path, caplog
):
    asked = {"localizer": "columns", "density": 0.2}
    plan = make_plan(plan_config(tiny_bert, max_length=QUICK["max_length"], **asked))
    assert plan.tasks == 2
    for tasks in (["scope", "topic"], ["scope", "topic", "answered"]):
        caplog.clear()
        bank = load_bank(tiny_run(tmp_path / str(len(tasks)), tiny_bert, tasks, **asked) / "bank")
        own = [len(entry.owned.region) for entry in bank.entries]
        assert [size == plan.region for size in own] == [True, True, False][: len(tasks)]
        said = "of 3 tasks in one model 2 get a whole region of density 0.2" in caplog.text
        assert said == (len(tasks) == 3)


@pytest.mark.parametrize(
    ("settings", "phases"),
    [
        ({"localizer": "base_gradient"}, ["localization", "region training"]),
        *slow(
            ({}, ["dense run", "localization", "region training"]),
            ({"retrain": False}, ["dense run", "localization"]),
        ),
    ],
)
def test_the_phases_are_those_of_the_config(tiny_bert, tmp_path, settings, phases):
    model = one_layer_config(tiny_bert, tmp_path / "model")
    plan = make_plan(plan_config(model, max_length=24, batch_size=4, **settings))
    assert [phase.name for phase in plan.phases] == phases
    for phase in plan.phases:
        assert phase.peak == plan.model_bytes + phase.kept + phase.step


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_length": 300}, "max_length must be at most 256, the positions of"),
        ({"layers": 3}, r"layers must be in \[1, 2\]"),
        ({"task_settings": {"any": {"kind": "text2text"}}}, "'encoder' writes no text"),
    ],
)
def test_what_is_out_of_range_is_refused(tiny_bert, settings, said):
    with pytest.raises(InputError, match=said):
        make_plan(plan_config(tiny_bert, **settings))


def test_a_model_that_decides_by_its_numbers_is_refused_in_a_sentence(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 100}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4}
    config = {"model_type": "mixtral", **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"\(mixtral\) cannot be planned: its computation depends"):
        make_plan(plan_config(tmp_path, family="causal_lm"))


def test_what_is_no_text_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(InputError, match="takes no token ids, so it is no text model"):
        fake_of(tmp_path, "encoder")


def test_answers_of_a_config_are_planned_as_long_as_a_run_makes_them(tiny_gpt2, monkeypatch):
    monkeypatch.setattr(plan_module, "_track_phases", lambda *given, **named: ())
    model = {"name": str(tiny_gpt2), "family": "causal_lm"}
    for decoding, tokens in (({"longest_answer": 5}, 5), (None, 20)):
        tasks = {"any": {"kind": "text2text", "decoding": decoding}}
        stream = {"tasks": ["any"], "max_length": 40, "task_settings": tasks}
        plan = make_plan(config_from({"stream": stream, "model": model}))
        assert plan.answer_tokens == tokens


def test_sizes_are_read_and_written_with_their_units():
    sizes = {"24GiB": 24 * 2**30, "512 MB": 512 * 10**6, "1.5kib": 1536, "1000": 1000}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    with pytest.raises(InputError, match="no size of memory: '2T'"):
        parse_bytes("2T")
    shown = [readable_bytes(n) for n in (0, 999, 1536, 24 * 2**30, 700 * 2**20, 10**15)]
    assert shown == ["0 B", "999 B", "1.50 KiB", "24.0 GiB", "700 MiB", "909 TiB"]


@pytest.mark.parametrize(("fixture", "family"), [*MODELS, LLAMA, ("minilm", "encoder")])
def test_a_fake_model_has_the_parameters_of_the_loaded_one(fixture, family, request):
    folder = request.getfixturevalue(fixture)
    real = load_model(str(folder), family=family).model
    fake = fake_of(folder, family)
    assert Layout.of(fake.parameters) == Layout.of(graftable_parameters(real))
    sizes = [sum(p.numel() for p in model.backbone.parameters()) for model in (real, fake.model)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(("fixture", "family"), [LLAMA, *slow(*MODELS)])
def test_every_phase_runs_on_every_family_and_leaves_the_model_as_it_was(fixture, family, request):
    answer = TOKENS if family == "seq2seq_lm" else 0
    fake = fake_of(request.getfixturevalue(fixture), family, answer=answer, layers=1)
    flags = [p.requires_grad for p in fake.model.parameters()]
    phases = [
        track_dense_run(fake, SHORT, length=LENGTH),
        track_localization(fake, SOME, length=LENGTH),
        *(track_region(fake, SHORT, length=LENGTH, coordinates=10) for _ in range(2)),
    ]
    assert all(phase.step > 0 for phase in phases)
    assert phases[2] == phases[3]
    assert [p.requires_grad for p in fake.model.parameters()] == flags
    assert all(p.grad is None for p in fake.model.parameters())


def texts() -> torch.Tensor:
    """Eight rows of which one is shorter, so that attention is masked."""
    inputs = torch.ones(8, 2, LENGTH, dtype=torch.int64)
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


def test_a_step_of_a_fake_region_takes_what_a_real_one_takes(real_and_fake):
    real, fake = real_and_fake
    layout = Layout.of(graftable_parameters(real))
    drawn = torch.randperm(layout.total, generator=torch.Generator().manual_seed(0))
    opened = {
        real: RegionParameters(real, Region.of(layout, drawn[:5000])),
        fake.model: RegionParameters(fake.model, fake.region(5000)),
    }
    peaks = []
    for model, region in opened.items():
        with region, MemoryTracker(tensors_of(model)) as tracker:
            model(texts(), 0).square().sum().backward()
        peaks.append(tracker.peak)
    assert peaks[1] == pytest.approx(peaks[0], rel=0.05)


@pytest.mark.parametrize(
    ("fixture", "family"), [("tiny_gpt2", "causal_lm"), *slow(("tiny_t5", "seq2seq_lm"))]
)
def test_a_fake_step_on_answers_takes_what_a_real_one_takes(fixture, family, request):
    folder = request.getfixturevalue(fixture)
    real = load_model(str(folder), family=family).model
    fake = fake_of(folder, family, answer=TOKENS)
    real.add_head(0, TextHead([10**9], TOKENS))
    peaks = []
    for model in (real, fake.model):
        inputs, targets = fake.texts(8, LENGTH).batch(range(8))
        inputs[0, 1, 20:] = torch.tensor([ANSWER] * TOKENS + [0] * 4)  # attention is masked
        with MemoryTracker(tensors_of(model)) as tracker:
            task_loss(model(inputs, 0), targets).backward()
        peaks.append(tracker.peak)
    assert peaks[1] == pytest.approx(peaks[0], rel=0.02)


@pytest.mark.slow
def test_dense_fine_tuning_holds_base_best_and_gradients_and_no_other_copy_of_the_weights(minilm):
    fake = fake_of(minilm, "encoder")
    found = track_dense_run(fake, FineTuning(batch_size=1), length=8)
    weights = sum(parameter.nbytes for parameter in fake.parameters.values())
    assert found.kept == pytest.approx(2 * weights, rel=0.01)
    assert found.step == pytest.approx(weights, rel=0.1)


@pytest.mark.slow
def test_checkpointing_parts_and_half_precision_lower_what_a_step_needs(tiny_bert):
    def step(micro_batch=None, **model):
        fake = fake_of(tiny_bert, "encoder", layers=4, **model)
        work = FineTuning(batch_size=128, micro_batch=micro_batch)
        return track_region(fake, work, length=LENGTH, coordinates=10).step

    whole = step()
    assert step(gradient_checkpointing=True) < whole / 2
    assert step(precision="bf16") < whole
    assert step(micro_batch=32) < whole / 2


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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan = make_plan(plan_config(tmp_path, family="causal_lm", dtype="bfloat16"))
    assert plan.parameters == 70_553_706_496
    assert plan.model_bytes > 2 * plan.parameters
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 2**10
