"""Scenarios without task labels: one head for shifting domains, one for growing classes."""

from dataclasses import replace

import pytest
import torch
from configs import config_with
from slow_cases import slow_but
from small_runs import FEW, SMALL, Runs
from word_tasks import word_tasks

from cl_graft import text_stream
from cl_graft.data import number_classes, share_labels
from cl_graft.errors import InputError
from cl_graft.lab.experiments.run import run
from cl_graft.lab.experiments.run_setup import check_strategy
from cl_graft.models import linear_head, load_model
from cl_graft.settings.tasks import fit_scenario, load_tasks
from cl_graft.strategies import MultiTaskText
from cl_graft.strategies.registry import STRATEGIES, list_available

TASKS = ["scope", "topic"]
DOMAINS = {"tasks": ["words-4", "words-5"], "data": word_tasks()}


def config(**settings):
    small = {"tasks": TASKS, "shots": 8, "max_test": 20, "strategies": ["naive"]}
    return config_with({**small, **settings})


@pytest.fixture(scope="module")
def plain():
    return load_tasks(config().stream, seed=0)


@pytest.fixture(scope="module")
def runs(still_bert, tmp_path_factory):
    return Runs(still_bert, tmp_path_factory.mktemp("forms"))


@pytest.fixture(scope="module")
def domain_runs(still_bert, tmp_path_factory):
    """Runs of two tasks with the same labels."""
    settings = {**DOMAINS, "scenario": "domain"}
    return Runs(still_bert, tmp_path_factory.mktemp("domains"), settings)


CLASS = {"scenario": "class", "classes_per_experience": 3}
OWN_WAYS = ["joint", "ewc_online", "lwf", "gdumb", "agem", "der", "o_lora"]
"""Strategies that look at labels, heads or the model before training in ways of their own."""


def test_classes_of_all_tasks_are_numbered_through(plain):
    scope, topic = plain
    both = fit_scenario(plain, config(scenario="class").stream)
    assert [task.name for task in both] == TASKS
    names = (*(f"scope {n}" for n in scope.label_names),
             *(f"topic {n}" for n in topic.label_names))  # fmt: skip
    assert {task.label_names for task in both} == {names}
    first = scope.num_outputs
    for split in ("train", "dev", "test"):
        assert getattr(both[0], split) == getattr(scope, split)
        shifted = [(row.text, row.label - first) for row in getattr(both[1], split)]
        assert shifted == [(row.text, row.label) for row in getattr(topic, split)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_task_is_split_into_experiences_of_its_classes(plain, size):
    topic = plain[1]
    parts = fit_scenario(
        [topic], config(tasks=["topic"], scenario="class", classes_per_experience=size).stream
    )
    seen = [sorted({row.label for row in part.train}) for part in parts]
    assert [label for group in seen for label in group] == list(range(topic.num_outputs))
    assert all(len(group) == size for group in seen[:-1])
    assert {part.label_names for part in parts} == {topic.label_names}
    assert sum(len(part.test) for part in parts) == len(topic.test)
    assert len({part.name for part in parts}) == len(parts)


def test_a_class_without_rows_is_told(plain):
    topic = plain[1]
    few = replace(topic, dev=tuple(row for row in topic.dev if row.label != 0))
    with pytest.raises(InputError, match="task 'topic' has no dev rows of the classes"):
        fit_scenario(
            [few], config(tasks=["topic"], scenario="class", classes_per_experience=1).stream
        )


def test_domains_have_the_same_labels(plain):
    domains = load_tasks(config(**DOMAINS).stream, seed=0)
    assert fit_scenario(domains, config(scenario="domain").stream) == domains
    first, second = domains
    turned = replace(second, label_names=second.label_names[::-1])
    _, own = fit_scenario([first, turned], config(scenario="domain").stream)
    assert own.label_names == first.label_names
    assert [row.label for row in own.test] == [1 - row.label for row in second.test]
    with pytest.raises(InputError, match=r"task_settings\.topic\.label_names can name them alike"):
        fit_scenario(plain, config(scenario="domain").stream)


def test_wrong_settings_of_a_form_are_refused():
    with pytest.raises(InputError, match="classes_per_experience is for scenario 'class'"):
        config(classes_per_experience=2)
    with pytest.raises(InputError, match="scenario 'class' is for encoders"):
        config(scenario="class", family="masked_lm")


@pytest.mark.parametrize("scenario", ["domain", "class"])
def test_what_picks_parts_by_label_is_left_out_or_refused_with_the_reason(scenario):
    own = config(scenario=scenario, strategies="all")
    every = own.comparison.strategies
    assert every == list_available(scenario=scenario)
    left_out = {name for name in list_available() if STRATEGIES[name].unsupported.get(scenario)}
    assert set(list_available()) - set(every) == left_out
    assert {"grafting", "lt_sft", "lora", "packnet", "independent"} <= left_out
    with pytest.raises(InputError, match="picked by the task's label; strategies: all takes"):
        check_strategy(STRATEGIES["grafting"], own, ())


@pytest.mark.parametrize("name", slow_but((*FEW, "o_lora"), list_available(scenario="class")))
def test_a_strategy_learns_classes_as_they_come(runs, name):
    result = runs(name, tasks=["topic"], shots=4, batch_size=8, **CLASS)
    assert result.complete
    assert len(result.R) == len(result.tasks) > 1
    assert set(result.metrics.values()) == {"accuracy"}


@pytest.mark.parametrize("name", slow_but(("joint", "lwf", "agem"), OWN_WAYS))
def test_a_strategy_learns_domains_as_they_come(domain_runs, name):
    assert name in list_available(scenario="domain")
    result = domain_runs(name)
    assert result.complete
    assert result.forward_transfer is not None
    assert all(value is not None for row in result.R for value in row)


def test_the_head_counts_once(runs):
    result = runs("naive", tasks=["topic"], shots=4, **CLASS)
    classes = 2 * (len(result.tasks) - 1)
    first, *others = result.bytes.values()
    assert first >= 4 * 33 * classes
    assert set(others) == {0}


def test_one_head_is_asked_once_for_rows_of_several_tasks(still_bert):
    unwrapped = load_model(str(still_bert)).model
    head = linear_head(unwrapped.hidden_size, 3, seed=0)
    model = MultiTaskText(unwrapped, lambda label: head, one_head=True).eval()
    for label in range(2):
        unwrapped.add_head(label, head)
    ids = torch.randint(5, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    rows = torch.stack([ids, torch.ones_like(ids)], dim=1)
    asked = []
    unwrapped.register_forward_hook(lambda *_: asked.append(1))
    mixed = model(rows, torch.tensor([0, 1, 0, 1]))
    assert asked == [1]
    assert torch.equal(mixed, model(rows, 0))
    assert sum(p.numel() for p in unwrapped.heads.parameters()) == 3 * (unwrapped.hidden_size + 1)


def test_a_run_without_labels_goes_on_where_it_was(still_bert, tmp_path):
    settings = {"model": str(still_bert), "tasks": ["topic"], "shots": 4, **CLASS}
    own = config_with({**SMALL, **settings, "classes_per_experience": 2})

    def stumble(step):
        if step.phase == "train" and step.task.endswith("2-3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(own, strategy="naive", seed=0, out=tmp_path / "cut", progress=stumble)
    left = run(own, strategy="naive", seed=0, out=tmp_path / "cut")
    whole = run(own, strategy="naive", seed=0, out=tmp_path / "whole")
    assert left.processes == 2
    assert left.logit_hashes == whole.logit_hashes
    assert left.bytes == whole.bytes


def test_tasks_that_share_a_head_say_how_their_classes_go_together(plain, still_bert):
    loaded = load_model(still_bert, family="encoder")

    def stream(tasks):
        return text_stream(tasks, loaded.tokenizer, family="encoder", one_head=True)

    with pytest.raises(InputError, match=r"number_classes\(tasks\).*share_labels\(tasks\)"):
        stream(plain)
    turned = replace(plain[1], label_names=plain[1].label_names[::-1])
    with pytest.raises(InputError, match="in one order"):
        stream([plain[1], turned])
    both = stream(number_classes(plain))
    assert [e.classes_in_this_experience for e in both.benchmark.streams["test"]] == [
        list(range(plain[0].num_outputs)),
        list(range(plain[0].num_outputs, plain[0].num_outputs + plain[1].num_outputs)),
    ]
    assert share_labels([plain[1], turned])[1].label_names == plain[1].label_names
