"""A stream's name stands for its tasks and the settings of its protocol."""

import pytest
from configs import config_with

from cl_graft.data.streams import STREAMS, Stream, expand_streams, register_stream
from cl_graft.errors import InputError


def test_a_stream_stands_for_its_tasks_among_others(own_registries):
    register_stream("pair", shots=7)(lambda: ["scope", "entailment"])
    expected = ["topic", "scope", "entailment"]
    assert expand_streams(["topic", "pair"]) == (expected, {"shots": 7})


def test_a_config_takes_the_protocol_where_it_does_not_say_otherwise(own_registries):
    own = {"scope": {"metric": "f1"}}
    register_stream("pair", shots=7, max_test=50, task_settings=own)(lambda: ["scope", "topic"])
    config = config_with({"tasks": "pair", "max_test": 20})
    assert config.stream.tasks == ["scope", "topic"]
    assert (config.stream.shots, config.stream.max_test) == (7, 20)
    assert config.stream.task_settings["scope"].metric == "f1"


def test_streams_that_disagree_are_refused_unless_the_config_decides(own_registries):
    register_stream("one", shots=7)(lambda: ["scope"])
    register_stream("other", shots=8)(lambda: ["topic"])
    with pytest.raises(InputError, match="'one' and 'other' set shots to 7 and 8"):
        expand_streams(["one", "other"])
    assert config_with({"tasks": ["one", "other"], "shots": 9}).stream.shots == 9


def test_a_stream_without_tasks_and_a_task_named_twice_are_refused(own_registries):
    register_stream("nothing")(list)
    register_stream("one")(lambda: ["scope"])
    with pytest.raises(InputError, match="the stream 'nothing' names no tasks"):
        expand_streams(["nothing"])
    with pytest.raises(InputError, match="scope is named twice"):
        config_with({"tasks": ["one", "scope"]})


@pytest.mark.parametrize("name", ["", " a", "a,b", "a/b", "hub:a"])
def test_what_a_list_of_tasks_would_read_otherwise_cannot_name_a_stream(name):
    with pytest.raises(ValueError, match="the name of a stream has no comma, colon or slash"):
        register_stream(name)


def test_a_protocol_sets_nothing_but_the_stream():
    with pytest.raises(ValueError, match="a protocol cannot set lr; it can set scenario, "):
        register_stream("fast", lr=0.1)


def test_a_stream_is_registered_once(own_registries):
    STREAMS.register("one", Stream(list))
    with pytest.raises(ValueError, match="a stream 'one' is registered already"):
        register_stream("one")(list)
