"""A run that is interrupted anywhere goes on and ends on the bits of one that never was."""

import logging
import os
import shutil
import signal

import pytest
from configs import changed, config_with
from interrupted import KILLED_WRITER, Trip, interrupt, outcome_of, resume_run, tripping
from slow_cases import slow
from tiny_runs import file_hashes
from warm_processes import run_warm

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.folders import (
    curves_folder,
    find_run,
    resume_command,
    run_folder,
    stored_comparison,
)
from cl_graft.lab.experiments.run import run
from cl_graft.runtime.signals import Stop, Stopped, stoppable
from cl_graft.settings.run_files import CHECKPOINTS
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage import OWNER
from cl_graft.strategies.registry import STRATEGIES

CHOICES = {
    "grafting": {"localizer": "learned_mask"},  # which takes gradients
    "naive": {},
    "independent": {"fine_tuning.lr_decay": "linear", "fine_tuning.warm_up": 0.3},
    "cumulative": {},
    "joint": {},
    "lora": {"fine_tuning.lr_decay": "cosine", "fine_tuning.warm_up": 0.3},
    "grafting_by_discriminant": {},
    "merging_by_dare": {},
    "ewc": {},
    "no looks": {"evaluations": 0, "mode": "isolated"},
    "by AdamW": {"grafting.optimizer": "adamw"},
    "no dense run": {"localizer": "base_gradient"},
    "grid": {"tasks": ["scope"], "grid": True, "steps": 3},
    "fp16": {"precision": "fp16", "micro_batch": 4, "localizer": "learned_mask"},
    "prompts": {"family": "causal_lm", "max_length": 48, "steps": 3, "localizer": "movement"},
}


@pytest.fixture(scope="module")
def base(tiny_bert):
    return {
        "tasks": ["scope", "topic"],
        "model": str(tiny_bert),
        "shots": 16,
        "max_length": 24,
        "max_test": 24,
        # 32 rows of scope are 4 batches: step 4 is the last of an epoch, and so is step 8.
        "steps": 8,
        "evaluations": 2,
        "density": 0.01,
        "mask_steps": 4,
        "mask_batch": 16,
        "device": "cpu",
    }


@pytest.fixture(scope="module")
def undisturbed(base, tiny_gpt2, tmp_path_factory):
    """Outcome and config of a choice, run once without an interruption."""
    known = {}

    def learn(choice):
        if choice not in known:
            model = {"model": str(tiny_gpt2)} if choice == "prompts" else {}
            config = config_with({**base, **model, **CHOICES[choice]})
            strategy = choice if choice in STRATEGIES else "grafting"
            out = tmp_path_factory.mktemp("undisturbed")
            run(config, strategy=strategy, seed=0, out=out)
            known[choice] = outcome_of(run_folder(out, strategy, 0)), config, strategy
        return known[choice]

    return learn


def both(first, second):
    def progress(step):
        first(step)
        second(step)

    return progress


@pytest.fixture
def interrupted(tmp_path, undisturbed):
    """Interrupt a choice at a step; return its run's folder and what it leaves undisturbed."""

    def begin(choice, *place, **settings):
        expected, config, strategy = undisturbed(choice)
        folder = interrupt(changed(config, settings), strategy, tmp_path, tripping(*place))
        return folder, expected

    return begin


PLACES = [("grafting", "train", 4, "scope")]
"""Tests below interrupt a dense run and an evaluation."""

MORE_PLACES = [
    ("naive", "train", 4, "scope"),
    ("grid", "choose", 2, "scope"),
    ("grafting", "dense", 8, "topic"),
    ("grafting", "localize", 4, "scope"),
    ("by AdamW", "train", 5, "topic"),
    ("lora", "train", 5, "topic"),
    ("independent", "dense", 5, "topic"),
    ("cumulative", "train", 12, "topic"),
    ("joint", "train", 12, "scope"),
    ("grafting_by_discriminant", "train", 4, "topic"),
    ("merging_by_dare", "dense", 4, "topic"),
    ("no looks", "train", 6, "topic"),
    ("no dense run", "train", 3, "scope"),
    ("grafting", "train", 8, "topic"),
    ("naive", "evaluate", 2, "topic"),
    ("independent", "evaluate", 1, "topic"),
    ("fp16", "train", 5, "topic"),
    ("prompts", "train", 2, "topic"),
]


def test_a_run_that_goes_on_gives_back_its_banks_lock_of_a_killed_writer(interrupted):
    # Killed between the bank's index and the end of the write, when all entries are there.
    folder, expected = interrupted("grafting", "evaluate", 2, "topic")
    run_warm(["-c", KILLED_WRITER, str(folder / "bank")], env=os.environ)
    assert (folder / "bank" / OWNER).exists()
    resume_run(folder)
    assert outcome_of(folder) == expected


@pytest.mark.parametrize(("choice", "phase", "number", "task"), [*PLACES, *slow(*MORE_PLACES)])
def test_a_run_interrupted_in_any_phase_ends_on_the_same_bits(
    interrupted, choice, phase, number, task
):
    folder, expected = interrupted(choice, phase, number, task, checkpoint_steps=1)
    seen = []
    result = resume_run(folder, progress=seen.append)
    assert outcome_of(folder) == expected
    assert result.processes == 2
    same = [(step.phase, step.step) for step in seen if step.task == task and step.phase == phase]
    if phase in ("train", "dense"):
        # No step is done twice but the one that was interrupted.
        assert (phase, number - 1) not in same


SOMETIMES, NEVER = {"checkpoint_steps": 3}, {"checkpoint_seconds": None}


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        (SOMETIMES, "naive"),
        *slow((NEVER, "naive"), (SOMETIMES, "grafting"), (NEVER, "independent")),
    ],
)
def test_steps_since_the_last_checkpoint_are_done_again(tmp_path, interrupted, strategy, settings):
    phase = "dense" if strategy == "independent" else "train"
    folder, expected = interrupted(strategy, phase, 6, "topic", **settings)
    resume_run(tmp_path)
    assert outcome_of(folder) == expected


@pytest.mark.slow
def test_a_run_can_be_interrupted_again_and_again(interrupted):
    places = [("dense", 7), ("localize", 3), ("train", 3), ("train", 6), ("evaluate", 1)]
    folder, expected = interrupted("grafting", "dense", 3, checkpoint_steps=2)
    for task in ("scope", "topic"):
        for phase, number in places:
            with pytest.raises(Trip):
                resume_run(folder, progress=tripping(phase, number, task))
    result = resume_run(folder)
    assert outcome_of(folder) == expected
    assert result.processes == 12
    assert "- processes: 12, as the run was interrupted" in (folder / "summary.md").read_text()


@pytest.mark.parametrize("kind", ["loop", *slow("run", "dense")])
def test_a_damaged_checkpoint_costs_time_and_no_bits(interrupted, caplog, kind):
    phase = "dense" if kind == "dense" else "train"
    folder, expected = interrupted("grafting", phase, 6, "topic", checkpoint_steps=1)
    path = folder / CHECKPOINTS / f"{kind}.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with caplog.at_level(logging.WARNING):
        resume_run(folder)
    assert "cut short" in caplog.text
    assert outcome_of(folder) == expected


def test_a_checkpoint_holds_no_frozen_weights(interrupted):
    lora, naive = (interrupted(n, "train", 6, "topic", **SOMETIMES)[0] for n in ("lora", "naive"))
    sizes = [(one / CHECKPOINTS / "loop.safetensors").stat().st_size for one in (lora, naive)]
    assert sizes[0] < sizes[1] / 2


@pytest.mark.slow
def test_a_strategy_that_cannot_be_taken_up_begins_anew_and_ends_on_the_same_bits(interrupted):
    folder, expected = interrupted("ewc", "train", 5, "topic", checkpoint_steps=1)
    resume_run(folder)
    assert outcome_of(folder) == expected


@pytest.mark.slow
def test_a_lost_cache_costs_time_and_no_bits(tmp_path, interrupted):
    folder, expected = interrupted("grafting", "train", 6, "topic", checkpoint_steps=1)
    shutil.rmtree(tmp_path / "cache")
    (folder / CHECKPOINTS / "dense.safetensors").unlink()
    with pytest.raises(Trip):
        resume_run(folder, progress=tripping("dense", 6, "topic"))
    resume_run(folder)
    assert outcome_of(folder) == expected


def test_a_folder_alone_cannot_make_the_code_of_a_checkpoint_run(tmp_path, undisturbed):
    _, config, strategy = undisturbed("naive")
    config = changed(config, {"trust_remote_code": True})
    folder = interrupt(config, strategy, tmp_path, tripping("train", 6, "topic"))
    with pytest.raises(InputError, match="wants to run Python code"):
        resume_run(folder)
    assert resume_run(folder, trust_remote_code=True).complete
    assert resume_command("run", folder, config).endswith(" --trust-remote-code")


def test_what_is_left_of_killed_writes_is_swept_away_and_a_cut_log_is_mended(interrupted):
    folder, expected = interrupted("naive", "train", 6, "topic", checkpoint_steps=1)
    for name in (".results.json.0123abcd.tmp", "checkpoints/.run.safetensors.0123abcd.tmp"):
        (folder / name).write_bytes(b"half")
    (log,) = curves_folder(folder).iterdir()
    with log.open("ab") as file:
        file.write(b"\x20\0\0\0half a record")
    resume_run(folder)
    assert outcome_of(folder) == expected


@pytest.mark.parametrize("name", ["checkpoints", *slow("tensorboard", "curves of all runs")])
def test_a_link_in_the_place_of_a_folder_is_told_and_what_it_leads_to_stays(
    tmp_path, interrupted, name
):
    folder, expected = interrupted("naive", "train", 6, "topic")
    moved = tmp_path / "moved"
    curves = curves_folder(folder)
    place = {"tensorboard": curves, "curves of all runs": curves.parent}.get(name, folder / name)
    place.rename(moved)
    place.symlink_to(moved, target_is_directory=True)
    (moved / "model-1.safetensors").write_bytes(b"mine")
    (moved / "events.out.tfevents.9.mine").write_bytes(b"mine")
    before = file_hashes(moved)
    with pytest.raises(InputError, match=f"{place.name} is a link; expected a folder"):
        resume_run(folder)
    assert file_hashes(moved) == before
    place.unlink()
    for mine in ("model-1.safetensors", "events.out.tfevents.9.mine"):
        (moved / mine).unlink()
    moved.rename(place)
    resume_run(folder)
    assert outcome_of(folder) == expected


def test_a_finished_run_whose_data_changed_since_is_refused(tmp_path, undisturbed):
    _, config, strategy = undisturbed("naive")
    folder = run_folder(tmp_path, strategy, 0)
    run(config, strategy=strategy, seed=0, out=tmp_path)
    before = (folder / "results.json").read_bytes()
    now = load_tasks(changed(config, {"shots": 3}).stream, seed=0)
    with pytest.raises(InputError, match=r"the data of scope, topic changed since naive"):
        run(config, strategy=strategy, seed=0, out=tmp_path, tasks=now)
    assert (folder / "results.json").read_bytes() == before


def test_other_data_are_refused(tmp_path, base):
    path = tmp_path / "mail.csv"
    rows = [f"text {i},{'yes' if i % 2 else 'no'}" for i in range(120)]
    path.write_text("\n".join(["text,label", *rows]))
    config = config_with({**base, "tasks": [str(path)], "shots": 8})
    folder = interrupt(config, "naive", tmp_path / "out", tripping("train", 2))
    path.write_text("\n".join(["text,label", *reversed(rows)]))
    with pytest.raises(InputError, match="data changed since the run began"):
        resume_run(folder)
    assert (folder / CHECKPOINTS).exists()


def test_other_versions_are_told(interrupted, caplog, monkeypatch):
    folder, _ = interrupted("naive", "train", 2)
    with monkeypatch.context() as patch:
        patch.setattr("cl_graft.lab.experiments.run_setup.machine", lambda _: {"threads": 99})
        resume_run(folder)
    assert "threads was 1, is 99" in caplog.text


def test_a_place_that_means_no_run_or_several_is_told(tmp_path, undisturbed):
    with pytest.raises(InputError, match="there is no run in"):
        find_run(tmp_path)
    _, config, _ = undisturbed("naive")
    for seed in (0, 1):
        with pytest.raises(Trip):
            run(config, strategy="naive", seed=seed, out=tmp_path, progress=tripping("train", 2))
    with pytest.raises(InputError, match=r"several runs that are not finished .*seed0.*seed1"):
        find_run(tmp_path)
    with pytest.raises(InputError, match="should hold a comparison"):
        stored_comparison(tmp_path)


def test_a_run_is_found_from_within_and_refused_under_another_name(
    tmp_path, interrupted, monkeypatch
):
    folder, _ = interrupted("naive", "train", 2)
    monkeypatch.chdir(folder)
    assert find_run(".") == folder
    monkeypatch.chdir(tmp_path)
    folder.rename(folder.with_name("copy"))
    with pytest.raises(InputError, match=r"lay in naive.seed0 and was renamed"):
        find_run("naive/copy")


def test_a_comparison_goes_on_in_the_middle_of_a_cell(tmp_path, base):
    config = config_with({**base, "tasks": ["scope"], "seeds": [0, 1], "checkpoint_steps": 2})
    config = changed(config, {"strategies": ["grafting", "naive"]})
    whole = compare(config, out=tmp_path / "whole")

    class Killed(BaseException):
        """No failure of a cell."""

    def kill(step):
        if (step.strategy, step.seed, step.phase, step.step) == ("naive", 0, "train", 5):
            raise Killed

    with pytest.raises(Killed):
        compare(config, out=tmp_path / "killed", progress=kill)
    seen = []
    stored, started_by = stored_comparison(tmp_path / "killed")
    again = compare(stored, out=tmp_path / "killed", progress=seen.append, started_by=started_by)
    assert [(s.strategy, s.seed) for s in seen if s.phase == "reused"] == [("grafting", 0)]
    assert next(s.step for s in seen if s.phase == "train") == 5
    assert len(again.runs) == len(whole.runs) == 4
    for cell in whole.runs:
        place = (cell.strategy, cell.seed)
        one, other = (run_folder(tmp_path / name, *place) for name in ("whole", "killed"))
        assert outcome_of(one) == outcome_of(other)
    with pytest.raises(InputError, match="cl-graft compare --resume"):
        find_run(tmp_path / "killed")


@pytest.mark.parametrize("kind", [signal.SIGINT, *slow(signal.SIGTERM)])
def test_a_signal_saves_the_step_and_says_how_to_go_on(tmp_path, undisturbed, kind):
    expected, config, strategy = undisturbed("grafting")
    folder = run_folder(tmp_path, strategy, 0)
    at = {signal.SIGINT: ("dense", 3), signal.SIGTERM: ("train", 3)}[kind]

    def send(step):
        if (step.phase, step.step) == at:
            os.kill(os.getpid(), kind)

    command = resume_command("run", folder, config)
    with pytest.raises(Stopped) as told, stoppable(command, folder) as stop:
        run(config, strategy=strategy, seed=0, out=tmp_path, progress=send, stop=stop)
    assert told.value.signal == kind
    assert str(told.value) == (
        f"stopped by {kind.name}; go on with: cl-graft run --resume {folder}"
    )
    seen = []
    resume_run(folder, progress=seen.append)
    assert next(step.step for step in seen if step.phase == at[0]) == at[1] + 1
    assert outcome_of(folder) == expected


def test_a_signal_stops_at_once_where_nothing_can_be_saved_and_when_it_comes_twice():
    stop = Stop()
    with pytest.raises(Stopped):
        stop.on_signal(signal.SIGTERM, None)
    stop = Stop()
    with stop.saving():
        stop.on_signal(signal.SIGINT, None)
        assert stop.asked == signal.SIGINT
        with pytest.raises(Stopped):
            stop.on_signal(signal.SIGTERM, None)


STOPPED_COMMAND = """
import os, signal, sys
from typer import Typer
from cl_graft.cli.app import main

program = Typer()
program.command()(lambda: os.kill(os.getpid(), signal.SIGTERM))
sys.argv = ["stopped"]
main(program)
"""


def test_a_command_that_a_signal_stops_ends_with_the_code_of_the_signal():
    ended = run_warm(["-c", STOPPED_COMMAND], env=os.environ)
    assert ended.returncode == 143, ended.stderr
    assert ended.stderr == "cl-graft: stopped by SIGTERM\n"
