"""A task label that is learned twice has two entries, and both stay answerable."""

import copy
import pickle
import warnings

import pytest
import torch
from avalanche.core import SupervisedPlugin
from slow_cases import slow
from tiny_streams import forgets_no_bit, learner, mlp, multi_head, quick, vector_stream

from cl_graft.grafts.hashing import hash_tensors
from cl_graft.metrics import backward_transfer, forgetting

pytestmark = pytest.mark.filterwarnings("ignore:[0-9]+ experiences were learned with task label")


def coming_back(make, *, mode="prefix", classes=None, **chosen):
    """Two tasks, the first of which comes back with other rows."""
    benchmark = vector_stream(labels=[0, 1, 0, 1], classes=classes)
    settings = quick(density=0.2, mode=mode)
    return learner(make(), benchmark, settings=settings, train_epochs=2, **chosen)


WIDER = [(0, 1), (0, 1), (2, 3), (2, 3)]


@pytest.mark.parametrize(
    ("make", "classes", "mode"),
    [
        (mlp, None, "isolated"),
        (multi_head, WIDER, "prefix"),
        *slow((mlp, None, "prefix"), (multi_head, WIDER, "isolated")),
        *slow((multi_head, None, "prefix"), (multi_head, None, "isolated")),
    ],
)
def test_forgetting_is_zero_as_each_experience_is_scored_by_its_own_entry(make, mode, classes):
    run = coming_back(make, mode=mode, classes=classes).learn()
    assert [entry.label for entry in run.plugin.bank.entries] == [0, 1, 0, 1]
    assert forgets_no_bit(run.scores, 4)
    R = run.scores.R(4)
    assert forgetting(R) == 0.0
    assert backward_transfer(R) == 0.0


def test_answers_that_know_the_experience_of_a_label_are_warned_of_once():
    run = coming_back(mlp)
    run.strategy.train(list(run.train_stream)[:2])
    run.strategy.eval(run.test_stream)
    run.strategy.train(run.train_stream[2])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run.strategy.eval(run.test_stream)
        run.strategy.eval(run.test_stream)
    told = [str(each.message) for each in said if "know the experience" in str(each.message)]
    assert len(told) == 1
    assert told[0].startswith("2 experiences were learned with task label 0")


def test_an_experience_is_answered_as_its_entry_answers():
    run = coming_back(multi_head).learn()
    for j, experience in enumerate(run.test_stream):
        assert run.plugin.find_position(experience, label=int(experience.task_label)) == j
        logits = run.scores.predictions(j)[0]
        run.plugin.carry(run.model, j)
        run.model.eval()
        inputs = torch.stack([experience.dataset[row][0] for row in range(len(experience.dataset))])
        with torch.no_grad():
            told = run.model(inputs, int(experience.task_label))[:, :2]
        assert torch.equal(logits, told)


def test_an_experience_of_a_label_that_was_not_learned_itself_gets_the_latest_entry():
    run = coming_back(mlp)
    run.strategy.train(list(run.train_stream)[:2])
    run.strategy.eval(run.test_stream)

    def positions():
        return [run.plugin.find_position(e, label=int(e.task_label)) for e in run.test_stream]

    assert positions() == [0, 1, 0, 1]
    run.strategy.train(run.train_stream[2])
    assert positions() == [0, 1, 2, 1]


def test_benchmarks_without_a_name_are_told_apart():
    run = coming_back(mlp, eval_every=0)
    seen = []
    for number in range(3):
        benchmark = vector_stream(labels=[0], rows=16 + 8 * number)
        assert benchmark.streams["test"].benchmark is None
        earlier = [each.streams["test"] for each in seen]
        run.strategy.train(benchmark.streams["train"][0], eval_streams=earlier)
        seen.append(benchmark)
        answers = [each.streams["test"][0] for each in seen]
        assert [run.plugin.find_position(e, label=0) for e in answers] == list(range(number + 1))


def test_an_earlier_benchmark_is_answered_by_its_entry_while_another_trains():
    hashes = []

    class Watch(SupervisedPlugin, supports_distributed=True):
        def after_eval_exp(self, strategy, **kwargs):
            hashes.append(hash_tensors({"x": strategy.mb_output}))

    first, second = vector_stream(labels=[0]), vector_stream(labels=[0], rows=24)
    settings = quick(density=0.2)
    run = learner(mlp(), first, settings=settings, plugins=[Watch()], eval_every=1)
    run.strategy.train(run.train_stream[0])
    hashes.clear()
    run.strategy.eval(run.test_stream)
    run.strategy.train(second.streams["train"][0], eval_streams=[run.test_stream])
    assert len(hashes) == 3
    assert len(set(hashes)) == 1


def test_a_copy_of_one_of_several_benchmarks_gets_the_newest_entry_with_a_warning():
    run = coming_back(mlp)
    benchmarks = [vector_stream(labels=[0], rows=rows) for rows in (16, 24)]
    for each in benchmarks:
        run.strategy.train(each.streams["train"][0])
    stranger = vector_stream(labels=[0]).streams["test"][0]
    for plugin in (run.plugin, copy.deepcopy(run.plugin)):
        with pytest.warns(UserWarning, match="learned in several benchmarks"):
            assert plugin.find_position(stranger, label=0) == 1
    restored = copy.deepcopy(run.plugin)._entries
    with pytest.warns(UserWarning, match="learned in several benchmarks"):
        assert restored.find(benchmarks[0].streams["test"][0], label=0) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))])
def test_copies_go_on_with_the_benchmarks_that_they_meet(copied):
    run = coming_back(mlp)
    learned = vector_stream(labels=[0, 1, 0])
    run.strategy.train(learned.streams["train"])
    again = copied(run.plugin._entries)
    for position, experience in enumerate(vector_stream(labels=[0, 1, 0]).streams["test"]):
        assert again.find(experience, label=int(experience.task_label)) == position
    assert again.find(learned.streams["test"][0], label=7) is None


def test_dev_rows_of_a_label_that_comes_back_are_those_of_its_experience():
    dev = vector_stream(labels=[0, 0], rows=10)
    run = coming_back(mlp, grafting={"dev": dev.streams["test"]})
    counts = []
    for experience in list(run.train_stream)[:3:2]:
        run.strategy.experience = experience
        counts.append(run.plugin._tasks.dev_rows(run.strategy, 0).fingerprint())
    run.strategy.experience = None
    assert counts[0] != counts[1]


def test_dev_rows_that_serve_another_experience_of_their_label_are_warned_of():
    dev = vector_stream(labels=[0], rows=10).streams["test"]
    run = coming_back(mlp, grafting={"dev": dev})
    run.strategy.train(run.train_stream[0])
    run.strategy.train(run.train_stream[0])
    with pytest.warns(UserWarning, match="another experience with this label was chosen on"):
        run.strategy.train(run.train_stream[2])


def test_scores_of_several_benchmarks_have_rows_and_columns_of_their_own():
    run = learner(mlp(), vector_stream(labels=[0]), settings=quick(density=0.2))
    benchmarks = [run.benchmark, *(vector_stream(labels=[0], rows=rows) for rows in (16, 24))]
    for number, benchmark in enumerate(benchmarks):
        run.strategy.train(benchmark.streams["train"][0])
        for each in benchmarks[: number + 1]:
            run.strategy.eval(each.streams["test"])
    assert run.scores.order == [0, 1, 2]
    R = run.scores.R(3)
    assert [[cell is None for cell in row] for row in R] == [
        [j > i for j in range(3)] for i in range(3)
    ]
    assert forgetting(R) == 0.0
    assert len(run.scores.predictions(1)[1]) == 16
