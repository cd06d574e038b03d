"""Sizing: every strategy as large as a number of bytes a task allows, and really no larger."""

import functools
import json

import pytest
from configs import changed, config_with
from safetensors.torch import load_file
from slow_cases import slow

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare, resize_strategy, sizes_within
from cl_graft.lab.experiments.run import run
from cl_graft.lab.results.comparison import Size
from cl_graft.runtime.byte_sizes import largest_within
from cl_graft.settings.bank_metadata import load_base_model
from cl_graft.settings.tasks import load_tasks
from cl_graft.strategies.registry import list_available

BUDGET = 12_000
GRAFTS = ["grafting", "lt_sft", "grafting_by_discriminant"]
SIZED = [*GRAFTS, "merging_by_average", "lora", "o_lora", "adapters", "prompt_tuning"]
ROWS = ["replay", "er_ace", "der", "agem"]
FIXED = ["bitfit", "ia3", "piggyback", "wsn", "packnet"]
FAST = ["grafting", "lora"]
"""Of what has a size to set, an entry of a bank and a part of a model."""


@pytest.fixture(scope="module")
def config(tiny_config):
    small = {"tasks": ["scope", "topic"], "steps": 4, "shots": 8, "max_test": 20}
    return changed(tiny_config, small | {"strategies": list_available()})


@pytest.fixture(scope="module")
def fits(config):
    """Sizes and refusals of all strategies at a budget."""
    loaded, tasks = load_base_model(config.model), load_tasks(config.stream, seed=0)

    def at(budget, **values):
        return sizes_within(budget, changed(config, values), loaded, tasks)

    return at


@pytest.fixture(scope="module")
def fits_once(fits):
    """The same, found once a budget."""
    return functools.cache(fits)


@pytest.mark.parametrize(("budget", "largest"), [(6.9, 2), (7.0, 2), (0, None), (1e9, 50)])
def test_the_largest_within_a_budget_is_found(budget, largest):
    if largest is None:
        with pytest.raises(InputError, match="at its smallest a task adds 3 bytes"):
            largest_within(budget, lambda value: 3 * value, least=1, most=50)
    else:
        assert largest_within(budget, lambda value: 3 * value, least=1, most=50) == largest


def test_what_fits_has_a_size_and_what_does_not_a_reason(fits):
    sizes, unmet = fits(BUDGET)
    assert {*sizes, *unmet} == set(list_available())
    for name in SIZED + ROWS:
        assert sizes[name].setting
        assert 0 < sizes[name].bytes <= BUDGET
    for name in ("naive", "joint", "independent"):
        assert sizes[name] == Size()
    assert unmet["ewc"] == "there is no size to set: it adds two copies of the trained weights"
    larger, _ = fits(2 * BUDGET)
    for name in SIZED + ROWS:
        assert larger[name].value > sizes[name].value


def test_what_is_too_large_at_its_smallest_says_how_large_that_is(fits):
    _, unmet = fits(1_700)
    for name in ("grafting", "lora"):
        assert unmet[name].startswith("at its smallest a task adds ")
    for name in ("wsn", "packnet"):
        assert unmet[name].endswith("bytes, and it has no size to set")


def test_columns_that_do_not_fit_as_a_whole_are_not_promised(fits):
    assert fits(3_600, localizer="movement", strategies=["grafting"])[0]
    with pytest.raises(InputError, match="at its smallest a task adds"):
        fits(3_600, localizer="random_columns", strategies=["grafting"])


def test_in_16_bits_as_many_bytes_hold_twice_as_many_numbers_of_a_lora(config):
    ranks, tasks = [], load_tasks(config.stream, seed=0)
    for dtype in ("float32", "float16"):
        own = changed(config, {"strategies": ["lora"], "dtype": dtype})
        ranks += [sizes_within(40_000, own, load_base_model(own.model), tasks)[0]["lora"].value]
    assert ranks[1] >= 2 * ranks[0]


def test_a_size_that_the_config_gives_stays(fits):
    given = {"adapters": {"size": 2}, "lora": {"rank": 500}}
    sizes, unmet = fits(BUDGET, strategy_settings=given)
    assert sizes["adapters"].value == 2
    assert unmet["lora"].endswith("bytes, with the rank that the config sets")


def test_where_nothing_fits_that_is_an_error(fits):
    with pytest.raises(InputError, match="no strategy can be sized to 10 bytes a task: grafting:"):
        fits(10, strategies=["grafting", "naive"])


@pytest.mark.parametrize(
    "name", [*FAST, *slow(*(name for name in [*SIZED, *ROWS, *FIXED] if name not in FAST))]
)
def test_what_is_stored_is_what_was_reckoned(fits_once, config, tmp_path, name):
    budget = 60_000 if name in FIXED else BUDGET
    if name in ROWS:
        budget = 3_500  # less than all rows there are
    sizes, unmet = fits_once(budget)
    assert name in sizes, unmet
    own = resize_strategy(config, name, sizes[name])
    stored = run(
        own, strategy=name, seed=0, out=tmp_path, tasks=load_tasks(config.stream, seed=0)
    ).bytes
    mean = sum(stored.values()) / len(stored)
    assert mean <= budget
    # A smaller head than the widest; of an entry also the padding of its recorded batch.
    assert mean > sizes[name].bytes - (1_200 if name in GRAFTS else 600)


@pytest.mark.parametrize(("localizer", "more"), [("columns", 1.07), ("random", 1.08)])
def test_columns_and_drawn_weights_need_no_index_so_more_of_them_fit(
    fits, config, tmp_path, localizer, more
):
    own = {"localizer": localizer, "strategies": ["grafting"]}
    sizes, _ = fits(BUDGET, **own)
    config = resize_strategy(changed(config, own), "grafting", sizes["grafting"])
    tasks = load_tasks(config.stream, seed=0)
    stored = run(config, strategy="grafting", seed=0, out=tmp_path, tasks=tasks).bytes
    assert sizes["grafting"].bytes - 1_200 < sum(stored.values()) / 2 <= BUDGET
    files = [load_file(path) for path in tmp_path.rglob("entries/*")]
    assert ["owned.index" in file for file in files] == [localizer != "random"] * 2
    scattered, _ = fits(BUDGET, strategies=["grafting"])
    assert sizes["grafting"].value > more * scattered["grafting"].value


def test_a_comparison_at_equal_bytes_tells_sizes_stored_bytes_and_refusals(tmp_path, config):
    names = ["naive", "bitfit", "adapters", "ewc"]
    equal = changed(config, {"strategies": names, "bytes_per_task": BUDGET})
    comparison = compare(equal, out=tmp_path)
    assert [cell.strategy for cell in comparison.runs] == names[:3]
    assert comparison.failed == ()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["budget"]["bytes_per_task"] == BUDGET
    assert set(summary["budget"]["unmet"]) == {"ewc"}
    size = summary["budget"]["sizes"]["adapters"]
    adapters = comparison.runs[2]
    assert adapters.settings["size"] == size["value"]
    assert max(adapters.bytes.values()) <= BUDGET
    told = (tmp_path / "summary.md").read_text()
    assert "## At most 12,000 bytes a task" in told
    assert (
        "- Cannot meet it: ewc: there is no size to set: it adds two copies of the trained weights"
        in told
    )

    steps = []
    compare(equal, out=tmp_path, progress=steps.append)
    assert {step.phase for step in steps} == {"reused"}


def test_bytes_are_written_with_their_unit(config, tmp_path):
    sized = config_with({"tasks": ["scope"], "bytes_per_task": "100kB"})
    assert sized.comparison.bytes_per_task == 100_000
    with pytest.raises(InputError, match="cl-graft compare takes them"):
        run(sized, strategy="naive", seed=0, out=tmp_path)
    with pytest.raises(InputError, match="no size of memory: 'much'"):
        config_with({"tasks": ["scope"], "bytes_per_task": "much"})
