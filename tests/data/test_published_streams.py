"""The field's streams are data: read, checked and refused before anything is computed."""

import gzip
import json
import logging

import pytest
from configs import config_with

from cl_graft.data.streams import PUBLISHED, STREAMS, expand_streams, find_stream, read_stream_file
from cl_graft.errors import InputError
from cl_graft.settings import config_from, load_config
from cl_graft.settings.tasks import load_tasks

SHIPPED = {
    name: stream
    for path in sorted(PUBLISHED.glob("*.yaml"))
    for name, stream in read_stream_file(path).items()
}

ORDERS = {"long15": (4, 5, 6), "standard": (1, 2, 3), "superni": (1, 2), "sgd": range(1, 7)}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_published_stream_has_a_source_and_settings_that_a_config_takes(name, tmp_path):
    stream = SHIPPED[name]
    assert find_stream(name).tasks() == stream.tasks()
    assert stream.title
    assert stream.as_published
    assert "arXiv" in stream.source
    config = config_with({"stream.name": name, "data": str(tmp_path)})
    assert config.stream.tasks == stream.tasks()
    assert set(config.stream.task_settings) <= set(config.stream.tasks)
    assert config_from(config.values()) == config
    for result in stream.published:
        assert "Table" in result.source
        assert result.average is not None or set(result.by_task) == set(stream.tasks())


def test_orders_hold_the_same_tasks():
    for family, numbers in ORDERS.items():
        orders = [SHIPPED[f"{family}-order{n}"].tasks() for n in numbers]
        assert len({tuple(order) for order in orders}) == len(numbers)
        assert len({frozenset(order) for order in orders}) == 1


def test_a_config_may_take_some_tasks_in_another_order_and_set_what_it_likes(tmp_path):
    own = {"mnli": {"metric": "f1"}}
    config = config_with(
        {"stream.name": "long15-order4", "data": str(tmp_path), "shots": 4, "task_settings": own},
        tasks="cb,mnli",
    )
    assert config.stream.tasks == ["cb", "mnli"]
    assert (config.stream.shots, config.stream.max_length) == (4, 512)
    settings = config.stream.task_settings
    assert set(settings) == {"cb", "mnli"}
    assert (settings["mnli"].rows_from, settings["mnli"].metric) == ("long15/mnli", "f1")


def test_unknown_streams_and_tasks_and_a_missing_folder_are_refused_by_the_config(tmp_path):
    with pytest.raises(InputError, match=r"unknown stream 'long15-ordr4': did you mean 'long15-o"):
        config_with({"stream.name": "long15-ordr4"})
    with pytest.raises(InputError, match=r"has no task 'mnly'; did you mean 'mnli'\?"):
        config_with({"stream.name": "inference", "tasks": "mnly"})
    with pytest.raises(InputError, match=r"--data DIR.*holds long15/mnli/train\.jsonl"):
        config_with({"stream.name": "long15-order4"})
    with pytest.raises(InputError, match=r"--data DIR"):
        expand_streams(["long15-order4"])


def test_a_folder_that_lacks_tasks_is_refused_with_all_of_them(tmp_path):
    (tmp_path / "long15" / "amazon").mkdir(parents=True)
    (tmp_path / "long15" / "amazon" / "train.csv").write_text("text,label\na,b\n")
    named = {"stream.name": "standard-order1"}
    with pytest.raises(InputError) as refused:
        load_tasks(config_with({**named, "data": str(tmp_path)}).stream, seed=0)
    said = str(refused.value)
    assert "there is no data for dbpedia, yahoo, agnews" in said
    assert f"{tmp_path / 'long15' / 'dbpedia'}/train.jsonl" in said
    nowhere = tmp_path / "nowhere"
    with pytest.raises(InputError, match=f"{nowhere}: there is no such file or folder"):
        load_tasks(config_with({**named, "data": str(nowhere)}).stream, seed=0)


OWN = """
title: Two tasks.
tasks: {scope: null, topic: {metric: f1}}
protocol: {shots: 8, max_test: 10, data: rows}
pitfalls: [Both are made up.]
"""


def test_a_file_of_ones_own_is_a_stream(tmp_path, caplog):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    with caplog.at_level(logging.WARNING):
        config = load_config(None, options={"stream.name": str(file)})
    assert caplog.messages == [f"stream {file}: Both are made up."]
    assert config.stream.tasks == ["scope", "topic"]
    assert config.stream.data == tmp_path / "rows"
    assert config.stream.task_settings["topic"].metric == "f1"


def test_a_file_of_several_orders_is_asked_for_one(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("tasks: {a: null, b: null}\norders: {ab: [a, b], ba: [b, a]}\n")
    assert find_stream(f"{file}:ba").tasks() == ["b", "a"]
    with pytest.raises(InputError, match=r"name one of its streams, as in .*two\.yaml:ab"):
        find_stream(str(file))
    with pytest.raises(InputError, match=r"there is no stream 'b'; "):
        find_stream(f"{file}:b")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tsks: {a: null}", "unknown key 'tsks'; did you mean 'tasks'"),
        ("tasks: {}", "tasks: "),
        ("tasks: {a: null}\norders: {x: [a, b]}", "orders.x: 'b' is not among the tasks"),
        ("tasks: {a: null}\norders: {x: [a, a]}", "orders.x: each task once"),
        ("tasks: {a: null}\norders: {'x/y': [a]}", "has no comma, colon or slash"),
        ("tasks: {a: null}\nprotocol: {lr: 1}", "protocol: no setting 'lr' there"),
        ("tasks: {a: null}\npublished: [{method: m}]", "'published.0.model' is missing"),
        ("- a", "expected 'name: value' lines"),
    ],
)
def test_what_a_file_may_not_hold_is_named_with_the_file(tmp_path, text, sentence):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        find_stream(str(file))
    assert str(refused.value).startswith(f"{file}: ")
    assert sentence in str(refused.value)


def test_a_fault_is_told_with_the_tasks_own_name_where_its_rows_are_elsewhere(tmp_path):
    (tmp_path / "shared.csv").write_text("text,label\na,b\n")
    own = {"mine": {"rows_from": "shared", "where": {"site": "north"}}}
    config = config_with(tasks="mine", data=str(tmp_path), task_settings=own)
    with pytest.raises(InputError, match=r"task 'mine': .*shared\.csv: there is no column 'site'"):
        load_tasks(config.stream, seed=0)


@pytest.mark.parametrize("name", ["long15", "superni", "sgd"])
def test_the_orders_are_those_of_the_folder(name, data_dir):
    orders = json.loads((data_dir / name / "orders.json").read_text())["orders"]
    for number, tasks in orders.items():
        family = "standard" if name == "long15" and int(number) < 4 else name
        assert SHIPPED[f"{family}-order{number}"].tasks() == tasks


def test_instructions_of_long15_are_the_published_prompts(data_dir):
    named = {"stream.name": "long15-order4-instructions", "data": str(data_dir)}
    (task,) = load_tasks(config_with(named, tasks="cb").stream, seed=0)
    folder = data_dir / "long15" / "cb"
    template = json.loads((folder / "meta.json").read_text())["prompt"]["template"]
    with gzip.open(folder / "test.jsonl.gz", "rt") as file:
        given = [json.loads(line) for line in file]
    assert any("input" in row for row in given)
    for row, asked in zip(task.test, given, strict=True):
        text = f"{row.text_pair}\n{row.text}\nAnswer:"
        assert text == asked.get("input", template.format(**asked))
        assert row.content[2] == [asked["label"]]


def test_the_published_folder_of_trace_is_read_as_it_is(tmp_path):
    for name in ("C-STANCE", "NumGLUE-cm"):
        (tmp_path / name).mkdir()
        for split, count in {"train": 6, "eval": 2, "test": 3}.items():
            rows = [{"prompt": f"{name} {split} {n}?\n", "answer": str(n)} for n in range(count)]
            (tmp_path / name / f"{split}.json").write_text(json.dumps(rows))
    named = {"stream.name": "trace", "data": str(tmp_path)}
    tasks = load_tasks(config_with(named, tasks="C-STANCE,NumGLUE-cm").stream, seed=0)
    assert [(task.name, task.kind, task.metric) for task in tasks] == [
        ("C-STANCE", "text2text", "text_match"),
        ("NumGLUE-cm", "text2text", "text_match"),
    ]
    assert [(len(task.train), len(task.dev), len(task.test)) for task in tasks] == [(6, 2, 3)] * 2
    assert tasks[0].train[1].content[:3] == ["C-STANCE train 1?\n", None, ["1"]]
    assert tasks[0].causal_prompt.template == "{input}"


KINDS_OF = {
    **{name: "text2text" for name in SHIPPED if name.startswith(("superni", "sgd"))},
    **{name: "text2text" for name in SHIPPED if name.endswith("-instructions")},
    **{"atis-snips": "tagging", "crossner-domains": "tagging", "subjqa-domains": "extractive_qa"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHIPPED if name != "trace"])
def test_every_task_of_a_stream_loads(name, data_dir):
    stream = config_with({"stream.name": name, "data": str(data_dir)}).stream
    tasks = load_tasks(stream, seed=0)
    assert [task.name for task in tasks] == STREAMS[name].tasks()
    for task in tasks:
        assert task.kind == KINDS_OF.get(name, "classification")
        assert all(task.splits.values())
