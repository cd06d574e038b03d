"""Methods learn streams of tags, or refuse them in a sentence before anything is computed."""

from pathlib import Path

import pytest
from configs import config_with
from kind_data import tagged_folder
from transformers import AutoConfig
from word_tasks import word_tasks

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.run_setup import keep_able_strategies
from cl_graft.settings.tasks import load_tasks
from cl_graft.strategies.registry import STRATEGIES, list_available

# Ablations differ from grafting in their localizer, which tests/localization runs on every kind.
NAMES = list_available()
CLASSES = [name for name in NAMES if STRATEGIES[name].kinds == "classification"]
ONE_KIND = [name for name in NAMES if STRATEGIES[name].kinds == "one"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    tagged_folder(folder / "names", train=12, test=5)
    tagged_folder(folder / "plans", intents=True, train=12, test=5)
    return folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, "needs the class of each row.*'names' is a task") for name in CLASSES),
        *((name, "puts rows of several tasks into a batch") for name in ONE_KIND),
    ],
)
def test_a_method_refuses_tasks_that_it_cannot_learn(data: Path, name: str, said: str):
    tasks = load(data, "scope", "names")
    with pytest.raises(InputError, match=f"'{name}' {said}"):
        STRATEGIES[name].check_tasks(tasks)
    STRATEGIES[name].check_tasks(tasks[:1])


def test_what_methods_can_learn_is_known():
    assert {"lwf", "der", "er_ace", "gdumb", "grafting_by_discriminant"} <= set(CLASSES)
    assert {"replay", "agem", "joint", "cumulative"} <= set(ONE_KIND)


def test_a_comparison_refuses_such_a_method_before_any_run(data, tmp_path, monkeypatch):
    monkeypatch.setattr("cl_graft.lab.experiments.comparison.compare.load_base_model", None)
    settings = {"tasks": ["names"], "data": str(data), "model": "none", "seeds": [0]}
    config = config_with({**settings, "strategies": ["naive", "lwf"]})
    with pytest.raises(InputError, match="'lwf' needs the class of each row"):
        compare(config, out=tmp_path / "out")
    config = config_with({**settings, "strategies": ["naive", "lwf", "er_ace", "grafting"]})
    with pytest.raises(
        InputError, match=r"'lwf' .*that can run here: --strategies naive,grafting$"
    ):
        compare(config, out=tmp_path / "out")


def test_all_strategies_are_those_that_can_learn_the_tasks(data: Path, caplog):
    mixed = {"tasks": ["scope", "names"], "data": str(data), "max_train": 8}
    kept = keep_able_strategies(config_with({**mixed, "strategies": ["all"]}))
    assert set(kept.comparison.strategies) == set(NAMES) - {*CLASSES, *ONE_KIND}
    assert "left out, as they cannot run here: " in caplog.text
    assert all(name in caplog.text for name in (*CLASSES, *ONE_KIND))
    again = keep_able_strategies(kept)
    assert again is kept
    alone = config_with({**mixed, "tasks": ["scope"], "strategies": ["all"]})
    assert keep_able_strategies(alone).comparison.strategies == NAMES
    for own in (["lwf"], ["all", "lwf"]):  # what is named is not left out
        named = keep_able_strategies(config_with({**mixed, "strategies": own}))
        assert "lwf" in named.comparison.strategies


@pytest.mark.parametrize("scenario", ["domain", "class"])
@pytest.mark.parametrize("task", ["names", "scores.csv"])
def test_tasks_without_classes_do_not_share_a_head_of_classes(data: Path, task: str, scenario: str):
    rows = "\n".join(["text,label", *(f"text {n},{n / 4}" for n in range(16))])
    (data / "scores.csv").write_text(rows)
    settings = {"scores.csv": {"kind": "regression"}} if task == "scores.csv" else {}
    with pytest.raises(InputError, match=f"tasks share a head of classes; '{task[:5]}.* is a task"):
        load(data, task, scenario=scenario, task_settings=settings)


def load(data: Path, *names: str, **stream):
    config = config_with({"tasks": list(names), "data": str(data), "max_train": 8, **stream})
    return load_tasks(config.stream, seed=0)


@pytest.mark.parametrize(
    ("model", "family", "name", "said"),
    [
        ("tiny_t5", "seq2seq_lm", "bitfit", "'bitfit' trains biases, and this model has none"),
        ("tiny_llama", "causal_lm", "grafting_bias_only", "no biases among the model"),
        ("tiny_llama", "causal_lm", "grafting_without_retraining", "retrain=False needs"),
        (
            *("tiny_distilbert", "encoder", "ia3"),
            "it lists none for 'distilbert': choose strategy 'lora', .* of the types bart, bert, ",
        ),
        ("tiny_bert", "encoder", "prompt_tuning", "but the model takes"),
    ],
)
def test_a_strategy_that_a_model_does_not_serve_is_refused_before_another_runs(
    request, tmp_path, caplog, model, family, name, said
):
    path = str(request.getfixturevalue(model))
    longest = AutoConfig.from_pretrained(path).max_position_embeddings if "bert" in model else 16
    own = {"tasks": ["scope"], "shots": 2, "model": path, "family": family}
    own |= {"max_length": longest, "steps": 2}
    config = config_with({**own, "strategies": ["naive", name]})
    with pytest.raises(InputError, match=said):
        compare(config, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    group = "ablations" if name.startswith("grafting") else "all"
    kept = keep_able_strategies(config_with({**own, "strategies": [group]}))
    assert name not in kept.comparison.strategies
    assert name in caplog.text


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gdumb", {"batch_size": 1}, "gdumb takes rows of each of 2 tasks .* got 1"),
        ("agem", {"strategy_settings": {"agem": {"sample_size": 1}}}, "agem takes rows of each"),
        ("merging_by_ties", {"localizer": "base_gradient"}, "'base_gradient' makes none"),
    ],
)
def test_a_strategy_that_settings_do_not_serve_is_refused_before_another_runs(
    request, tmp_path, name, settings, said
):
    count = 3 if name == "agem" else 2
    own = {
        "tasks": [f"words-{n}" for n in range(count)],
        "data": word_tasks(),
        "shots": 2,
        "steps": 2,
    }
    own |= {"model": str(request.getfixturevalue("still_bert"))}
    config = config_with({**own, **settings, "strategies": ["naive", name]})
    with pytest.raises(InputError, match=said):
        compare(config, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
