"""A stream's name stands for its tasks and the settings of its protocol."""

import pytest
from configs import config_with
from own_registries import install_package
from warm_processes import printed_by

from cl_graft.data import BUILT_IN
from cl_graft.data.streams import STREAMS, Stream, expand_streams, register_stream
from cl_graft.errors import InputError


def test_a_stream_stands_for_its_tasks_among_others(own_registries):
    register_stream("pair", shots=7)(lambda: ["scope", "entailment"])
    expected = ["topic", "scope", "entailment"]
    assert expand_streams(["topic", "pair"]) == (expected, {"shots": 7})


def test_the_streams_of_this_package_are_registered():
    assert expand_streams(["built_in"])[0] == [*BUILT_IN]


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


PACKAGE = """
from pathlib import Path

from cl_graft.data import register_stream

DATA = Path(__file__).parent / "data"


@register_stream("tickets", source="https://example.org/tickets", shots=4, scenario="domain")
def tickets():
    return [DATA / "mail.csv", DATA / "chat.csv"]
"""


@pytest.fixture
def packages(tmp_path):
    """A folder with two installed packages: one with the stream "tickets", and a broken one."""
    for name, module, value in (
        ("my_streams", PACKAGE, "my_streams"),
        ("broken", "raise RuntimeError('no compass')\n", "broken:streams"),
    ):
        install_package(tmp_path, name, module, group="cl_graft.streams", **{name: value})
    (tmp_path / "data").mkdir()
    for task in ("mail", "chat"):
        rows = [f"{task} {n} {label},{label}" for n in range(20) for label in ("bill", "crash")]
        (tmp_path / "data" / f"{task}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return tmp_path


USE = """
import sys

sys.path.insert(0, sys.argv[1])
from cl_graft.errors import InputError
from cl_graft.settings import config_from
from cl_graft.settings.tasks import load_tasks
from cl_graft.data import load_task

config = config_from({"stream": {"tasks": "tickets"}})
tasks = load_tasks(config.stream, seed=0)
print(config.stream.scenario, *(f"{task.name} {len(task.train)}" for task in tasks))
try:
    load_task("tickts")
except InputError as error:
    print(error)
"""


def test_the_stream_of_an_installed_package_is_loaded_and_a_broken_one_is_named(packages):
    loaded, error = printed_by(USE, str(packages)).splitlines()
    assert loaded == "domain mail 8 chat 8"
    assert error == (
        "unknown task 'tickts'; did you mean 'tickets'?; the entry point 'broken' "
        "(broken:streams) of the package broken cannot be loaded: RuntimeError: no compass"
    )
