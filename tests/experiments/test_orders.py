"""Orders: every order is a comparison of its own, and measures are over all of them."""

import json

import pytest

from cl_graft.errors import InputError
from cl_graft.experiments.compare import compare
from cl_graft.experiments.config import config_from
from cl_graft.experiments.orders import compare_orders, orders_of
from cl_graft.experiments.resume import resume_comparison
from cl_graft.experiments.run import run


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr("cl_graft.experiments.run.draw_end", lambda *_: None)


def config(orders, tasks="a,b,c"):
    return config_from({"tasks": tasks, "orders": orders, "strategies": "naive"})


def test_orders_begin_with_the_given_one_and_are_all_different():
    assert orders_of(config(1)) == [["a", "b", "c"]]
    assert config("3").orders == 3  # as the command line gives it
    every = orders_of(config("all"))
    assert every[0] == ["a", "b", "c"]
    assert len({tuple(order) for order in every}) == 6
    some = orders_of(config(4))
    assert some[0] == ["a", "b", "c"]
    assert len({tuple(order) for order in some}) == 4
    assert orders_of(config(4)) == some
    assert len(orders_of(config(5, "a,b,c,d,e,f,g"))) == 5


def test_orders_that_there_are_not_are_refused(tmp_path):
    with pytest.raises(InputError, match="3 tasks have 6 orders, got orders: 7"):
        orders_of(config(7))
    with pytest.raises(InputError, match="6 tasks have 720 orders: say how many"):
        orders_of(config("all", "a,b,c,d,e,f"))
    with pytest.raises(InputError, match="must be at least 1 or 'all', got 0"):
        config(0)
    with pytest.raises(InputError, match="cl-graft compare takes them"):
        run(config(2), strategy="naive", seed=0, out=tmp_path)
    with pytest.raises(InputError, match="compare_orders makes them"):
        compare(config(2), out=tmp_path)


def test_measures_are_over_all_orders_and_what_is_done_is_not_done_again(tmp_path, tiny_config):
    small = {"tasks": ["sentiment", "topic"], "steps": 4, "shots": 8, "max_test": 20}
    both = {"orders": "all", "strategies": ["naive", "independent"]}
    own = tiny_config.model_copy(update=small | both)
    comparison = compare_orders(own, out=tmp_path)
    assert [cell.tasks for cell in comparison.cells] == 2 * [
        ["sentiment", "topic"],
        ["topic", "sentiment"],
    ]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["orders"] == [["sentiment", "topic"], ["topic", "sentiment"]]
    naive = [cell for cell in comparison.cells if cell.strategy == "naive"]
    row = summary["strategies"]["naive"]
    assert row["average_accuracy"]["n"] == 2
    final = [cell.R[-1][cell.tasks.index("topic")] for cell in naive]
    assert row["final"]["topic"]["mean"] == pytest.approx(sum(final) / 2)
    assert summary["differences"][0]["n"] == 2
    assert "# sentiment, topic in 2 orders" in (tmp_path / "summary.md").read_text()
    dense = [path for path in (tmp_path / "cache").iterdir() if path.name.startswith("dense")]
    assert len(dense) == 2  # of each task one, whatever the order

    steps = []
    again = resume_comparison(tmp_path, progress=steps.append)
    assert {step.phase for step in steps} == {"reused"}
    assert again.cells == comparison.cells
