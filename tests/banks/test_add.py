"""A bank grows in a later process, and nothing that it held changes by a bit."""

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from slow_cases import slow
from tiny_runs import file_hashes, tiny_run

from cl_graft import InputError, load_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.forget import forget
from cl_graft.banks.open_bank import list_entry_notes, open_bank
from cl_graft.banks.verify import verify
from cl_graft.errors import BankError, WrongArchitecture
from cl_graft.runtime.progress import Step
from cl_graft.settings.run_files import lock_bank
from cl_graft.storage import save_bank


@pytest.fixture(scope="module")
def learned(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("add"), tiny_bert, ["scope", "topic"]) / "bank"


@pytest.fixture
def bank(learned: Path, tmp_path: Path) -> Path:
    return shutil.copytree(learned, tmp_path / "bank")


def test_a_new_entry_stands_beside_earlier_ones_and_has_the_settings_of_the_banks_run(bank):
    before, taken = file_hashes(bank / "entries"), load_bank(bank).owned()
    steps: list[Step] = []
    added = add_task(bank, "answered", progress=steps.append)
    assert {step.task for step in steps} == {"answered"}
    assert list(dict.fromkeys(step.phase for step in steps)) == ["dense", "train"]
    after = file_hashes(bank / "entries")
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert (added.task, added.label, added.position) == ("answered", 2, 2)
    assert verify(bank).ok
    entry = load_bank(bank).entries[added.position]
    assert len(entry.owned.region & taken) == 0
    assert len(entry.owned) == added.owned > 0
    assert entry.region.density == pytest.approx(0.01, abs=1e-4)
    assert entry.metadata["shots"] == 8
    assert entry.metadata["max_length"] == 24
    assert added.test_rows == 20


def test_a_task_is_learned_to_the_bits_of_a_run_that_had_it_too(bank, tiny_bert, tmp_path):
    add_task(bank, "answered", device="cpu")
    run = tiny_run(tmp_path / "run", tiny_bert, ["scope", "topic", "answered"])
    assert file_hashes(bank) == file_hashes(run / "bank")


def test_settings_can_be_changed_by_name_and_as_text(bank):
    added = add_task(
        bank, "answered", settings={"grafting": {"density": 0.02}}, sets=["stream.max_test=10"]
    )
    assert added.density == pytest.approx(0.02, abs=1e-4)
    assert added.test_rows == 10
    with pytest.raises(InputError, match=r"mean 'grafting\.density'"):
        add_task(bank, "answered", sets=["grafting.densty=0.1"])
    for name in ("grafting.mode=isolated", "model.dtype=bfloat16", "stream.tasks=scope"):
        with pytest.raises(InputError, match=f"--set: .* add decides {name.partition('=')[0]}"):
            add_task(bank, "answered", sets=[name])


def test_a_setting_of_the_bank_that_is_no_longer_taken_can_be_replaced(bank, tmp_path):
    stored = load_bank(bank)
    metadata = copy.deepcopy(dict(stored.base.metadata))
    metadata["settings"]["grafting"]["localizer"] = "talos"
    save_bank(replace(stored, base=replace(stored.base, metadata=metadata)), tmp_path / "old")
    with pytest.raises(InputError, match="unknown localizer 'talos'"):
        add_task(tmp_path / "old", "answered")
    sets = ["grafting.localizer=random", "grafting.mode=prefix"]
    assert add_task(tmp_path / "old", "answered", sets=sets).new


@pytest.mark.parametrize("builds_on", ["[]", "null"])
def test_a_task_without_room_for_a_whole_region_is_warned_of(bank, caplog, builds_on):
    sets = ["grafting.density=0.99", f"stream.task_settings.answered.builds_on={builds_on}"]
    added = add_task(bank, "answered", sets=sets)
    assert ("of 1 tasks in one model 0 get a whole region" in caplog.text) == (builds_on == "null")
    assert (added.density > 0.98) == (builds_on == "[]")


def test_the_test_score_is_that_of_the_reopened_bank(bank, tmp_path):
    rows = [
        {"text": f"{word} {n}", "label": label}
        for n in range(20)
        for word, label in (("good", "yes"), ("bad", "no"))
    ]
    for split, lines in (("train", rows), ("test", rows[:10])):
        path = tmp_path / "words" / f"{split}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    added = add_task(bank, "words", settings={"stream": {"data": tmp_path}})
    answers = open_bank(bank).predict([row["text"] for row in rows[:10]], task="words")
    right = sum(a.label == row["label"] for a, row in zip(answers, rows[:10], strict=True))
    assert added.test == pytest.approx(right / 10)


def test_a_task_seen_again_becomes_a_new_entry_that_answers_its_label(bank):
    texts = ["It was a delight.", "It was a bore."]
    before = open_bank(bank).predict(texts, task="scope")
    added = add_task(bank, "scope", sets=["stream.data_seed=5"])
    grown = load_bank(bank)
    assert (added.label, added.position) == (0, 2)
    assert grown.find(label=0) == 2
    assert [entry.task for entry in grown.entries] == ["scope", "topic", "scope"]
    assert verify(bank).ok
    opened = open_bank(bank)
    answers = {task: opened.predict(texts, task=task) for task in ("scope", 0, "0", 2)}
    assert [each.entry for each in answers["scope"]] == [2, 2]
    assert answers["scope"] == answers[2]
    assert [each.entry for each in answers[0]] == [0, 0]
    assert answers["0"] == answers[0] != answers[2]
    assert answers[0] == before  # what was learned first is still answered, by its position
    mixed = opened.predict([(text, entry) for entry in (2, 0) for text in texts])
    assert [each.entry for each in mixed] == [2, 2, 0, 0]
    assert [each.label for each in mixed] == [each.label for each in answers[2] + answers[0]]
    assert list_entry_notes(grown, ["scope", "topic", "scope"]) == [
        "scope: entry 2 answers, the latest of this name; ask an earlier one by its position (0)"
    ]


def test_an_entry_that_was_added_later_is_not_taken_for_the_one_of_the_run(learned, tmp_path):
    folder = shutil.copytree(learned.parent, tmp_path / "run")
    add_task(folder, "scope", sets=["stream.data_seed=5"])
    report = verify(folder)
    assert [(each.position, each.task, each.run) for each in report.entries] == [
        (0, "scope", "same bits"),
        (1, "topic", "same bits"),
        (2, "scope", "not recorded"),
    ]


@pytest.mark.parametrize("task", ["scope", "answered"])
def test_the_same_task_again_is_said_to_be_there_and_changes_nothing(bank, task):
    first = add_task(bank, task)  # scope was learned by the run that made the bank
    assert first.new is (task == "answered")
    before = file_hashes(bank)
    again = add_task(bank, task)
    assert file_hashes(bank) == before
    assert not again.new
    assert again.seconds == {}
    assert (again.position, again.label, again.test) == (first.position, first.label, first.test)
    assert (again.owned, again.metric, again.notes) == (first.owned, first.metric, first.notes)


def test_an_addition_that_is_killed_once_its_entry_is_listed_is_done_when_it_is_called_again(
    bank, monkeypatch
):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("cl_graft.banks.add._score_test_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            add_task(bank, "answered")
    before = file_hashes(bank)
    again = add_task(bank, "answered")
    assert (again.position, again.new) == (2, False)
    assert file_hashes(bank) == before
    assert [entry.task for entry in load_bank(bank).entries] == ["scope", "topic", "answered"]


@pytest.mark.parametrize(
    "sets",
    [
        ["stream.data_seed=5"],
        ["fine_tuning.steps=5"],
        *slow(["comparison.seeds=[3]"], ["stream.max_length=20"]),
    ],
)
def test_the_same_task_from_other_data_or_with_other_settings_is_learned(bank, sets):
    assert add_task(bank, "scope", sets=sets).new
    assert not add_task(bank, "scope", sets=sets).new
    assert len(load_bank(bank)) == 3


def test_a_known_name_with_other_labels_is_refused(bank, tmp_path):
    (tmp_path / "topic.jsonl").write_text(
        "".join(f'{{"text": "text {n}", "label": "{"ab"[n % 2]}"}}\n' for n in range(60))
    )
    before = file_hashes(bank)
    with pytest.raises(InputError, match="give the new task another name"):
        add_task(bank, "topic", settings={"stream": {"data": tmp_path}})
    assert file_hashes(bank) == before


def test_a_bank_whose_entries_stand_alone_grows_too(tiny_bert, tmp_path):
    bank = tiny_run(tmp_path / "run", tiny_bert, ["scope"], mode="isolated") / "bank"
    add_task(bank, "answered")
    assert load_bank(bank).mode == "isolated"
    assert verify(bank).ok


def test_another_base_is_refused_and_the_bank_left_alone(bank, tiny_distilbert):
    before = file_hashes(bank)
    with pytest.raises(WrongArchitecture):
        add_task(bank, "answered", model=str(tiny_distilbert))
    assert file_hashes(bank) == before


def test_prompted_models_grow_without_heads(tiny_gpt2, tmp_path):
    bank = tiny_run(tmp_path, tiny_gpt2, ["scope"], family="causal_lm", max_length=48) / "bank"
    before = file_hashes(bank / "entries")
    add_task(bank, "answered")
    assert before.items() <= file_hashes(bank / "entries").items()
    assert verify(bank).ok


def test_a_bank_behind_a_link_grows_and_shrinks_with_its_run(learned, tmp_path):
    run, link = tmp_path / "run", tmp_path / "a_link"
    shutil.copytree(learned.parent, run)
    link.symlink_to(run / "bank", target_is_directory=True)
    add_task(link, "answered")
    assert verify(run).ok
    report = forget(link, "answered")
    assert (report.done, report.traces) == (True, ())
    assert verify(run).ok


def test_a_bank_that_forgot_a_task_since_it_was_opened_learns_nothing_through_it(bank):
    opened = open_bank(bank)
    forget(bank, opened.tasks[-1])
    before = file_hashes(bank.parent)
    with pytest.raises(BankError, match="a task was deleted or trained again; open it anew"):
        opened.add("answered")
    assert file_hashes(bank.parent) == before
    add_task(bank, "answered")
    with pytest.raises(BankError, match="holds others"):
        opened.add("entailment")


def test_what_a_killed_writer_left_in_the_run_goes_with_the_next_one(tmp_path):
    run, bank = tmp_path / "run", tmp_path / "run" / "bank"
    bank.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    left = run / ".results.json.0123abcd.tmp"
    left.write_text("half")
    with lock_bank(bank):
        assert not left.exists()
