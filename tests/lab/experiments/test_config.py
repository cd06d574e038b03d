"""Configs: what is unknown is named, what is out of range is refused, the rest has one default."""

import inspect

import pytest
from configs import config_with

from cl_graft import compare, load_model, run
from cl_graft.data import TaskSettings
from cl_graft.errors import InputError
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.runtime.settings import list_fields
from cl_graft.settings import config_from, load_config, make_config
from cl_graft.settings.parts import PARTS
from cl_graft.settings.stream_settings import StreamTaskSettings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"grafting.denstiy": 0.1}, "'grafting.denstiy'; did you mean 'grafting.density'"),
        ({"strategies": "graftin"}, "did you mean 'grafting'"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"task_settings": {"a": {"lable": "x"}}}, "'stream.task_settings.a.lable'; did you mean"),
        ({"density": 1.5}, r"grafting.density: must be in \(0, 1\]"),
        ({"shots": 0}, "stream.shots: .*got 0"),
        ({"seeds": [-1]}, "seed must be at least 0, got -1"),
        ({"localizer": "random", "keep_standalone": True}, "keep_standalone needs densely"),
        ({"localizer": "base_gradient", "retrain": False}, "retrain=False needs"),
        ({"tasks": ["a", "a"]}, "a is named twice"),
        ({"tasks": None}, "stream.tasks"),
        ({"steps": True}, "fine_tuning.steps: got True; YAML reads yes"),
        ({"fine_tuning.lr": 1e308}, r"fine_tuning.lr: a number must be at most 1e\+18, got 1e\+"),
        ({"steps": 2**64}, "fine_tuning.steps: a whole number must be below 2.64, got 18446"),
        ({"budgets": [0.1, 2.0]}, r"grafting.budgets: each must be in \(0, 1\], got \[0.1, 2.0\]"),
        ({"grafting.seed": 1}, "'grafting.seed' is set by 'comparison.seeds'"),
    ],
)
def test_a_wrong_setting_is_answered_in_one_sentence(values, said):
    with pytest.raises(InputError, match=said) as caught:
        config_with({"tasks": ["a"]} | values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"densty": 0.1}, r"'densty'; did you mean 'grafting\.density'"),
        ({"seed": 0}, r"'seed'; did you mean 'comparison\.seeds'"),
        ({"qqqqqqqq": 1}, "unknown key 'qqqqqqqq'"),
        ({"comparison": {"sweep": {"density": [0.1]}}}, r"'density' cannot be swept.*'grafting\.d"),
    ],
)
def test_a_name_outside_its_part_is_answered_with_its_place(values, said):
    with pytest.raises(InputError, match=said) as told:
        config_from({"stream": {"tasks": ["a"]}, **values})
    assert len(str(told.value)) < 300


def test_a_config_is_given_as_one_as_settings_or_as_a_file(tmp_path):
    values, path = {"stream": {"tasks": ["scope"]}}, tmp_path / "stream.yaml"
    path.write_text("stream:\n  tasks: [scope]\n")
    config = config_from(values)
    assert config == make_config(config) == make_config(values)
    assert config == make_config(path) == make_config(str(path))


@pytest.mark.parametrize("work", [run, compare])
def test_running_and_comparing_take_settings_as_they_are_written(work, tmp_path):
    with pytest.raises(InputError, match=r"'stream\.tasks' is missing"):
        work({}, out=tmp_path)
    with pytest.raises(InputError, match=r"none\.yaml"):
        work(tmp_path / "none.yaml", out=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read"),
        (b"stream:\n\ttasks: mine\n", r"yaml:2: .*spaces, not tabs"),
        (b"model: {}\nmodel: {}\n", r"yaml:2: .*'model' is given twice"),
        (b"a: &a [x]\nb: [*a, *a, *a]\n", r"yaml:2: .*alias \*a"),
        (b"out: !!python/object:os.system {}\n", "not a YAML file"),
        (b"", "expected 'name: value' lines, got NoneType"),
        (b"model: {name: 'a\0b'}\n", r"yaml:1: .*U\+0000"),
        ("stream: {}\n".encode("utf-16"), r"yaml:1: byte 0xff is not utf-8"),
        (b"# caf\xe9\n", r"yaml:1: byte 0xe9 is not"),
        (b"# " + b"x" * 1_100_000, "larger than 1 MB"),
    ],
)
def test_a_config_that_is_no_plain_yaml_is_told_with_its_line(tmp_path, text, said):
    if text is not None:
        (tmp_path / "stream.yaml").write_bytes(text)
    with pytest.raises(InputError, match=said):
        load_config(tmp_path / "stream.yaml")


def test_a_setting_that_runs_set_is_answered_with_its_place():
    with pytest.raises(InputError, match=r"^--set: 'grafting\.seed' is set by"):
        load_config(None, ["stream.tasks=[a]", "grafting={seed: 1}"])


def test_every_field_is_described_and_only_tasks_has_no_default():
    for part, cls in {**PARTS, "task": StreamTaskSettings}.items():
        for name, described in list_fields(cls).items():
            assert described.description, (part, name)
            assert described.is_required() == (name == "tasks")


def test_defaults_are_those_of_the_library():
    config = config_with({"tasks": ["a"]})
    library = GraftingSettings()
    for name in list_fields(GraftingSettings):
        assert getattr(config.grafting, name) == getattr(library, name)


def test_a_number_may_be_written_with_an_exponent_alone():
    sets = ["stream.tasks=[12e4567]", "comparison.strategy_settings.lora.lr=1e-3"]
    config = load_config(None, [*sets, "grafting.modules={mlp: 2e-1, attention: 1E+0}"])
    assert config.comparison.strategy_settings == {"lora": {"lr": 0.001}}
    assert config.grafting.modules == {"mlp": 0.2, "attention": 1.0}
    assert config.stream.tasks == ["12e4567"]


def test_lists_may_be_written_with_commas():
    config = config_with({"tasks": "a, b", "strategies": "naive", "seeds": "0,2"})
    assert config.stream.tasks == ["a", "b"]
    assert (config.comparison.strategies, config.comparison.seeds) == (["naive"], [0, 2])


def test_the_paper_preset_fills_only_what_is_left_open():
    config = config_with({"tasks": "a", "preset": "paper", "mask_steps": 5})
    region = config.grafting
    assert (region.localizer, region.density, region.avoid_owned) == ("paper_mask", 1e-4, False)
    assert (config.training.grid, region.mask_steps) == (True, 5)
    assert config.training.paper_steps
    assert not config_with({"tasks": "a", "preset": "paper", "steps": 5}).training.paper_steps


@pytest.mark.parametrize(
    ("values", "localizer"),
    [
        ({}, "random"),
        ({"localizer": "snip"}, "snip"),
        ({"preset": "fast"}, "base_gradient"),
        ({"family": "seq2seq_lm"}, "movement_by_tensor"),
        ({"retrain": False}, "movement_by_tensor"),
        ({"keep_standalone": True}, "movement_by_tensor"),
        ({"dense_share": 1.0}, "movement_by_tensor"),
        ({"sweep": {"dense_share": [0.2, 1.0]}}, "movement_by_tensor"),
    ],
)
def test_a_causal_model_has_random_regions_unless_a_dense_run_is_asked_for(values, localizer):
    config = config_with({"tasks": "a", "family": "causal_lm", **values})
    assert config.grafting.localizer == localizer
    assert config_from(config.values()) == config


def test_a_file_is_read_and_overridden_by_sets(tmp_path):
    path = tmp_path / "stream.yaml"
    path.write_text("stream: {tasks: [a, b], shots: 4}\nfine_tuning: {lr: 1e-3}\ngrafting:\n")
    sets = ["stream.shots=9", "stream.task_settings.a.label=stars", "comparison.seeds=[1, 2]"]
    sets.append("grafting.density=0.01")
    config = load_config(path, sets)
    assert (config.stream.tasks, config.stream.shots) == (["a", "b"], 9)
    assert config.fine_tuning.lr == 1e-3
    assert config.stream.task_settings["a"].label == "stars"
    assert config.comparison.seeds == [1, 2]
    assert config.grafting.density == 0.01


@pytest.mark.parametrize(
    "override", ["shots", "=3", "a..b=3", "stream.shots.x=3", "stream.shots=[1"]
)
def test_an_override_that_cannot_be_read_is_refused(tmp_path, override):
    path = tmp_path / "stream.yaml"
    path.write_text("stream: {tasks: [a], shots: 4}\n")
    with pytest.raises(InputError, match="--set"):
        load_config(path, [override])


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0", [0]), ("0-2", [0, 1, 2]), ("0-2,5", [0, 1, 2, 5]), (" 7 , 1 - 2", [7, 1, 2])],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert config_with({"tasks": "a", "seeds": text}).comparison.seeds == seeds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2-0", "from the lower to the higher, over at most 10,000, got '2-0'"),
        ("0-", "numbers and ranges such as 0,1,2 or 0-2,5, got '0-'"),
        ("1,,2", "numbers and ranges"),
        ("0-2,1", "1 is named twice"),
    ],
)
def test_a_bad_range_of_seeds_is_told_in_a_sentence(text, said):
    with pytest.raises(InputError, match=said):
        config_with({"tasks": "a", "seeds": text})


def test_a_fault_is_told_of_where_it_was_given(tmp_path):
    path = tmp_path / "stream.yaml"
    path.write_text("stream: {tasks: [a], task_settings: {a: {lable: x}}}\nfine_tuning: {lrr: 1}\n")
    sets = ["fine_tuning.stepz=3", "stream.task_settings.a.metrik=f1"]
    options = {"fine_tuning.batch_size": 0, "stream.shots": 9}
    with pytest.raises(InputError) as told:
        load_config(path, sets, options=options, origins={"fine_tuning.batch_size": "--batch-size"})
    text = str(told.value)
    for origin, said in [
        (f"{path}: ", ["lable'", "unknown key 'fine_tuning.lrr'; did you mean 'fine_tuning.lr'"]),
        ("--set: ", ["metrik'", "unknown key 'fine_tuning.stepz'; did you mean 'fine_tuning.st"]),
        ("--batch-size: ", ["batch_size: Input should be"]),
    ]:
        begins = text.index(origin)
        others = [text.find(o, begins + 1) for o in (f"{path}: ", "--set: ", "--batch-size: ")]
        ends = min((place for place in others if place > 0), default=len(text))
        assert all(part in text[begins:ends] for part in said), text


@pytest.mark.parametrize("sets", [[], ["stream.data=rows"]])
def test_a_list_in_place_of_a_part_is_told_as_such(tmp_path, sets):
    path = tmp_path / "stream.yaml"
    path.write_text("stream: [mine]\n")
    with pytest.raises(InputError, match=r"'stream' is a part with settings of its own .*mine"):
        load_config(path, sets)


@pytest.mark.parametrize(
    ("function", "part", "names"),
    [
        (load_model, "model", ["family", "pooling", "dtype", "precision", "trust_remote_code"]),
        (TaskSettings, "stream", ["on_bad_row", "max_train"]),
    ],
)
def test_a_setting_has_the_default_of_the_function_that_takes_it(function, part, names):
    parameters = inspect.signature(function).parameters
    config = config_from({"stream": {"tasks": ["topic"]}})
    for name in names:
        assert parameters[name].default == getattr(getattr(config, part), name), name
