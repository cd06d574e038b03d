"""Tasks of every kind are localized under heads that fit their bodies."""

import pytest
from kind_data import KINDS_OF_TASKS, write_kinds
from papers import other_kinds
from papers.experiments import EXPERIMENTS
from papers.other_kinds import RATES, TEXT_RATES, localize_kinds, localize_text
from slow_cases import slow
from smoke_benches import smoke_bench

from cl_graft.errors import InputError
from cl_graft.training.linear_probe import fit_head

pytestmark = pytest.mark.usefixtures("one_penalty")

# The experiment is of the kinds that have one head on tokens or texts, not of several labels.
NAMES = [name for kind, (name, _) in KINDS_OF_TASKS.items() if kind != "multi_label"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_kinds(tmp_path_factory.mktemp("kinds"), train=24, test=8)


def sets(*names):
    return (f"stream.tasks=[{','.join(names)}]", "stream.shots=null", "grafting.budgets=[0.05]")


@pytest.mark.parametrize("name", ["names", *slow(*(name for name in NAMES if name != "names"))])
def test_each_kind_is_scored_under_fitted_heads_against_a_random_region(
    name, data, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(other_kinds, "_LEAST_GAIN", -2.0)
    bench = smoke_bench(
        "other_kinds",
        tiny_bert,
        tmp_path,
        *sets(name),
        data=data,
        kinds=EXPERIMENTS["other_kinds"].kinds,
    )
    task = bench.task(0)
    found = list(localize_kinds(bench))
    assert {m.task for m in found} == {name}
    values = {(m.method, m.measure): m.value for m in found}
    for localizer in ("learned_mask", "random"):
        for way in ("graft", "trained again"):
            assert -1 <= values[f"{localizer}, {way}", "score, head fitted"] <= 1
        assert values[f"{localizer}, trained again", "rate that dev chooses"] in RATES
    probe = values["linear probe", "score, head fitted"]
    dense = values["fine-tuning", "score, head fitted"]
    for (method, measure), share in values.items():
        if measure == "share of the gain":
            score = values[method, "score, head fitted"]
            assert score - probe == pytest.approx(share * (dense - probe))
    # The head that every run starts from is the probe's.
    started = bench.task(0)
    assert started.content != task.content
    fitted = fit_head(started, rows=256, seed=bench.seed)
    for part, value in started.head.items():
        assert value.detach().numpy() == pytest.approx(fitted[part].numpy(), abs=0.05)


def test_answers_that_a_model_writes_are_scored_against_zero_shot_and_a_random_region(
    tiny_gpt2, tmp_path, monkeypatch
):
    monkeypatch.setattr(other_kinds, "_LEAST_GAIN", -2.0)
    # Of a model with random weights ROUGE-L moves where accuracy stays at 0.
    rate = "fine_tuning.lr=1.0"
    metric = 'stream.task_settings={"scope":{"kind":"text2text","metric":"chrf"}}'
    more = {"kinds": EXPERIMENTS["generation"].kinds}
    bench = smoke_bench("generation", tiny_gpt2, tmp_path, metric, rate, **more)
    values = {(m.method, m.measure): m.value for m in localize_text(bench)}
    base, dense = values["zero-shot", "score"], values["fine-tuning", "score"]
    assert base != dense
    for localizer in ("movement", "random"):
        for way in ("graft", "trained again"):
            assert 0 <= values[f"{localizer}, {way}", "score"] <= 1
        assert values[f"{localizer}, trained again", "rate that dev chooses"] in TEXT_RATES
    for (method, measure), share in values.items():
        if measure == "share of the gain":
            assert values[method, "score"] - base == pytest.approx(share * (dense - base))


def test_other_experiments_say_which_kinds_they_run(data, tiny_bert, tmp_path):
    with pytest.raises(InputError, match="'names' is a tagging task; this experiment runs tasks"):
        smoke_bench("head_refit", tiny_bert, tmp_path, *sets("names"), data=data)
