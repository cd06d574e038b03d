"""Every row of the table of strategies: what it says, and that it runs on text as it says."""

import pytest
from configs import config_with
from slow_cases import slow_but
from small_runs import FEW, Runs

from cl_graft.banks.verify import verify
from cl_graft.errors import InputError
from cl_graft.lab.experiments.folders import differences
from cl_graft.lab.experiments.run import run
from cl_graft.strategies.method import Setting
from cl_graft.strategies.registry import STRATEGIES, list_available


def test_a_row_that_needs_a_missing_package_names_it_and_is_refused(monkeypatch, tmp_path):
    from cl_graft.strategies import method

    monkeypatch.setattr(method, "find_spec", lambda name: None)
    assert "pip install peft" in STRATEGIES["lora"].unavailable
    assert "lora" not in list_available()
    config = config_with({"tasks": ["scope"], "strategies": ["lora"]})
    with pytest.raises(InputError, match="strategy 'lora' is not available: it needs"):
        run(config, strategy="lora", seed=0, out=tmp_path)


def test_all_means_all_that_can_run_on_the_family():
    config = config_with({"tasks": ["scope"], "strategies": "all"})
    assert config.comparison.strategies == list_available()
    prompted = config_with({"tasks": ["scope"], "strategies": "all", "family": "masked_lm"})
    assert set(config.comparison.strategies) - set(prompted.comparison.strategies) == {
        name for name in list_available() if STRATEGIES[name].encoders_only
    }


def test_own_settings_of_every_row_are_in_their_own_ranges():
    for row in STRATEGIES.values():
        defaults = row.check_settings({})
        assert defaults == {setting.name: setting.default for setting in row.settings}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"ewk": {}}, "unknown strategy 'ewk': did you mean 'ewc'"),
        ({"ewc": {"ewc_lamda": 1}}, "ewc: unknown setting 'ewc_lamda'; did you mean 'ewc_lambda'"),
        ({"ewc": {"ewc_lambda": -1}}, "ewc.ewc_lambda must be at least 0, got -1"),
        ({"ewc": {"ewc_lambda": "big"}}, "ewc.ewc_lambda must be a number, got 'big'"),
        ({"replay": {"mem_size": 1.5}}, "replay.mem_size must be a whole number, got 1.5"),
        ({"cumulative": {"speed": 1}}, "cumulative has no settings of its own, got 'speed'"),
    ],
)
def test_wrong_settings_are_refused_with_the_nearest_name(own, said):
    with pytest.raises(InputError, match=said):
        config_with({"tasks": ["scope"], "strategy_settings": own})


WEIGHT = Setting("weight", 1.0, "A weight.", min_value=0)
RULE = Setting("rule", "mean", "A rule.", choices=("mean", "sum"))


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        (WEIGHT, float("nan"), "at least 0"),
        (RULE, "sun", r"mine\.rule: unknown 'sun'; did you mean 'sum'"),
    ],
)
def test_values_are_checked_against_range_and_choices(setting, value, said):
    assert WEIGHT.check(3, method="mine") == 3.0  # written without a point
    with pytest.raises(InputError, match=said):
        setting.check(value, method="mine")


@pytest.mark.parametrize("name", ["lt_sft", "merging_by_average", "grafting_without_retraining"])
def test_a_bank_of_a_method_is_a_bank(small_runs, name):
    report = verify(small_runs.folder(name))
    assert report.ok, report


def test_settings_of_a_strategy_may_be_added_with_it_and_not_changed_after_it():
    plain = config_with({"tasks": ["scope"]})
    weighed = config_with({"tasks": ["scope"], "strategy_settings": {"ewc": {"ewc_lambda": 3}}})
    compared, run = plain.values(), plain.shared_values()
    for names, held in ((["naive"], []), (["naive", "ewc"], ["ewc"])):
        compared["comparison"]["strategies"] = names
        assert len(differences(compared, weighed)) == len(held)
    assert differences({"strategy": "naive", **run}, weighed) == []
    for stored in (compared, {"strategy": "ewc", **run}):
        (other,) = differences(stored, weighed)
        assert "ewc_lambda" in other


@pytest.fixture(scope="module")
def twice(tiny_bert, small_runs, tmp_path_factory):
    """Two folders of runs that share no file; of three steps, so that a second epoch begins."""
    # With dropout, as its draws must be functions of the step.
    return [
        Runs(tiny_bert, tmp_path_factory.mktemp(name), {"steps": 3}, drawn=small_runs.drawn)
        for name in ("first", "again")
    ]


@pytest.mark.parametrize("name", slow_but(FEW, list_available()))
def test_a_strategy_learns_a_text_stream_with_the_same_bits_each_time(twice, name):
    first, again = (runs(name) for runs in twice)
    assert first.complete
    assert again.logit_hashes == first.logit_hashes
    assert again.R == first.R
    assert again.bytes == first.bytes
    assert again.passes == first.passes
    assert first.total_passes.forward_backward > 0
    assert all(size > 0 for size in first.bytes.values())
    row = STRATEGIES[name]
    assert first.settings == {setting.name: setting.default for setting in row.settings}
