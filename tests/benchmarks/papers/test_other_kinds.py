"""Tasks of every kind are localized under heads that fit their bodies."""

import pytest
from kind_data import KINDS_OF_TASKS, write_kinds
from papers import other_kinds
from papers.other_kinds import RATES, localize_kinds
from papers.table import EXPERIMENTS
from smoke_benches import smoke_bench

from cl_graft.errors import InputError
from cl_graft.training.linear_probe import fit_head

NAMES = [name for name, _ in KINDS_OF_TASKS.values()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_kinds(tmp_path_factory.mktemp("kinds"), train=24, test=8)


def sets(*names):
    return (f"stream.tasks=[{','.join(names)}]", "stream.shots=null", "grafting.budgets=[0.05]")


def test_each_kind_is_scored_under_fitted_heads_against_a_random_region(
    data, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(other_kinds, "_LEAST_GAIN", -2.0)
    bench = smoke_bench(
        "other_kinds",
        tiny_bert,
        tmp_path,
        *sets(*NAMES),
        data=data,
        kinds=EXPERIMENTS["other_kinds"].kinds,
    )
    task = bench.task(0)
    found = list(localize_kinds(bench))
    values = {(m.task, m.method, m.measure): m.value for m in found}
    for name in NAMES:
        for localizer in ("learned_mask", "random"):
            for way in ("graft", "trained again"):
                assert -1 <= values[name, f"{localizer}, {way}", "score, head fitted"] <= 1
            assert values[name, f"{localizer}, trained again", "rate that dev chooses"] in RATES
        probe = values[name, "linear probe", "score, head fitted"]
        dense = values[name, "fine-tuning", "score, head fitted"]
        for (own, method, measure), share in values.items():
            if own == name and measure == "share of the gain":
                score = values[name, method, "score, head fitted"]
                assert score - probe == pytest.approx(share * (dense - probe))
    # The head that every run starts from is the probe's.
    started = bench.task(0)
    assert started.content != task.content
    fitted = fit_head(started, rows=256, seed=bench.seed)
    for name, value in started.head.items():
        assert value.detach().numpy() == pytest.approx(fitted[name].numpy(), abs=0.05)


def test_other_experiments_say_which_kinds_they_run(data, tiny_bert, tmp_path):
    with pytest.raises(InputError, match="'names' is a tagging task; this experiment runs tasks"):
        smoke_bench("head_refit", tiny_bert, tmp_path, *sets("names"), data=data)
