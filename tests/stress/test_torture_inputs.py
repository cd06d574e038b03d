"""The torture part on inputs runs, and its cases hold at the level below the command line, too."""

import json
import re
from pathlib import Path

import input_files
import input_rows
import input_settings
import pytest
from benchmark_scripts import run_script
from configs import places
from input_case import Case

from cl_graft.errors import InputError
from cl_graft.settings import load_config
from cl_graft.settings.tasks import load_tasks

CASES = {
    f"{case.group}: {case.name}": case
    for case in [*input_files.cases(), *input_rows.cases(), *input_settings.cases()]
}
DATA = {
    name: case for name, case in CASES.items() if not (case.command or case.full or case.nobody)
    and case.group not in ("option", "name", "prompt and length")
}  # fmt: skip
CONFIGS = {name: case for name, case in CASES.items() if case.group == "config" and case.command}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def sets(case: Case, data: Path) -> list[str]:
    """The options of a case as settings."""
    values = {"data": str(data), "tasks": "mine", "shots": 4, "shots_short": "all"}
    given = [f"{name}={json.dumps(value)}" for name, value in places(values).items()]
    for option, value in zip(case.arguments[::2], case.arguments[1::2], strict=True):
        name = option.removeprefix("--").replace("-", "_")
        own = [f"{place}={json.dumps(value)}" for place in places({name: value})]
        given += [value] if name == "set" else own
    return given


def dotted(content: object, name: str) -> object:
    for key in name.split("."):
        content = content[key]  # type: ignore[index]
    return content


@pytest.mark.parametrize("name", [name for name, case in DATA.items() if case.code])
def test_bad_data_are_told_in_a_sentence(name, data):
    case = DATA[name]
    case.make(data)
    with pytest.raises(InputError) as caught:
        load_tasks(load_config(None, sets(case, data)).stream, seed=0)
    for said in case.says:
        assert re.search(said, str(caught.value), re.DOTALL)


@pytest.mark.parametrize("name", [name for name, case in DATA.items() if not case.code])
def test_good_data_are_taken_and_what_is_left_out_is_counted(name, data, caplog):
    case = DATA[name]
    case.make(data)
    (task,) = load_tasks(load_config(None, sets(case, data)).stream, seed=0)
    told = "\n".join([*task.source["notes"], caplog.text])
    for said in case.says:
        assert re.search(said, told, re.DOTALL)
    left_out = {Path(file).name: told["rows"] for file, told in task.source["left_out"].items()}
    assert left_out == case.left_out
    for key, expected in case.data.items():
        if key.startswith("source."):
            assert dotted(task.source, key.removeprefix("source.")) == expected


@pytest.mark.parametrize("name", CONFIGS)
def test_a_bad_config_is_told_in_a_sentence(name, data):
    case = CONFIGS[name]
    case.make(data)
    path = case.command[1].format(data=data)
    with pytest.raises(InputError) as caught:
        load_tasks(load_config(path, [f"stream.data={data}"]).stream, seed=0)
    for said in case.says:
        assert re.search(said, str(caught.value), re.DOTALL)


def test_there_are_many_kinds_each_with_a_name_of_its_own():
    every = [*input_files.cases(), *input_rows.cases(), *input_settings.cases()]
    assert len(CASES) == len(every)
    assert sum(case.code == 2 for case in every) >= 60


@pytest.mark.slow
def test_the_part_runs_through_the_command_line_and_writes_what_it_found(tmp_path):
    run_script("torture_inputs.py", "--scale", "smoke", "--out", tmp_path)
    found = json.loads((tmp_path / "inputs.json").read_text())
    assert found["part"] == "inputs"
    assert all(row["survived"] == row["cases"] > 0 for row in found["rows"])
    assert {case["code"] for case in found["cases"]} == {0, 2}
