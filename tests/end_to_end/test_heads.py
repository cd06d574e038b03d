"""Every kind of head of Avalanche: what a bank keeps of it, also for another process."""

import functools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.models import (
    PNN,
    CosineIncrementalClassifier,
    FeCAMClassifier,
    MultiTaskModule,
    NCMClassifier,
    TrainEvalModel,
)
from avalanche.models.packnet import PackNetModel
from head_models import HEADS, accuracy, made
from slow_cases import slow, slow_but
from tiny_streams import learner, multi_head, quick, same_entries, text_learner, vector_stream
from torch import nn
from warm_processes import run_warm

from cl_graft import save_bank
from cl_graft.errors import WrongArchitecture

FEW = ("MTSimpleMLP", "MTSimpleCNN", "as_multitask", "IncrementalClassifier", "shared Linear")
EACH_HEAD = pytest.mark.parametrize("case", slow_but(FEW, HEADS))


@pytest.fixture(scope="module")
def reopened(tmp_path_factory):
    """Return what was learned with a head, and what a process that reads its bank answers."""

    @functools.cache
    def answered(cases):
        return answer_in_another_process(tmp_path_factory.mktemp("banks"), cases)

    others = tuple(case for case in HEADS if case not in FEW)
    return lambda case: answered(FEW if case in FEW else others)[case]


def answer_in_another_process(folder, cases):
    """Learn two tasks with each head, and answer them in a process that reads the banks."""
    for place, case in enumerate(cases):
        run = made(case)
        run.strategy.train(run.train_stream[0])
        first = run.hashes()
        run.strategy.train(run.train_stream[1])
        facts = {
            "case": case,
            "after one task": first,
            "after two tasks": run.hashes(),
            "scores": [accuracy(run, j) for j in (0, 1)],
        }
        save_bank(run.plugin.bank, folder / str(place))
        (folder / f"{place}.json").write_text(json.dumps(facts))
    script = Path(__file__).parent / "reopened.py"
    done = run_warm([str(script), str(folder)], env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    read = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return {facts["case"]: facts for facts in read}


@pytest.mark.slow
@EACH_HEAD
def test_a_bank_answers_in_another_process_with_the_same_bits(reopened, case):
    facts = reopened(case)
    assert facts["scores again"] == facts["scores"]
    assert HEADS[case].shape != (12,) or min(facts["scores"]) > 0.7
    assert facts["reopened"][:2] == facts["after two tasks"][:2]
    assert facts["after a third task"][:2] == facts["after two tasks"][:2]


class Watching(SupervisedPlugin):
    """Evaluates a stream after every epoch of training."""

    def __init__(self, stream):
        super().__init__()
        self.stream = stream

    def after_training_epoch(self, strategy, **kwargs):
        strategy.eval(self.stream)


@pytest.mark.parametrize("case", ["IncrementalClassifier", "MTSimpleMLP, same classes"])
def test_evaluations_amid_training_change_nothing_also_where_avalanche_grows_the_head(case):
    quiet, watched = made(case), made(case)
    watched.strategy.plugins.append(Watching(watched.test_stream))
    for run in (quiet, watched):
        torch.manual_seed(5)
        run.strategy.train(run.train_stream[0])
    assert same_entries(quiet.plugin.bank.entries, watched.plugin.bank.entries)


def test_a_head_of_other_inputs_is_refused():
    run = made("MTSimpleMLP, same classes")
    run.strategy.train(run.train_stream[0])
    entry = run.plugin.bank.entries[0]
    head = {**entry.head, "classifier.weight": torch.zeros(2, 5)}
    foreign = replace(run.plugin.bank, entries=(replace(entry, head=head),))
    again = made("MTSimpleMLP, same classes", bank=foreign)
    with pytest.raises(WrongArchitecture, match=r"weight of shape \(2, 5\)"):
        again.plugin.carry(again.model, None)


def test_a_label_whose_classes_grow_answers_old_and_new_ones():
    benchmark = vector_stream(labels=[0, 0], classes=[(0, 1), (2, 3)])
    run = learner(multi_head(), benchmark, settings=quick(density=0.2), train_epochs=6)
    run.strategy.train(run.train_stream[0])
    run.strategy.eval(run.test_stream)  # the second experience asks for units that are not there
    run.strategy.train(run.train_stream[1])
    with pytest.warns(UserWarning, match="2 experiences were learned with task label 0"):
        run.strategy.eval(run.test_stream)
    assert accuracy(run, 1) > 0.9
    widths = [len(entry.head["classifier.weight"]) for entry in run.plugin.bank.entries]
    assert widths == [2, 4]


class Unlearned(MultiTaskModule):
    """Features, then a module that grafting cannot learn with."""

    def __init__(self, module):
        super().__init__()
        self.features = nn.Linear(12, 12)
        self.module = module


@pytest.mark.parametrize(
    "model",
    [
        PNN(num_layers=1, in_features=12, hidden_features_per_column=8),
        Unlearned(NCMClassifier()),
        Unlearned(FeCAMClassifier()),
        Unlearned(CosineIncrementalClassifier(12, num_classes=2)),
        PackNetModel(nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))),
        TrainEvalModel(nn.Linear(12, 8), nn.Linear(8, 2), nn.Linear(8, 2)),
    ],
    ids=lambda model: type(getattr(model, "module", model)).__name__,
)
def test_a_model_that_keeps_tasks_outside_of_weights_and_heads_is_refused_before_training(model):
    run = learner(model, vector_stream(labels=[0, 1]))
    with pytest.raises(ValueError, match="grafting cannot learn with"):
        run.strategy.train(run.train_stream[0])
    assert run.plugin.bank is None


def test_a_head_that_was_carried_by_hand_does_not_change_what_comes_next():
    case = "IncrementalClassifier"
    plain, carried = made(case), made(case)
    for run in (plain, carried):
        torch.manual_seed(5)
        run.strategy.train(list(run.train_stream)[:2])
    carried.plugin.carry(carried.model, 0)
    assert carried.model[1].classifier.out_features == 2
    for run in (plain, carried):
        torch.manual_seed(6)
        run.strategy.train(run.train_stream[2])
    assert same_entries(plain.plugin.bank.entries, carried.plugin.bank.entries)


@pytest.mark.parametrize(
    ("checkpoint", "family"), [("tiny_bert", "encoder"), *slow(("tiny_roberta", "masked_lm"))]
)
def test_a_text_model_without_heads_gets_those_of_the_bank(request, checkpoint, family):
    chosen = {"family": family, "max_length": 40}
    folder = request.getfixturevalue(checkpoint)
    run = text_learner(folder, ("scope", "answered"), **chosen)
    run.strategy.train(run.train_stream)
    bank = run.plugin.bank
    again = text_learner(folder, ("scope", "answered"), grafting={"bank": bank}, **chosen)
    again.plugin.carry(again.model, None)
    again.model.eval()
    for position, entry in enumerate(bank.entries):
        again.plugin.carry(again.model, position)
        with torch.no_grad():
            logits = again.model(entry.recorded_batch.inputs, entry.label)
        assert torch.equal(logits, entry.recorded_batch.logits)
