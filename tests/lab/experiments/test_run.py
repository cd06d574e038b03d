"""Runs: what they leave, that seeds decide everything, and what is kept when they fail."""

from collections import Counter

import pytest
from configs import changed, config_with
from kind_data import KINDS_OF_TASKS, write_kinds
from slow_cases import slow

from cl_graft.errors import InputError
from cl_graft.kinds.kind import KINDS
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.lab.results.run_results import read_result
from cl_graft.settings.bank_metadata import restore_config
from cl_graft.settings.schedule_of_task import list_schedules, make_schedule
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage import load_bank
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.training.fine_tuning_settings import FineTuning


@pytest.fixture
def two_tasks(tiny_config):
    return changed(tiny_config, {"tasks": ["scope", "topic"]})


def test_the_bank_of_a_run_holds_what_going_on_needs(comparison, tiny_config):
    bank = load_bank(comparison.out / "grafting" / "seed0" / "bank")
    assert [entry.task for entry in bank.entries] == tiny_config.stream.tasks
    for entry in bank.entries:
        assert entry.metadata["max_length"] == 24
        assert entry.metadata["pair"] is False
        assert len(entry.metadata["label_names"]) == entry.head["bias"].numel()
    again = restore_config(bank.base, tasks=tiny_config.stream.tasks)
    ignored = {"comparison.strategies": ["grafting"], "model.device": "cpu"}
    assert again.with_values(ignored) == tiny_config.with_values(ignored)


def test_a_seed_gives_the_same_bits_with_and_without_the_cache(tmp_path, comparison, tiny_config):
    (before,) = [cell for cell in comparison.runs if cell.strategy == "grafting"]
    cache = DirectoryCache(comparison.out / "cache")
    again = run(tiny_config, strategy="grafting", seed=0, out=tmp_path, cache=cache)
    assert cache.hits["dense"] == cache.hits["ranking"] == 3
    assert not cache.misses
    assert again.logit_hashes == before.logit_hashes
    assert again.coordinates == before.coordinates


def test_a_run_without_a_dense_run_forgets_nothing_and_says_what_it_cost(tmp_path, two_tasks):
    config = changed(two_tasks, {"localizer": "base_gradient"})
    steps: list = []
    result = run(config, strategy="grafting", seed=0, out=tmp_path, progress=steps.append)
    assert {step.phase for step in steps} == {"note", "localize", "train", "evaluate"}
    assert result.backward_transfer == 0.0
    (task, _) = load_tasks(config.stream, seed=0)
    assert result.passes["scope"] == {
        "localize": {"forward_backward": 2 * 16, "forward": 0},
        "region": {"forward_backward": 8 * 8, "forward": 2 * len(task.dev)},
    }
    assert read_result(run_folder(tmp_path, "grafting", 0)) == result
    bank = load_bank(run_folder(tmp_path, "grafting", 0) / "bank")
    for entry in bank.entries:
        assert entry.metadata["dense_dev"] is None
        assert entry.metadata["graft_dev"] is None
        assert entry.metadata["trained_dev"] is not None


def test_a_dense_run_may_be_shorter_than_the_training_of_the_region(tmp_path, two_tasks):
    config = changed(two_tasks, {"localizer": "movement", "dense_share": 0.375})
    passes = run(config, strategy="grafting", seed=0, out=tmp_path).passes["scope"]
    assert passes["dense"] == {"forward_backward": 3 * 8, "forward": 0}
    assert passes["region"]["forward_backward"] == 8 * 8


def test_another_seed_gives_other_answers(tmp_path, comparison, two_tasks):
    other = run(two_tasks, strategy="grafting", seed=1, out=tmp_path)
    (before,) = [cell for cell in comparison.runs if cell.strategy == "grafting"]
    assert other.data_fingerprints["scope"] != before.data_fingerprints["scope"]
    assert other.logit_hashes["scope"] != before.logit_hashes["scope"]
    assert other.backward_transfer == 0.0


def test_the_same_run_again_is_read_and_changes_nothing(comparison, tiny_config):
    folder = run_folder(comparison.out, "naive", 0)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    seen = []
    again = run(tiny_config, strategy="naive", seed=0, out=comparison.out, progress=seen.append)
    assert again == read_result(folder)
    assert [step.phase for step in seen] == ["reused"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_that_fails_keeps_what_it_learned(tmp_path, two_tasks):
    def stumble(step):
        if step.task == "topic" and step.phase == "train":
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="the power is gone"):
        run(two_tasks, strategy="grafting", seed=0, out=tmp_path, progress=stumble)
    folder = run_folder(tmp_path, "grafting", 0)
    assert [entry.task for entry in load_bank(folder / "bank").entries] == ["scope"]
    left = read_result(folder)
    assert not left.complete
    assert left.R[0][0] is not None


@pytest.mark.parametrize("strategy", ["independent", *slow("grafting")])
def test_prompts_are_scored_before_they_are_learned(tmp_path, tiny_gpt2, two_tasks, strategy):
    config = changed(
        two_tasks, {"model": str(tiny_gpt2), "family": "causal_lm", "max_length": 48, "steps": 4}
    )
    result = run(config, strategy=strategy, seed=0, out=tmp_path)
    if strategy == "grafting":
        assert all(value is not None for row in result.R for value in row)
        assert all(value is not None for value in result.baseline)
        assert result.forward_transfer is not None
    else:
        assert result.R[0][1] is None
        assert result.forward_transfer is None
    assert result.backward_transfer == 0.0
    assert all(h["learned"] == h["end"] for h in result.logit_hashes.values())


@pytest.mark.parametrize("when", ["once", "never"])
def test_tasks_that_are_not_learned_are_evaluated_when_the_config_says(
    tmp_path, tiny_gpt2, two_tasks, when
):
    prompts = {"model": str(tiny_gpt2), "family": "causal_lm", "max_length": 48, "steps": 2}
    config = changed(two_tasks, {**prompts, "evaluate_ahead": when})
    result = run(config, strategy="naive", seed=0, out=tmp_path)
    assert result.R[0][1] is None
    assert result.R[1][0] is not None
    assert result.forward_transfer is None
    assert result.backward_transfer is not None
    assert [score is not None for score in result.baseline] == [when == "once"] * 2


def test_a_grid_is_decided_on_dev_and_costs_its_choice_nothing_more(tmp_path, two_tasks):
    config = changed(two_tasks, {"tasks": ["scope"], "grid": True, "steps": 2})
    steps: list = []
    result = run(config, strategy="independent", seed=0, out=tmp_path, progress=steps.append)
    assert Counter(step.phase for step in steps)["choose"] == 9 * 2
    assert "dense" not in Counter(step.phase for step in steps)
    (task,) = load_tasks(config.stream, seed=0)
    assert result.schedules["scope"] in [
        {"steps": s.steps, "batch_size": s.batch_size, "lr": s.lr}
        for s in list_schedules(config, task)
    ]


@pytest.mark.parametrize(
    ("shots", "steps"),
    [(4, 16 * 5 * 4), (600, 16 * 5 * 512)],  # 16·n·k, and k counts up to 512 (App. A.2)
)
def test_the_paper_preset_has_the_papers_steps(shots, steps):
    config = config_with({"tasks": "topic", "preset": "paper", "shots": shots})
    (task,) = load_tasks(config.stream, seed=0)
    assert make_schedule(config, task).steps == steps


def test_the_regime_of_a_dense_run_is_that_of_the_config():
    regime = {"optimizer": "adamw", "l1": 1e-3, "mixout": 0.2}
    text = {"decay": "all", "clip": 0}
    config = config_with({"tasks": "topic", "grid": True, "clip": 2.0, **regime})
    (task,) = load_tasks(config.stream, seed=0)
    schedules = list_schedules(config, task)
    assert {(s.optimizer, s.l1, s.mixout, s.clip) for s in schedules} == {("adamw", 1e-3, 0.2, 2.0)}
    assert {s.lr for s in schedules} == {1e-5, 2e-5, 5e-5}
    as_written = make_schedule(config_with({"tasks": "topic", **text}), task)
    assert (as_written.optimizer, as_written.decay, as_written.clip) == ("sgd", "all", 0)


def test_dense_runs_take_the_rate_of_a_tasks_kind_where_none_is_given(tmp_path):
    names = [name for name, _ in KINDS_OF_TASKS.values()]
    config = config_with({"tasks": names, "data": str(write_kinds(tmp_path))})
    tasks = load_tasks(config.stream, seed=0)
    rates = {task.kind: make_schedule(config, task).lr for task in tasks}
    assert rates == {kind: KINDS.find(kind).dense_lr for kind in KINDS_OF_TASKS}
    assert rates["tagging"] > rates["classification"] == FineTuning().lr
    given = config.with_values({"fine_tuning.lr": 0.1})
    assert {make_schedule(given, task).lr for task in tasks} == {0.1}


def test_two_tasks_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        rows = [f"text {i},{'yes' if i % 2 else 'no'}" for i in range(80)]
        (tmp_path / folder / "mail.csv").write_text("\n".join(["text,label", *rows]))
    paths = [str(tmp_path / folder / "mail.csv") for folder in ("a", "b")]
    config = config_with({"tasks": paths, "shots": 4})
    with pytest.raises(InputError, match="'mail'"):
        load_tasks(config.stream, seed=0)


def test_dev_rows_are_limited_and_train_and_test_stay(two_tasks):
    all_rows, few = (
        load_tasks(changed(two_tasks, {"max_dev": most}).stream, seed=0)[1] for most in (None, 10)
    )
    assert len(few.dev) == 10
    assert set(few.dev) < set(all_rows.dev)
    assert (few.train, few.test) == (all_rows.train, all_rows.test)


@pytest.mark.parametrize("seed", ["0", -1, True, 0.0])
def test_a_seed_that_is_none_is_answered_in_a_sentence(tiny_config, tmp_path, seed):
    with pytest.raises(InputError, match="a seed must be a whole number of at least 0"):
        run(tiny_config, strategy="naive", seed=seed, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
