"""Orders and sweeps: every one is a comparison of its own, and one table is over all of them."""

import json

import pytest
from configs import changed, config_with

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.comparison.sweep import draw_orders, expand_sweep
from cl_graft.lab.experiments.folders import stored_comparison
from cl_graft.lab.experiments.run import run
from cl_graft.lab.reporting.pictures import draw_sweeps
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.results.run_results import read_result


def config(orders, tasks="a,b,c"):
    return config_with({"tasks": tasks, "orders": orders, "strategies": "naive"})


def test_orders_begin_with_the_given_one_and_are_all_different():
    assert draw_orders(config(1)) == [["a", "b", "c"]]
    assert config("3").comparison.orders == 3  # as the command line gives it
    every = draw_orders(config("all"))
    assert every[0] == ["a", "b", "c"]
    assert len({tuple(order) for order in every}) == 6
    some = draw_orders(config(4))
    assert some[0] == ["a", "b", "c"]
    assert len({tuple(order) for order in some}) == 4
    assert draw_orders(config(4)) == some
    assert len(draw_orders(config(5, "a,b,c,d,e,f,g"))) == 5


def test_orders_that_there_are_not_are_refused(tmp_path):
    with pytest.raises(InputError, match="3 tasks have 6 orders, got orders: 7"):
        draw_orders(config(7))
    with pytest.raises(InputError, match="6 tasks have 720 orders: say how many"):
        draw_orders(config("all", "a,b,c,d,e,f"))
    with pytest.raises(InputError, match="must be at least 1 or 'all', got 0"):
        config(0)
    with pytest.raises(InputError, match="cl-graft compare takes them"):
        run(config(2), strategy="naive", seed=0, out=tmp_path)


def test_measures_are_over_all_orders_and_what_is_done_is_not_done_again(tmp_path, tiny_config):
    small = {"tasks": ["scope", "topic"], "steps": 4, "shots": 8, "max_test": 20}
    both = {"orders": "all", "strategies": ["naive", "independent"]}
    own = changed(tiny_config, small | both)
    comparison = compare(own, out=tmp_path)
    orders = [["scope", "topic"], ["topic", "scope"]]
    assert [cell.tasks for cell in comparison.runs] == 2 * orders
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["orders"] == orders
    naive = [cell for cell in comparison.runs if cell.strategy == "naive"]
    row = summary["strategies"]["naive"]
    # Two orders of one seed are one sample: no interval, no deviation and no test.
    assert row["average_accuracy"]["n"] == 1
    assert row["average_accuracy"]["interval"] is None
    assert summary["differences"] == []
    assert row["by_order"] == [cell.average_accuracy for cell in naive]
    final = [cell.R[-1][cell.tasks.index("topic")] for cell in naive]
    assert row["final"]["topic"]["mean"] == pytest.approx(sum(final) / 2)
    text = (tmp_path / "summary.md").read_text()
    assert "# scope, topic in 2 orders" in text
    assert "With fewer than three seeds nothing can be said" in text
    assert "Average accuracy by order:" in text
    assert "| topic → scope |" in text
    dense = [path for path in (tmp_path / "cache").iterdir() if path.name.startswith("dense")]
    assert len(dense) == 2  # of each task one, whatever the order

    steps = []
    again = compare(stored_comparison(tmp_path)[0], out=tmp_path, progress=steps.append)
    assert {step.phase for step in steps} == {"reused"}
    assert again.runs == comparison.runs


def sweeping(sweep, strategies="grafting,naive", **more):
    return config_with({"tasks": "a,b", "strategies": strategies, "sweep": sweep, **more})


def names_of(config):
    return {part.name: part.config.comparison.strategies for part in expand_sweep(config)}


def test_a_strategy_is_run_with_the_values_that_change_something_about_it():
    assert names_of(sweeping({"density": ["1e-3", 0.01]})) == {
        "density=0.001": ["grafting"],
        "density=0.01": ["grafting"],
        "unswept": ["naive"],
    }
    assert names_of(sweeping({"lr": "0.1,0.2"})) == {
        "fine_tuning.lr=0.1": ["grafting", "naive"],
        "fine_tuning.lr=0.2": ["grafting", "naive"],
    }
    both = {"ewc": {"ewc_lambda": [1, 10]}, "avoid_owned": False}
    assert names_of(sweeping(both, "grafting,ewc")) == {
        "avoid_owned=False": ["grafting"],
        "ewc.ewc_lambda=1": ["ewc"],
        "ewc.ewc_lambda=10": ["ewc"],
    }
    # What a strategy imposes cannot be swept.
    assert names_of(sweeping({"localizer": ["movement", "fisher"]}, "grafting,lt_sft")) == {
        "localizer=movement": ["grafting"],
        "localizer=fisher": ["grafting"],
        "unswept": ["lt_sft"],
    }


def test_the_comparisons_of_a_sweep_are_configs_of_one_order_and_no_sweep():
    swept = {"density": [0.1], "ewc.ewc_lambda": [2]}
    parts = expand_sweep(sweeping(swept, "grafting,ewc", orders=2))
    assert [part.name for part in parts] == [
        "density=0.1,order0",
        "density=0.1,order1",
        "ewc.ewc_lambda=2,order0",
        "ewc.ewc_lambda=2,order1",
    ]
    assert all(
        part.config.comparison.orders == 1 and not part.config.comparison.sweep for part in parts
    )
    assert parts[0].config.grafting.density == 0.1
    assert parts[2].config.comparison.strategy_settings == {"ewc": {"ewc_lambda": 2}}
    assert [part.config.stream.tasks for part in parts[:2]] == [["a", "b"], ["b", "a"]]
    assert parts[1].name_row("grafting") == "grafting density=0.1"
    assert parts[1].name_strategy("grafting") == "grafting density=0.1 order1"
    (alone,) = expand_sweep(config(1))
    assert (alone.name, alone.config) == ("", config(1))
    assert alone.name_row("naive") == alone.name_strategy("naive") == "naive"


def test_what_cannot_be_swept_is_refused(tmp_path):
    for sweep, more, said in [
        ({"densty": [0.1]}, {}, "'densty' cannot be swept: did you mean 'grafting.density'"),
        ({"density": []}, {}, "density has no values"),
        ({"modules": [{"mlp": 1}]}, {}, "a sweep takes numbers and names, got {'mlp': 1}"),
        ({"density": [0.1]}, {"bytes_per_task": "10kB"}, "a sweep would change that"),
    ]:
        with pytest.raises(InputError, match=said):
            sweeping(sweep, **more)
    for sweep, more, said in [
        ({"density": [2.0]}, {}, r"sweep of grafting.density=2.0: .* must be in \(0, 1\]"),
        ({"density": [0.01, "1e-2"]}, {}, "the sweep holds density=0.01 twice"),
        ({"density": [0.01]}, {"strategies": "naive"}, "density changes nothing about naive"),
        ({"fine_tuning.lr": [0.1]}, {"strategies": "lora"}, "fine_tuning.lr changes nothing about"),
        ({"ewc.lambda": [0.01]}, {"strategies": "ewc"}, "did you mean 'ewc_lambda'"),
        ({"ewc.ewc_lambda": [1]}, {}, "ewc.ewc_lambda changes nothing about grafting, naive"),
        ({"region_lr": [1]}, {"tune": True}, "both choose grafting.lr of grafting"),
    ]:
        with pytest.raises(InputError, match=said):
            expand_sweep(sweeping(sweep, **more))
    with pytest.raises(InputError, match="cl-graft compare takes them"):
        run(sweeping({"lr": [0.1]}), strategy="naive", seed=0, out=tmp_path)


@pytest.mark.slow
def test_a_sweep_is_one_table_that_can_grow(tmp_path, tiny_config):
    small = {"tasks": ["scope", "topic"], "steps": 4, "shots": 8, "max_test": 20}
    own = {"sweep": {"density": [0.01, 0.1]}, "strategies": ["grafting", "naive"]}
    config = changed(tiny_config, small | own)
    out = tmp_path / "sweep"
    comparison = compare(config, out=out)
    rows = ["grafting density=0.01", "grafting density=0.1", "naive"]
    assert [cell.strategy for cell in comparison.runs] == rows
    one = read_result(out / "density=0.1" / "grafting" / "seed0")
    assert one.config["grafting"]["density"] == 0.1
    alone = compare(expand_sweep(config)[1].config, out=tmp_path / "alone")
    assert alone.runs[0].logit_hashes == one.logit_hashes
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["strategies"]) == rows
    assert summary["sweep"][rows[1]] == {"strategy": "grafting", "values": {"density": 0.1}}
    drawn = draw_sweeps(read_report_data([out]).summary)
    assert [picture.name for picture in drawn] == ["sweep-density"]
    few = summary["strategies"][rows[0]]["bytes_per_task"]["mean"]
    assert few < summary["strategies"][rows[1]]["bytes_per_task"]["mean"]
    dense = [path for path in (out / "cache").iterdir() if path.name.startswith("dense")]
    assert len(dense) == 2  # whatever the density

    steps = []
    wider = changed(config, {"sweep": {"density": [0.01, 0.1, 0.2]}})
    again = compare(wider, out=out, progress=steps.append)
    assert {step.strategy for step in steps if step.phase == "train"} == {"grafting density=0.2"}
    assert [cell.strategy for cell in again.runs] == [*rows[:2], "grafting density=0.2", "naive"]
    assert compare(stored_comparison(out)[0], out=out).runs == again.runs
    with pytest.raises(InputError, match=r"sweep of grafting\.density there"):
        compare(changed(config, {"sweep": {"lr": [0.1]}}), out=out)
    with pytest.raises(InputError, match=r"sweep of grafting\.density there"):
        compare(changed(config, {"sweep": {}}), out=out)


def test_a_sweep_that_cannot_run_leaves_nothing_in_the_way(tmp_path, tiny_config):
    small = {"tasks": ["scope"], "steps": 2, "shots": 8, "max_test": 20}
    own = {"strategies": ["naive"], "sweep": {"max_length": [16, 4096]}}
    config = changed(tiny_config, small | own)
    out = tmp_path / "out"
    with pytest.raises(InputError, match="max_length must be at most"):
        compare(config, out=out)
    config = changed(config, {"sweep": {"max_length": [16, 24]}})
    assert len(compare(config, out=out).runs) == 2
