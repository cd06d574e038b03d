"""Curves of learning: what a run keeps of them, and how a report shows them."""

from dataclasses import replace

from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.task_sections import learning
from cl_graft.lab.results.task_files import CURVES, PhaseCurve


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


def test_many_strategies_have_figures_of_fewer_tasks_and_the_page_says_so(compared):
    data = read_report_data([compared])
    many = {f"{name} {n}": own for n in range(20) for name, own in data.curves.items()}
    assert "Shown are" not in learning(data).text[0]
    section = learning(replace(data, curves=many))
    assert "Shown are the first 2 tasks" in section.text[0]
    assert len(section.pictures) == 2
