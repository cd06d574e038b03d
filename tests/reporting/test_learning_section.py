"""Curves of learning: what a run keeps of them, and how a report shows them."""

import re
import shutil
from dataclasses import replace

import pytest

from cl_graft.errors import InputError
from cl_graft.lab.reporting.learning_section import draw_learning, learning_text
from cl_graft.lab.reporting.page import make_report
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.results.learning_curves import (
    CURVES,
    PhaseCurve,
    TaskCurves,
    thin_out,
)


def test_a_run_keeps_the_loss_of_every_step_and_the_dev_scores(compared):
    grafting = CURVES.read(compared / "grafting" / "seed0")
    naive = CURVES.read(compared / "naive" / "seed0")
    assert list(grafting) == list(naive) == ["sentiment", "topic", "urgency"]
    for task, own in grafting.items():
        steps = [1, 2, 3, 4]
        for phase in (own.train, own.dense, naive[task].train):
            assert [step for step, _ in phase.loss] == steps
            assert all(value > 0 for _, value in phase.loss)
        assert [step for step, _ in own.dense.dev] == [4]
        assert naive[task].dense == PhaseCurve()


def test_a_long_curve_becomes_means_over_equal_stretches():
    points = [(step, float(step)) for step in range(1, 101)]
    thin = thin_out(points)
    assert len(thin) == 25
    assert thin[0] == (4, 2.5)
    assert thin[-1] == (100, 98.5)
    assert thin_out(points[:30]) == tuple(points[:30])
    assert thin_out([]) == ()


def test_curves_are_read_as_they_were_written_and_other_files_are_named(tmp_path):
    found = {"a": TaskCurves(PhaseCurve(((1, 0.5),), ((1, 0.25),)), PhaseCurve(((2, 0.1),)))}
    CURVES.write(found, tmp_path)
    assert CURVES.read(tmp_path) == found
    for damaged in ("1", f'{{"train": {{"loss": [[{10**400}, 0.5]]}}}}'):
        (tmp_path / CURVES.name).write_text(f'{{"a": {damaged}}}')
        with pytest.raises(InputError, match=r"curves\.json: not the curves of a run"):
            CURVES.read(tmp_path)


def test_each_line_of_a_figure_tells_its_strategy_phase_step_and_value(compared, report):
    data = read_report_data([compared])
    text = (report / "report.html").read_text()
    for picture in draw_learning(data):
        task = data.summary.tasks[int(picture.name.split("-")[1]) - 1]
        drawn = text.split(f'id="{picture.name}-', 1)[1].split("</svg>")[0]
        place = data.strategies.index("grafting")
        said = re.findall(rf'data-strategy="{place}"><title>([^<]*)</title>', drawn)
        own = data.curves["grafting"][task]
        assert {one.splitlines()[1] for one in said} == {
            f"step 1: loss {own.train.loss[0][1]:.4g}",
            f"step 4: dev {100 * own.train.dev[0][1]:.1f}",
            f"step 1: dense run, loss {own.dense.loss[0][1]:.4g}",
            f"step 4: dense run, dev {100 * own.dense.dev[0][1]:.1f}",
        }


def test_many_strategies_have_figures_of_fewer_tasks_and_the_page_says_so(compared):
    data = read_report_data([compared])
    many = {f"{name} {n}": own for n in range(20) for name, own in data.curves.items()}
    assert "Shown are" not in learning_text(data)
    assert "Shown are the first 2 tasks" in learning_text(replace(data, curves=many))


@pytest.mark.usefixtures("blank_figures")
def test_runs_of_earlier_versions_have_no_such_section(compared, tmp_path):
    run = shutil.copytree(compared / "naive" / "seed0", tmp_path / "naive" / "seed0")
    (run / CURVES.name).unlink()
    made = make_report([run], out=tmp_path / "report")
    assert "Learning each task" not in made.page.read_text()
