"""Methods that train by steps keep the best of as many evaluations on dev as a dense run."""

from typing import ClassVar

import pytest
import torch
from answer_tasks import question_task
from avalanche.core import SupervisedPlugin
from avalanche.logging import BaseLogger
from avalanche.models import SimpleMLP
from slow_cases import slow, slow_but
from tiny_streams import learner, naive_strategy, sgd, vector_stream
from word_tasks import word_tasks

from cl_graft import FineTuning, load_model, text_stream
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.lab.baselines.masks import PackedWeights
from cl_graft.strategies import KeepBest, SeededLoop, StrategyInputs, find_plugin, text_model
from cl_graft.strategies.experience_tasks import ExperienceTasks
from cl_graft.strategies.registry import STRATEGIES, build_strategy, list_available

SETTINGS = {"steps": 9, "evaluations": 4, "lr": 0.5}
ASKED = {2, 4, 7, 9}  # round(9 · i / 4)
STEPPING = [
    name
    for name in list_available()
    if name != "independent"
    and STRATEGIES[name].family not in ("grafting", "merging")
    and STRATEGIES[name].trains in ("everything", "per_task")
]


class Steps(SupervisedPlugin, supports_distributed=True):
    """Keeps what a model holds after every step, by task label and step."""

    def __init__(self):
        super().__init__()
        self.after = {}

    def after_training_iteration(self, strategy, **kwargs):
        place = int(strategy.experience.task_label), strategy.clock.train_exp_iterations + 1
        self.after[place] = snapshot(dict(strategy.model.named_parameters()))


class End(SupervisedPlugin, supports_distributed=True):
    """Keeps what a model holds when an experience ends, as the strategy's own plugins find it."""

    def __init__(self):
        super().__init__()
        self.values = {}

    def after_training_exp(self, strategy, **kwargs):
        label = int(strategy.experience.task_label)
        self.values[label] = snapshot(dict(strategy.model.named_parameters()))


def watched(strategy):
    """Watch a strategy: its steps, what its plugins find at the end, and its choice."""
    steps, end = Steps(), End()
    (place,) = (n for n, p in enumerate(strategy.plugins) if isinstance(p, KeepBest))
    strategy.plugins.insert(place + 1, end)
    strategy.plugins.insert(-1, steps)  # the clock is last
    return steps, end


@pytest.mark.parametrize("name", slow_but(("naive", "lora"), STEPPING))
def test_a_task_ends_with_the_values_of_the_step_that_did_best_on_dev(kept_strategy, name):
    found = []
    strategy = kept_strategy(name, before=lambda s: found.extend(watched(s)), run_settings=SETTINGS)
    steps, end = found
    choice = find_plugin(strategy, KeepBest)
    learned = {label for label, _ in steps.after}
    assert set(choice.chosen) == learned
    for label, (step, _) in choice.chosen.items():
        assert hash_tensors(end.values[label]) == hash_tensors(steps.after[label, step])


def test_loggers_get_the_dev_scores_among_which_a_step_was_chosen(kept_strategy):
    class Published(BaseLogger):
        values: ClassVar[dict[tuple[str, int], float]] = {}

        def log_single_metric(self, name, value, x_plot):
            self.values[name, x_plot] = value

    def before(strategy):
        strategy.evaluator.loggers.append(Published())

    strategy = kept_strategy("naive", before=before, run_settings=SETTINGS)
    chosen = find_plugin(strategy, KeepBest).chosen
    assert chosen
    for label, (step, best) in chosen.items():
        name = f"DevScore/train_phase/train_stream/Task{label:03d}/Exp{label:03d}"
        scores = {at: value for (own, at), value in Published.values.items() if own == name}
        assert set(scores) == ASKED
        assert scores[step] == best == max(scores.values())


def test_packnet_chooses_among_steps_after_pruning(kept_strategy):
    strategy = kept_strategy("packnet", run_settings=SETTINGS, retrain=0.5)
    packed, choice = find_plugin(strategy, PackedWeights), find_plugin(strategy, KeepBest)
    assert choice.first == 9 - 4
    for step, _ in choice.chosen.values():
        assert step > choice.first
    model = strategy.model.task_model
    parameters = dict(model.named_parameters())
    for name, owner in packed.owners.items():
        assert not parameters[name][owner == 0].any()


def test_joint_training_is_chosen_on_the_rows_of_all_its_tasks(kept_strategy):
    seen = []

    class Labels(SupervisedPlugin, supports_distributed=True):
        def after_training_exp(self, strategy, **kwargs):
            seen.append(find_plugin(strategy, KeepBest).labels)

    for name in ("joint", "cumulative"):
        kept_strategy(
            name, before=lambda s: s.plugins.insert(-1, Labels()), run_settings={"evaluations": 2}
        )
    assert seen[0] == [0, 1]
    assert seen[2:] == [[0], [0, 1]]


def test_without_evaluations_the_last_step_stays(small_runs):
    once, never = (small_runs("naive", evaluations=count) for count in (1, 0))
    assert once.logit_hashes == never.logit_hashes


def test_looks_at_dev_are_counted(small_runs):
    never, often = (small_runs("naive", evaluations=count) for count in (0, 5))
    for task, phases in often.passes.items():
        rows = never.passes[task]["train"]
        assert phases["train"]["forward_backward"] == rows["forward_backward"]
        looked = phases["train"]["forward"] - rows["forward"]
        assert looked == 5 * often.data[task]["rows"]["valid"]


def vectors(seed=3, **given):
    """Learn a task with evaluations in every step, on a model with running statistics."""
    torch.manual_seed(seed)
    stream = vector_stream(labels=[0], rows=64)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(12), SimpleMLP(num_classes=2, input_size=12))
    steps = Statistics()
    keep = KeepBest(16, 16, **given)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plugins = [keep, SeededLoop(0), steps]
    strategy = naive_strategy(model, optimizer=optimizer, train_epochs=2, plugins=plugins)
    strategy.train(stream.streams["train"][0])
    return stream, strategy, keep, steps


class Statistics(SupervisedPlugin, supports_distributed=True):
    """Keeps running means after every step, and the rows that were trained on."""

    def __init__(self):
        super().__init__()
        self.means = {}
        self.rows = set()

    def after_training_iteration(self, strategy, **kwargs):
        means = strategy.model[0].running_mean.clone()
        self.means[strategy.clock.train_exp_iterations + 1] = means
        self.rows.update(hash_tensors({"row": row}) for row in strategy.mb_x)


def test_running_statistics_are_those_of_the_kept_step():
    stream = vector_stream(labels=[0], rows=64)
    _, strategy, keep, steps = vectors(dev=stream.streams["test"])
    step, _ = keep.chosen[0]
    assert torch.equal(strategy.model[0].running_mean, steps.means[step])


def test_rows_that_are_set_aside_for_the_choice_are_not_trained_on():
    stream, _, _, steps = vectors()
    rows = {hash_tensors({"row": item[0]}) for item in stream.streams["train"][0].dataset}
    assert len(rows) == 64
    assert steps.rows < rows
    assert len(rows - steps.rows) == 3


def test_beside_grafting_it_is_refused_as_regions_choose_by_themselves():
    model = SimpleMLP(num_classes=2, input_size=12, hidden_size=16)
    run = learner(model, vector_stream(labels=[0, 1]), plugins=[KeepBest(4)], optimizer=sgd)
    with pytest.raises(ValueError, match="evaluate_every"):
        run.strategy.train(run.train_stream[0])


SCENARIOS = {
    "domain": {"tasks": ["words-4", "words-5"], "scenario": "domain", "data": word_tasks()},
    "class": {"scenario": "class", "classes_per_experience": 3},
}


@pytest.mark.parametrize(
    ("name", "form"),
    [("naive", "class"), *slow(("lwf", "domain"), ("joint", "class"), ("der", "domain"))],
)
def test_streams_without_task_labels_choose_on_dev_rows_of_their_experiences(
    kept_strategy, name, form
):
    found = []
    strategy = kept_strategy(
        name, before=lambda s: found.extend(watched(s)), run_settings=SETTINGS | SCENARIOS[form]
    )
    steps, end = found
    chosen = find_plugin(strategy, KeepBest).chosen
    assert set(chosen) == {label for label, _ in steps.after}
    for label, (step, dev) in chosen.items():
        assert 0 <= dev <= 1
        assert hash_tensors(end.values[label]) == hash_tensors(steps.after[label, step])


def test_a_task_is_scored_on_dev_by_its_own_texts_whichever_task_trains(tiny_bert):
    loaded = load_model(str(tiny_bert))
    tasks = [question_task(count, metric="answer_f1") for count in (4, 24)]
    stream = text_stream(tasks, loaded.tokenizer, family="encoder")
    model = text_model(loaded, stream, seed=0)
    inputs = StrategyInputs(model=model, stream=stream, fine_tuning=FineTuning(steps=2))
    strategy = build_strategy("joint", inputs)
    dev = ExperienceTasks(inputs.dev, inputs.metrics)
    scores = []
    for experience in stream.benchmark.train_stream:
        strategy.experience = experience
        scores.append([dev.dev_score(strategy, label) for label in (0, 1)])
    assert scores[0] == scores[1]
    assert scores[0][1] > 0
