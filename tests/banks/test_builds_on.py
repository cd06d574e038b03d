"""A stream whose tasks build on some of the earlier ones: the same bits, forgotten one by one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import config_with
from slow_cases import slow
from tiny_runs import QUICK, cl_graft, file_hashes, tiny_run

from cl_graft import InputError, load_bank, open_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.forget import forget
from cl_graft.banks.inspect import inspect_bank
from cl_graft.banks.verify import verify

TASKS = ("scope", "topic", "answered")
SOME = {"topic": [], "answered": ["scope"]}


@pytest.fixture(scope="module")
def learn(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return a function that learns a stream whose tasks build on given ones, each once."""
    out = tmp_path_factory.mktemp("some")
    done: dict[str, Path] = {}

    def run(under: dict[str, list[str]], tasks: Sequence[str] = TASKS, **more: Any) -> Path:
        name = f"{len(done)}"
        key = repr((under, tasks, more))
        if key not in done:
            own = {task: {"builds_on": names} for task, names in under.items() if task in tasks}
            settings = {"task_settings": own} if own else {}
            done[key] = tiny_run(out / name, tiny_bert, tasks, **settings, **more)
        return done[key]

    return run


def test_a_task_builds_on_those_that_its_settings_name(learn):
    bank = load_bank(learn(SOME) / "bank")
    assert [bank.builds_on(place) for place in range(3)] == [(), (), (0,)]
    shown = inspect_bank(learn(SOME))
    assert [entry.builds_on for entry in shown.entries] == [None, (), (0,)]
    report = verify(learn(SOME))
    assert report.ok
    assert {entry.weights for entry in report.entries} == {"same bits"}


@pytest.mark.parametrize(("under", "warned"), [("scope", False), ("topic", True)])
def test_tasks_that_build_on_each_other_are_warned_of_without_room(learn, caplog, under, warned):
    learn({"answered": [under], **({"topic": ["scope"]} if warned else {"topic": []})}, density=0.4)
    assert ("of 3 tasks in one model 2 get a whole region" in caplog.text) == warned


@pytest.mark.slow
def test_a_task_that_builds_on_none_has_the_bits_of_isolated_mode(learn):
    some, isolated = load_bank(learn(SOME) / "bank"), load_bank(learn({}, mode="isolated") / "bank")
    ours, alone = some.entries[1], isolated.entries[1]
    assert ours.owned.same_bits(alone.owned)
    assert ours.weights_sha256 == alone.weights_sha256
    assert all(torch.equal(ours.head[name], alone.head[name]) for name in ours.head)


def test_a_task_that_builds_on_one_has_the_bits_of_a_stream_of_these_two(learn):
    some, two = load_bank(learn(SOME) / "bank"), load_bank(learn({}, TASKS[::2]) / "bank")
    assert some.entries[2].owned.same_bits(two.entries[1].owned)
    assert some.entries[2].weights_sha256 == two.entries[1].weights_sha256


@pytest.mark.slow
def test_another_process_answers_in_any_order_with_the_bits_of_this_one(learn):
    run = learn(SOME)
    assert cl_graft("verify", run).code == 0
    opened = open_bank(run)
    rows = {place: e.recorded_batch for place, e in enumerate(opened.bank.entries)}
    for place in (2, 0, 1, 2, 1, 0, 2):
        assert torch.equal(opened.logits(rows[place].inputs, place), rows[place].logits)


def test_texts_of_several_tasks_are_answered_in_one_batch(learn):
    opened = open_bank(learn(SOME))
    asked = [("a fine film", "scope"), (("one", "two"), "answered"), ("the match", "topic")]
    together = opened.predict(asked * 2)
    for (text, task), answer in zip(asked * 2, together, strict=True):
        alone = opened.predict(text, task=task)
        assert answer.logits == pytest.approx(alone.logits, abs=1e-4)


@pytest.mark.parametrize("task", ["topic", *slow("answered")])
def test_a_task_on_which_none_builds_goes_without_a_trace(learn, tmp_path, monkeypatch, task):
    run = shutil.copytree(learn(SOME), tmp_path / "out" / "grafting" / "seed0")
    monkeypatch.setattr("cl_graft.banks.forget.open_bank", None)
    report = forget(run, task)
    assert (report.exact, report.done, report.dependents) == (True, True, ())
    never = learn(SOME, tuple(name for name in TASKS if name != task))
    assert file_hashes(run / "bank") == file_hashes(never / "bank")
    assert verify(run).ok


def test_those_that_build_on_a_forgotten_task_are_trained_again_and_others_stay(learn, tmp_path):
    run = shutil.copytree(learn(SOME), tmp_path / "out" / "grafting" / "seed0")
    before = file_hashes(run)
    told = forget(run, "scope")
    assert (told.done, [one.task for one in told.dependents]) == (False, ["answered"])
    assert file_hashes(run) == before
    report = forget(run, "scope", retrain=True)
    assert (report.exact, report.done) == (True, True)
    never = learn({"topic": [], "answered": []}, TASKS[1:])
    assert file_hashes(run / "bank") == file_hashes(never / "bank")
    assert verify(run).ok


def test_a_task_is_added_on_those_that_are_named_and_once(learn, tmp_path):
    run = shutil.copytree(learn({}, TASKS[:2]), tmp_path / "run")
    sets = ["stream.task_settings.answered.builds_on=[topic]"]
    assert add_task(run, "answered", sets=sets).new
    assert load_bank(run / "bank").builds_on(2) == (0, 1)  # topic was learned on scope
    assert not add_task(run, "answered", columns={"builds_on": ["topic"]}).new
    assert add_task(run, "answered", columns={"builds_on": []}).new
    assert load_bank(run / "bank").builds_on(3) == ()
    assert verify(run).ok
    with pytest.raises(InputError, match="no task 'topics' in the bank; did you mean 'topic'"):
        add_task(run, "answered", columns={"builds_on": ["topics"]})


@pytest.mark.parametrize(
    ("task", "names", "fault"),
    [
        ("topic", ["scop"], "no task 'scop' in the stream; did you mean 'scope'"),
        ("topic", ["topic"], "'topic' cannot build on itself"),
        ("topic", ["answered"], "'answered' comes later in the stream than 'topic'"),
    ],
)
def test_what_no_task_can_build_on_is_refused_before_anything_is_computed(task, names, fault):
    own = {task: {"builds_on": names}}
    with pytest.raises(InputError, match=rf"task_settings\.{task}\.builds_on: {fault}"):
        config_with({**QUICK, "tasks": list(TASKS), "task_settings": own})


def test_in_another_order_a_task_builds_on_those_that_come_before_it_there():
    own = {task: {"builds_on": names} for task, names in SOME.items()}
    stream = config_with({**QUICK, "tasks": list(TASKS), "task_settings": own}).stream
    turned = stream.in_order(list(reversed(TASKS)))
    assert turned["task_settings"]["answered"].builds_on == []
    assert stream.in_order(list(TASKS))["task_settings"] == stream.task_settings


def test_an_added_task_builds_on_a_list_of_names(learn):
    for names in ("{a: 1}", "[[topic]]", "5"):
        with pytest.raises(InputError, match="builds_on: expected a list of names of tasks, got"):
            sets = [f"stream.task_settings.entailment.builds_on={names}"]
            add_task(learn({}), "entailment", sets=sets)
    for part in ("stream=null", "stream.task_settings=null"):
        with pytest.raises(InputError, match=r"stream\.task"):
            add_task(learn({}), "entailment", sets=[part])


@pytest.mark.slow
def test_an_added_task_is_trained_again_on_those_that_it_was_to_build_on(learn, tmp_path):
    run = shutil.copytree(learn(SOME), tmp_path / "out" / "grafting" / "seed0")
    add_task(run, "entailment", columns={"builds_on": ["scope"]})
    assert load_bank(run / "bank").builds_on(3) == (0,)
    assert forget(run, "scope", retrain=True).exact
    assert load_bank(run / "bank").builds_on(2) == ()


@pytest.mark.slow
def test_one_task_after_the_other_is_forgotten_of_those_that_a_task_builds_on(learn, tmp_path):
    both = {"topic": [], "answered": ["scope", "topic"]}
    run = shutil.copytree(learn(both), tmp_path / "out" / "grafting" / "seed0")
    assert forget(run, "scope", retrain=True).exact
    assert forget(run, "topic", retrain=True).exact
    never = learn({"answered": []}, TASKS[2:])
    assert file_hashes(run / "bank") == file_hashes(never / "bank")
