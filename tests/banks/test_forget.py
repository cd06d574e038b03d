"""A bank forgets a task without a trace, or says what stands on it and trains that again."""

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from slow_cases import slow
from tiny_runs import file_hashes, tiny_run

from cl_graft import InputError, load_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.forget import forget
from cl_graft.banks.verify import verify
from cl_graft.errors import BankError
from cl_graft.settings.bank_metadata import read_own_settings
from cl_graft.storage import files
from cl_graft.storage.graft_file import ENTRY_FORMAT

TASKS = ("scope", "topic", "answered")


@pytest.fixture(scope="module")
def learn(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return a function that learns tasks, each stream once, and gives its run's folder."""
    out = tmp_path_factory.mktemp("forget")

    @cache
    def run(tasks: Sequence[str], mode: str, **more: bool) -> Path:
        name = "-".join([mode, *tasks, *more])
        return tiny_run(out / name, tiny_bert, tasks, mode=mode, **more)

    return run


@pytest.fixture
def copied(learn: Any, tmp_path: Path):
    """Return a function that gives a copy of a run of its own."""

    def copy(mode: str, tasks: Sequence[str] = TASKS) -> Path:
        return shutil.copytree(learn(tasks, mode), tmp_path / "out" / "grafting" / "seed0")

    return copy


def test_what_is_no_task_and_a_run_that_goes_on_are_refused(copied, tmp_path):
    for wrong in (True, None, 1.0):
        with pytest.raises(TypeError, match="a task's name or an entry's position"):
            forget(tmp_path, wrong)  # pyright: ignore[reportArgumentType]
    run = copied("prefix", TASKS[:2])
    before = file_hashes(run)
    for position in (2, -1, "2"):
        with pytest.raises(InputError, match="positions are 0 to 1"):
            forget(run, position)
    for position in (1, "1"):
        with pytest.raises(InputError, match="latest is for a task's name"):
            forget(run, position, latest=True)
    with pytest.raises(InputError, match="did you mean 'topic'"):
        forget(run, "topik")
    assert file_hashes(run) == before
    (run / "results.json").unlink()
    with pytest.raises(InputError, match=r"is not finished; go on with it .*--resume"):
        forget(run, "topic")


def test_the_latest_entry_of_a_task_goes_and_the_one_before_answers_again(copied):
    run = copied("prefix", TASKS[:2])
    before = file_hashes(run / "bank")
    wanted = {"dry_run": True, "latest": True}
    for calls in ({"latest": True}, {"position": 2}, {"position": "2"}):
        add_task(run, "scope", sets=["fine_tuning.steps=3"])
        grown = file_hashes(run / "bank")
        assert forget(run, "scope", **wanted).stay == (0,)
        assert file_hashes(run / "bank") == grown
        task = calls.get("position", "scope")
        report = forget(run, task, latest="latest" in calls)
        assert (report.task, report.positions, report.stay) == ("scope", (2,), (0,))
        assert (report.exact, report.done) == (True, True)
        assert file_hashes(run / "bank") == before
    assert verify(run).ok
    report = forget(run, 0, dry_run=True)
    assert [later.task for later in report.dependents] == ["topic"]


@pytest.mark.slow
def test_an_entry_is_trained_again_on_the_version_of_a_task_that_stays(copied, learn):
    run = copied("prefix", TASKS[:1])
    add_task(run, "scope", sets=["fine_tuning.steps=3"])
    add_task(run, "topic")
    report = forget(run, 1, retrain=True)
    assert (report.done, [later.task for later in report.dependents]) == (True, ["topic"])
    assert [entry.task for entry in load_bank(run / "bank").entries] == ["scope", "topic"]
    assert file_hashes(run / "bank") == file_hashes(learn(TASKS[:2], "prefix") / "bank")


@pytest.mark.parametrize("task", ["topic", *slow("scope", "answered")])
def test_where_entries_stand_alone_the_bank_becomes_the_one_without_the_task(copied, learn, task):
    run = copied("isolated")
    report = forget(run, task)
    assert (report.exact, report.done, report.dependents) == (True, True, ())
    never = learn(tuple(name for name in TASKS if name != task), "isolated")
    assert file_hashes(run / "bank") == file_hashes(never / "bank")
    assert verify(run).ok


def test_the_last_task_of_a_prefix_goes_without_a_trace_and_no_model_is_loaded(
    copied, learn, monkeypatch
):
    run = copied("prefix")
    monkeypatch.setattr("cl_graft.banks.forget.open_bank", None)
    assert forget(run / "bank", "answered").exact
    assert file_hashes(run / "bank") == file_hashes(learn(TASKS[:2], "prefix") / "bank")
    assert verify(run).ok


def test_what_stands_on_a_task_is_told_and_nothing_is_changed(copied):
    run = copied("prefix")
    before = file_hashes(run)
    report = forget(run, "scope")
    assert (report.exact, report.done) == (False, False)
    assert [(d.position, d.task) for d in report.dependents] == [(1, "topic"), (2, "answered")]
    assert all(one.rows == 8 and (one.difference or 0) > 0 for one in report.dependents)
    assert file_hashes(run) == before


def test_what_stands_on_a_task_is_trained_again_to_the_bits_of_a_bank_without_it(copied, learn):
    run = copied("prefix")
    report = forget(run, "topic", retrain=True)
    assert (report.exact, report.done) == (True, True)
    assert report.labels == {2: 1}
    assert file_hashes(run / "bank") == file_hashes(learn(TASKS[::2], "prefix") / "bank")
    (again,) = report.dependents
    assert again.task == "answered"
    assert again.retrained is not None
    assert verify(run).ok


@pytest.mark.slow
def test_a_task_that_was_added_with_its_own_settings_is_trained_again_with_them(copied, learn):
    own = ["grafting.density=0.05", "grafting.localizer=magnitude", "fine_tuning.steps=3"]
    run = copied("prefix", TASKS[:2])
    added = add_task(run, "entailment", sets=own)
    report = forget(run, "topic", retrain=True)
    assert (report.exact, report.done) == (True, True)
    entry = load_bank(run / "bank").entries[-1]
    assert (entry.size, entry.metadata["localizer"]) == (added.region_size, "magnitude")
    assert entry.metadata["settings"]["fine_tuning"] == {"steps": 3}
    never = shutil.copytree(learn(TASKS[:1], "prefix"), run.parent / "seed1")
    add_task(never, "entailment", sets=own)
    assert file_hashes(run / "bank") == file_hashes(never / "bank")
    assert not add_task(never, "entailment", sets=own).new
    ignored = {"model": {"dtype": "bfloat16"}, "fine_tuning": {"steps": 3}}  # by an older `add`
    assert read_own_settings({"settings": ignored}) == {"fine_tuning": {"steps": 3}}


def test_what_was_learned_on_a_cpu_is_trained_again_there_beside_a_gpu(copied, learn, monkeypatch):
    run = copied("prefix")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert forget(run, "topic", retrain=True).done
    monkeypatch.undo()
    assert file_hashes(run / "bank") == file_hashes(learn(TASKS[::2], "prefix") / "bank")


def test_a_dry_run_says_the_same_and_changes_nothing(copied):
    run = copied("prefix")
    before = file_hashes(run)
    report = forget(run, "topic", retrain=True, dry_run=True)
    assert (report.exact, report.done) == (True, False)
    assert report.dependents[0].retrained is None
    assert forget(run, "answered", dry_run=True).exact
    assert file_hashes(run) == before


def test_all_entries_of_a_task_go_and_traces_beside_the_bank_are_named(copied, learn):
    run = copied("isolated", TASKS[:2])
    add_task(run, "scope", sets=["stream.data_seed=5"])
    (run.parent.parent / "cache").mkdir()
    report = forget(run, "scope")
    assert report.positions == (0, 2)
    assert report.traces == (run, run.parent.parent / "cache")
    assert file_hashes(run / "bank") == file_hashes(learn(TASKS[1:2], "isolated") / "bank")
    forget(run, "topic")
    assert len(load_bank(run / "bank")) == 0
    added = add_task(run / "bank", "topic")
    assert (added.position, added.label) == (0, 0)


def test_what_a_killed_call_left_of_a_task_is_deleted_by_the_next(copied, learn, monkeypatch):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    run = copied("isolated")
    with monkeypatch.context() as patched:
        patched.setattr("cl_graft.storage.bank_folder.delete_unlisted", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(run, "answered")
    before = file_hashes(run / "bank")
    with pytest.raises(InputError, match="no task 'answered' in the bank"):
        forget(run, "answered", dry_run=True)
    assert file_hashes(run / "bank") == before
    with pytest.raises(InputError, match="no task 'answered' in the bank"):
        forget(run, "answered")
    assert file_hashes(run / "bank") == file_hashes(learn(TASKS[:2], "isolated") / "bank")


@pytest.mark.parametrize(("task", "version"), [("answered", 0), ("topic", 0), ("topic", 2)])
def test_an_entry_that_cannot_be_read_is_taken_out_and_what_stands_on_it_is_trained_again(
    copied, learn, monkeypatch, task, version
):
    run = copied("prefix")
    (other,) = (run / "bank" / "entries").glob(f"*-{task}.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(files, "VERSION", version)
        other.write_bytes(files.pack({}, {}, format=ENTRY_FORMAT) if version else b"gone")
    said = "another version" if version else rf"cl-graft forget .*bank {TASKS.index(task)}$"
    with pytest.raises(BankError, match=said):
        load_bank(run / "bank")
    assert forget(run, task, retrain=task != "answered").exact
    left = tuple(name for name in TASKS if name != task)
    assert file_hashes(run / "bank") == file_hashes(learn(left, "prefix") / "bank")


def test_entries_that_the_index_of_another_bank_does_not_list_are_left_alone(copied, learn):
    run = copied("isolated")
    shutil.copy(learn(TASKS[:2], "prefix") / "bank" / "bank.json", run / "bank")
    before = file_hashes(run)
    with pytest.raises(BankError, match=r"bank\.json is probably that of another bank"):
        forget(run / "bank", "scope")
    assert file_hashes(run) == before


def test_other_data_than_an_entry_was_trained_on_are_refused(tiny_bert, tmp_path):
    rows = [f"{['wet', 'fine'][n % 2]} day {n},{['rain', 'sun'][n % 2]}" for n in range(60)]
    data = tmp_path / "days.csv"
    data.write_text("\n".join(["text,label", *rows]) + "\n")
    run = tiny_run(tmp_path / "out", tiny_bert, ["scope", str(data)])
    assert forget(run, "scope", retrain=True, dry_run=True).dependents[0].rows
    data.write_text("\n".join(["text,label", *rows[2:], "dry day,sun", "wet day,rain"]) + "\n")
    before = file_hashes(run / "bank")
    with pytest.raises(InputError, match="data found for 'days' are not those"):
        forget(run, "scope", retrain=True)
    assert file_hashes(run / "bank") == before


@pytest.mark.slow
def test_a_task_that_takes_its_rows_from_a_shared_file_is_trained_again(tiny_bert, tmp_path):
    rows = [
        f"{word} of {site} {n},{label},{site}\n"
        for n in range(24)
        for site in ("north", "south", "west")
        for word, label in (("bill", "money"), ("fault", "help"))
    ]
    (tmp_path / "calls.csv").write_text("text,label,site\n" + "".join(rows))
    sites = ("north", "south", "west")
    own = {site: {"rows_from": "calls", "where": {"site": site}} for site in sites}
    own["west"]["builds_on"] = ["north", "south"]
    run = tiny_run(tmp_path / "all", tiny_bert, sites, data=str(tmp_path), task_settings=own)
    assert forget(run, "north", retrain=True).done
    del own["north"]
    own["west"]["builds_on"] = ["south"]
    never = tiny_run(
        tmp_path / "never", tiny_bert, sites[1:], data=str(tmp_path), task_settings=own
    )
    assert file_hashes(run / "bank") == file_hashes(never / "bank")
