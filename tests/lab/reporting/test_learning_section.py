"""Curves of learning: what a run keeps of them, and how a report shows them."""

from dataclasses import replace

import pytest

from cl_graft.errors import InputError
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.task_sections import learning
from cl_graft.lab.results.task_files import (
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


def test_many_strategies_have_figures_of_fewer_tasks_and_the_page_says_so(compared):
    data = read_report_data([compared])
    many = {f"{name} {n}": own for n in range(20) for name, own in data.curves.items()}
    assert "Shown are" not in learning(data).text[0]
    section = learning(replace(data, curves=many))
    assert "Shown are the first 2 tasks" in section.text[0]
    assert len(section.pictures) == 2
