"""A bank that is opened answers as the model that learned it, task by task."""

import shutil
from dataclasses import replace

import pytest
import torch
from slow_cases import slow
from tiny_runs import file_hashes, tiny_run, write_pairs
from torch import nn
from warm_processes import printed_by

from cl_graft import GraftingContinual, InputError
from cl_graft.banks.open_bank import OpenBank, open_bank
from cl_graft.banks.verify import verify
from cl_graft.errors import DamagedFile, TruncatedFile
from cl_graft.grafts.bank import find_entry
from cl_graft.storage import load_bank, save_bank

KINDS = {"encoder": "bert", "masked_lm": "roberta", "causal_lm": "gpt2"}


@pytest.fixture(scope="module", params=["encoder", *slow("masked_lm", "causal_lm")])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OpenBank:
    family = request.param
    model = request.getfixturevalue(f"tiny_{KINDS[family]}")
    out = tmp_path_factory.mktemp(family)
    tasks = ["scope", str(write_pairs(out / "answers.jsonl"))]
    return open_bank(tiny_run(out / "run", model, tasks, family=family, max_length=48) / "bank")


def test_an_entry_answers_the_same_whatever_was_asked_before(opened):
    first = [entry.recorded_batch for entry in opened.bank.entries]
    for order in ([0, 1], [1, 0], [1, 1, 0, 0]):
        for position in order:
            logits = opened.logits(first[position].inputs, position)
            assert torch.equal(logits, first[position].logits)


def test_an_answer_reads_no_later_entry_and_a_damaged_one_is_told_when_it_is_used(opened, tmp_path):
    folder = shutil.copytree(opened.folder, tmp_path / "bank")
    (damaged,) = folder.glob("entries/*-answers.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    bank = open_bank(folder)
    assert bank.predict("What is my balance?", task="scope").label
    with pytest.raises(TruncatedFile, match=r"is cut short.*forget .* 1$"):
        bank.predict([("Is it?", "It is.")], task="answers")
    assert bank.predict("What is my balance?", task="scope").label


def test_a_head_that_does_not_fit_stops_its_task_and_infinite_values_all_above(opened, tmp_path):
    bank = load_bank(opened.folder)
    first, last = bank.entries
    said = "'answers' is damaged"
    head = {f"other.{name}": tensor for name, tensor in last.head.items()}
    folder = tmp_path / "head"
    save_bank(replace(bank, entries=(first, replace(last, head=head))), folder)
    other = open_bank(folder)
    assert other.predict("What is my balance?", task="scope").label
    for _ in range(2):
        with pytest.raises(DamagedFile, match=said):
            other.predict([("Is it?", "It is.")], task="answers")
        with pytest.raises(DamagedFile, match=said):
            other.predict([("A bore.", "scope"), (("Is it?", "It is."), "answers")])
    with pytest.raises(DamagedFile, match=said):
        verify(folder)
    values = first.owned.values.clone()
    values[-1] = torch.inf
    wrong = replace(first, owned=replace(first.owned, values=values))
    save_bank(replace(bank, entries=(wrong, last)), tmp_path / "values")
    for task, asked in (("scope", "A bore."), ("answers", ("Is it?", "It is."))):
        with pytest.raises(DamagedFile, match=r"task 'scope' is damaged: .*NaN or infinite"):
            open_bank(tmp_path / "values").predict([asked], task=task)


def test_texts_are_answered_with_label_names_and_probabilities(opened):
    answers = opened.predict(["What is my balance?", "It was a bore!"], task="scope")
    assert len(answers) == 2
    assert opened.predict("What is my balance?", task="scope").label == answers[0].label
    rest = opened.predict(["What is my balance?", "It was a bore!"], task="scope", batch_size=1)
    assert [answer.label for answer in rest] == [answer.label for answer in answers]
    for answer in answers:
        assert set(answer.probabilities) == {"in_scope", "out_of_scope"}
        assert sum(answer.probabilities.values()) == pytest.approx(1)
        assert answer.label == max(answer.probabilities, key=answer.probabilities.__getitem__)


def test_it_is_said_once_for_each_task_that_a_text_was_cut(opened, caplog):
    bank, other = open_bank(opened.folder), opened.tasks[1]
    long = "What is my balance? " * 40
    bank.predict("What is my balance?", task="scope")
    assert not caplog.messages
    for _ in range(2):
        bank.predict([long, long], task="scope")
        bank.predict([(long, "scope"), (("Is it?", long), other)])
    assert [message.partition(":")[0] for message in caplog.messages] == ["scope", other]
    assert "longer than the 48 tokens" in caplog.messages[0]


def test_texts_of_several_tasks_are_answered_in_one_mixed_batch(opened):
    assert opened.tasks == ("scope", "answers")
    asked = [
        ("What is my balance?", "scope"),
        (("Who wrote it?", "A teacher wrote the long letter."), "answers"),
        ("It was a bore!", 0),
    ]
    found = opened.predict(asked)
    for (text, task), answer in zip(asked, found, strict=True):
        alone = opened.predict(text, task=task)
        assert (answer.entry, answer.label) == (alone.entry, alone.label)
        assert answer.logits == pytest.approx(alone.logits, rel=1e-4, abs=1e-4)
    assert [answer.entry for answer in found] == [0, 1, 0]
    one = [(text, "scope") for text in ("What is my balance?", "It was a bore!")]
    assert opened.predict(one) == opened.predict([text for text, _ in one], task="scope")


@pytest.mark.parametrize("asked", ["Good.", ("Good.", "scope"), ["Good."], [("Good.", "scope", 1)]])
def test_without_a_task_pairs_of_text_and_task_are_wanted(opened, asked):
    with pytest.raises(InputError, match=r"pairs \(text, task\); tasks: scope, answers"):
        opened.predict(asked)


def test_an_open_bank_learns_verifies_and_saves(tiny_bert, tmp_path):
    bank = open_bank(tiny_run(tmp_path / "run", tiny_bert, ["scope"]))
    before = bank.predict("What is my balance?", task="scope")
    assert bank.add("answered").position == 1
    assert bank.tasks == ("scope", "answered")
    assert bank.predict(("A man.", "He is here."), task="answered").entry == 1
    assert bank.predict("What is my balance?", task="scope") == before
    assert bank.verify().ok
    bank.save(tmp_path / "copy")
    assert file_hashes(tmp_path / "copy") == file_hashes(bank.folder)


def test_a_task_on_pairs_wants_pairs(opened):
    answer = opened.predict(("Who wrote it?", "A teacher."), task="answers")
    assert answer.label in answer.probabilities
    with pytest.raises(InputError, match="pairs of texts"):
        opened.predict(["Who wrote it?"], task="answers")
    with pytest.raises(InputError, match="single texts"):
        opened.predict([("Good.", "Bad.")], task="scope")
    with pytest.raises(InputError, match="text 2 must be a string, a tuple of two"):
        opened.predict([("Who?", "A teacher."), ("What?",)], task="answers")


def test_a_task_is_named_or_counted(opened):
    assert opened.predict(["Good."], task=0) == opened.predict(["Good."], task="scope")
    with pytest.raises(InputError, match="did you mean 'scope'"):
        opened.predict(["Good."], task="scop")
    with pytest.raises(InputError, match="positions are 0 to 1"):
        opened.predict(["Good."], task=2)
    with pytest.raises(InputError, match="no task '9999"):
        opened.predict(["Good."], task="9" * 5000)  # more digits than Python makes a number of


def test_what_is_no_text_or_no_task_is_answered_with_what_is_one(opened):
    with pytest.raises(InputError, match="texts must be a text or a list of texts, got 5"):
        opened.predict(5, task="scope")
    with pytest.raises(InputError, match="text 2: the text is empty"):
        opened.predict(["Good.", " "], task="scope")
    with pytest.raises(InputError, match=r"pass pairs and no task: list\(zip\(texts, tasks\)\)"):
        opened.predict(["Good.", "Bad."], task=["scope", "scope"])
    for odd in (1.0, True, ["scope"]):
        with pytest.raises(InputError, match="asked by its name or its entry's position, got"):
            opened.predict([("Good.", odd)])
    with pytest.raises(InputError, match="the bank, which is empty"):
        find_entry(replace(opened.bank, entries=()), 0)


@pytest.mark.parametrize("name", ["cuda:99", "gpu", None])
def test_a_device_that_is_not_here_is_answered_before_the_model_is_loaded(opened, name):
    with pytest.raises(InputError, match=f"no device '{name}' here"):
        open_bank(opened.folder, model="no such model", device=name)
    with pytest.raises(InputError, match=f"no device '{name}' here"):
        GraftingContinual(model=nn.Linear(2, 2), optimizer=None, device=name)
    if name:
        with pytest.raises(InputError, match=f"no device '{name}' here"):
            verify(opened.folder, device=name)


def test_autocast_around_predict_changes_no_answer(opened):
    asked = [("What is my balance?", "scope"), (("Who?", "A teacher."), "answers")]
    expected = opened.predict(asked), opened.predict("What is my balance?", task="scope")
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        found = opened.predict(asked), opened.predict("What is my balance?", task="scope")
    assert found == expected
    assert opened.predict(asked) == expected[0]


LIFE = """
import sys
import cl_graft as cg
from cl_graft.integrations.task_export import export_task
folder, data, out = sys.argv[1:]
bank = cg.open_bank(folder)
bank.predict("What is my balance?", task="scope")
assert not [name for name in sys.modules if name.startswith("cl_graft.lab")], "opened and asked"
bank.add(data)
cg.verify(folder)
export_task(folder, "scope", format="hf", out=out)
assert not [name for name in sys.modules if name.startswith("cl_graft.lab")], "added to"
"""


def test_a_bank_is_opened_asked_added_to_verified_and_exported_without_the_laboratory(
    tiny_bert, tmp_path
):
    folder = tiny_run(tmp_path / "run", tiny_bert, ["scope"]) / "bank"
    data = write_pairs(tmp_path / "later.jsonl")
    printed_by(LIFE, str(folder), str(data), str(tmp_path / "out"), imported="torch")
