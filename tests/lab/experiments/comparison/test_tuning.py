"""Tuning: small grids, chosen on dev rows of the first two tasks and nothing else."""

import json
import math

import pytest
from configs import changed, config_with

from cl_graft import load_model
from cl_graft.errors import DivergedError
from cl_graft.grafts.region import Layout
from cl_graft.lab.experiments.comparison import tuning
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.comparison.tuning import best, list_grid, use_dev_as_test
from cl_graft.lab.experiments.run import run
from cl_graft.lab.results.run_results import read_result
from cl_graft.lab.results.summary_tables import settings_at_edge
from cl_graft.localization.grafting_settings import REGION_LR, region_rate
from cl_graft.models.graftable import graftable_parameters, weight_scale
from cl_graft.settings import to_dotted
from cl_graft.settings.tasks import load_tasks
from cl_graft.strategies.registry import STRATEGIES


@pytest.fixture
def config(tiny_config):
    """Three tasks, and a strategy with two values to choose among beside one without."""
    cells = {"strategies": ["naive", "der"], "strategy_settings": {"der": {"alpha": 0.1}}}
    small = {"tune": True, "steps": 4, "shots": 8, "max_test": 20}
    return changed(tiny_config, cells | small)


def test_a_grid_names_settings_or_fields_and_holds_their_defaults():
    plain = config_with({"tasks": ["scope"]})
    fields = {**to_dotted(plain.values()), "grafting.lr": REGION_LR}
    for row in STRATEGIES.values():
        own = row.check_settings({})
        for name, values in row.grid.items():
            assert (own[name] if name in own else fields[name]) in values
            for value in values:
                if name in own:
                    assert row.check_settings({name: value})[name] == value
                else:
                    config_with({"tasks": ["scope"], name: value})
        assert math.prod(map(len, row.grid.values())) <= 8


def test_dev_rows_stand_where_test_rows_stood(tiny_config):
    tasks = load_tasks(tiny_config.stream, seed=0)
    first, second = use_dev_as_test(tasks)
    for own, task in zip((first, second), tasks, strict=False):
        assert own.test == own.dev == task.dev
        assert own.train == task.train
    assert [one.name for one in use_dev_as_test(tasks, count=1)] == [tasks[0].name]
    assert len(use_dev_as_test(tasks, count=len(tasks))) == len(tasks)


def test_the_best_is_the_first_of_the_highest():
    assert best([0.1, 0.5, 0.5]) == 1
    assert best([None, 0.0]) == 1
    with pytest.raises(ValueError, match="expected a score"):
        best([None])


def test_what_the_config_gives_is_not_tuned(tiny_config):
    given = {"der": {"alpha": 0.2}, "ewc": {"ewc_lambda": 3.0}}
    config = changed(tiny_config, {"strategy_settings": given})
    grid, candidates = list_grid(STRATEGIES["der"], config)
    assert grid == {"beta": (0.5, 1.0)}
    assert candidates == [{"beta": 0.5}, {"beta": 1.0}]
    assert list_grid(STRATEGIES["ewc"], config)[1] == []


@pytest.mark.parametrize(("optimizer", "density"), [("sgd", 0.1), ("adamw", 1e-4), ("adamw", 0.04)])
def test_the_grid_of_regions_has_the_rates_of_their_optimizer(tiny_config, optimizer, density):
    config = tiny_config.with_values({"grafting.optimizer": optimizer, "grafting.density": density})
    base = load_model(config.model.name).model
    size = config.grafting.coordinates(Layout.of(graftable_parameters(base)).total)
    for name, localizer in (("grafting", None), ("grafting_random", "random")):
        grid, looks = list_grid(STRATEGIES[name], config, base=base)
        assert len(looks) == len(list_grid(STRATEGIES["lora"], config)[1])
        rate = region_rate(optimizer, size, scale=weight_scale(base), localizer=localizer)
        assert pytest.approx(rate, rel=0.05) in sorted(grid["grafting.lr"])[1:-1]


def test_a_comparison_chooses_runs_and_tells(tmp_path, config):
    comparison = compare(config, out=tmp_path)
    assert comparison.failed == ()
    naive, der = comparison.runs
    assert naive.tuning == {}
    assert list(der.tuning["grid"]) == ["beta"]
    assert der.tuning["tasks"] == config.stream.tasks[:2]
    assert der.settings["beta"] == der.tuning["chosen"]["beta"]
    scores = [one["score"] for one in der.tuning["scores"]]
    assert der.tuning["chosen"] == der.tuning["scores"][best(scores)]["values"]
    tried = read_result(tmp_path / "tuning" / "der" / "beta=0.5" / "der" / "seed0")
    assert tried.tasks == config.stream.tasks[:2]
    assert tried.average_accuracy == scores[0]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["strategies"]["der"]["tuning"] == der.tuning
    assert "## Tuned values" in (tmp_path / "summary.md").read_text()

    steps = []
    again = compare(config, out=tmp_path, progress=steps.append)
    assert {step.phase for step in steps} == {"reused"}
    assert again.runs == comparison.runs


def test_a_choice_that_was_stopped_goes_on_with_the_value_that_is_left(tmp_path, config):
    config = changed(config, {"strategies": ["der"]})

    def stumble(step):
        if "beta=1.0" in step.strategy and step.phase == "train":
            raise RuntimeError("the power is gone")

    first = compare(config, out=tmp_path, progress=stumble)
    assert "the power is gone" in first.failed[0].error
    steps = []
    second = compare(config, out=tmp_path, progress=steps.append)
    assert second.failed == ()
    trained = {step.strategy for step in steps if step.phase == "train"}
    assert trained == {"der beta=1.0", "der"}


def test_a_value_at_an_edge_of_its_grid_is_marked():
    tuning = {
        "grid": {"lr": [0.1, 1.0, 10.0], "beta": [1, 2, 3]},
        "chosen": {"lr": 10.0, "beta": 2},
    }
    assert settings_at_edge(tuning) == {"lr"}
    tuning["chosen"]["lr"] = 0.1
    assert settings_at_edge(tuning) == {"lr"}


def test_values_that_diverge_are_passed_over(tmp_path, config, monkeypatch, caplog):
    config = changed(config, {"strategies": ["der"]})

    def diverge(given, **more):
        if given.comparison.strategy_settings["der"]["beta"] == 0.5:
            raise DivergedError("the loss is NaN")
        return run(given, **more)

    monkeypatch.setattr(tuning, "run", diverge)
    (cell,) = compare(config, out=tmp_path).runs
    assert cell.tuning["scores"][0]["score"] is None
    assert cell.settings["beta"] == 1.0
    assert "the loss is NaN; the choice goes on without it" in caplog.text
