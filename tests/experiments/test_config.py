"""Configs: what is unknown is named, what is out of range is refused, the rest has one default."""

import pytest

from cl_graft.errors import InputError
from cl_graft.experiments.config import ExperimentConfig, TaskSettings, config_from, load_config


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"denstiy": 0.1}, "did you mean 'density'"),
        ({"strategies": "graftin"}, "did you mean 'grafting'"),
        ({"localizer": "movment"}, "did you mean 'movement'"),
        ({"family": "encodr"}, "did you mean 'encoder'"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"task_settings": {"a": {"lable": "x"}}}, "did you mean 'label'"),
        ({"density": 0}, r"density: must be in \(0, 1\]"),
        ({"density": 1.5}, r"density: must be in \(0, 1\]"),
        ({"shots": 0}, "shots: .*got 0"),
        ({"seeds": [-1]}, "seed must be at least 0, got -1"),
        ({"localizer": "random", "density": "auto"}, "density='auto' needs densely"),
        ({"localizer": "base_gradient", "region_start": "tuned"}, "region_start='tuned' needs"),
        ({"localizer": "base_gradient", "keep_standalone": True}, "keep_standalone needs densely"),
        ({"tasks": ["a", "a"]}, "a is named twice"),
        ({"tasks": []}, "tasks"),
        ({"tasks": None}, "tasks"),
    ],
)
def test_a_wrong_setting_is_answered_in_one_sentence(values, said):
    with pytest.raises(InputError, match=said) as caught:
        config_from({"tasks": ["a"]} | values)
    assert "\n" not in str(caught.value)


def test_a_config_without_tasks_says_so():
    with pytest.raises(InputError, match="'tasks' is missing"):
        config_from({})


def test_every_field_is_described_and_only_tasks_has_no_default():
    for model in (ExperimentConfig, TaskSettings):
        for name, described in model.model_fields.items():
            assert described.description, name
            assert described.is_required() == (name == "tasks")


def test_lists_may_be_written_with_commas():
    config = config_from({"tasks": "a, b", "strategies": "naive", "seeds": "0,2"})
    assert (config.tasks, config.strategies, config.seeds) == (["a", "b"], ["naive"], [0, 2])


def test_the_paper_preset_fills_only_what_is_left_open():
    config = config_from({"tasks": "a", "preset": "paper", "mask_steps": 5})
    assert (config.localizer, config.density, config.refill) == ("paper_mask", 1e-4, False)
    assert (config.grid, config.mask_steps) == (True, 5)


def test_a_file_is_read_and_overridden_by_sets(tmp_path):
    path = tmp_path / "stream.yaml"
    path.write_text("tasks: [a, b]\nshots: 4\nlr: 1e-3\n")
    config = load_config(path, ["shots=9", "task_settings.a.label=stars", "seeds=[1, 2]"])
    assert (config.tasks, config.shots, config.lr) == (["a", "b"], 9, 1e-3)
    assert config.task_settings["a"].label == "stars"
    assert config.seeds == [1, 2]


@pytest.mark.parametrize("override", ["shots", "=3", "a..b=3", "shots.x.y=3", "shots=[1"])
def test_an_override_that_cannot_be_read_is_refused(tmp_path, override):
    path = tmp_path / "stream.yaml"
    path.write_text("tasks: [a]\nshots: 4\n")
    with pytest.raises(InputError, match="--set"):
        load_config(path, [override])


def test_files_that_are_no_config_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        load_config(tmp_path / "missing.yaml")
    for text in ("- a\n- b\n", "tasks: [a\n", "just words"):
        path = tmp_path / "wrong.yaml"
        path.write_text(text)
        with pytest.raises(InputError, match=r"wrong\.yaml"):
            load_config(path)


def test_a_cell_leaves_out_which_cells_there_are():
    config = config_from({"tasks": "a"})
    other = config_from({"tasks": "a", "strategies": "naive", "seeds": "3"})
    assert config.cell() == other.cell()
    assert config.cell() != config_from({"tasks": "a", "shots": 3}).cell()


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0", [0]), ("0-2", [0, 1, 2]), ("0-2,5", [0, 1, 2, 5]), (" 7 , 1 - 2", [7, 1, 2])],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert config_from({"tasks": "a", "seeds": text}).seeds == seeds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2-0", "from the lower to the higher, over at most 10,000, got '2-0'"),
        ("0-10000", "over at most 10,000"),
        ("0-", "numbers and ranges such as 0,1,2 or 0-2,5, got '0-'"),
        ("-1", "numbers and ranges"),
        ("1,,2", "numbers and ranges"),
        ("0-2,1", "1 is named twice"),
    ],
)
def test_a_bad_range_of_seeds_is_told_in_a_sentence(text, said):
    with pytest.raises(InputError, match=said):
        config_from({"tasks": "a", "seeds": text})


def test_a_fault_is_told_of_where_it_was_given(tmp_path):
    path = tmp_path / "stream.yaml"
    path.write_text("tasks: [a]\nlrr: 1\ntask_settings: {a: {lable: x}}\n")
    sets = ["stepz=3", "task_settings.a.metrik=f1"]
    with pytest.raises(InputError) as told:
        load_config(path, sets, options={"batch_size": 0, "shots": 9})
    text = str(told.value)
    for origin, said in [
        (f"{path}: ", ["unknown key 'lable'", "unknown key 'lrr'; did you mean 'lr'"]),
        ("--set: ", ["unknown key 'metrik'", "unknown key 'stepz'; did you mean 'steps'"]),
        ("--batch-size: ", ["batch_size: Input should be"]),
    ]:
        begins = text.index(origin)
        others = [text.find(o, begins + 1) for o in (f"{path}: ", "--set: ", "--batch-size: ")]
        ends = min((place for place in others if place > 0), default=len(text))
        assert all(part in text[begins:ends] for part in said), text


@pytest.mark.parametrize("key", ["stepz", "qqqqqqqq"])
def test_a_hint_names_few_of_many_keys(key):
    with pytest.raises(InputError) as told:
        config_from({"tasks": "a", key: 1})
    assert len(str(told.value)) < 300


def test_a_large_density_is_warned_of(caplog):
    load_config(None, ["tasks=[a]", "density=0.05"])
    assert caplog.text == ""
    load_config(None, ["tasks=[a]", "density=0.9"])
    assert "density 0.9 puts 90% of the weights into each task's region" in caplog.text
