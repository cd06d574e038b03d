"""One task is localized: the graft file answers as the table says, and pictures are there."""

import json

import pytest
from kind_data import KINDS_OF_TASKS, write_kinds
from papers.bench import Bench
from slow_cases import slow
from typer.testing import CliRunner

from cl_graft.cli.app import app
from cl_graft.lab.experiments.localized_task import localize_task
from cl_graft.settings import load_config
from cl_graft.storage import load_graft
from cl_graft.storage.cache_folder import DirectoryCache

pytestmark = pytest.mark.usefixtures("one_penalty")

SETS = (
    *("stream.shots=8", "stream.max_length=24", "stream.max_dev=16", "stream.max_test=24"),
    *("fine_tuning.steps=4", "fine_tuning.evaluations=1"),
)


def config_of(model, *sets):
    """Return the config of the task scope with few rows and steps."""
    return load_config(None, [f"model.name={model}", "stream.tasks=[scope]", *sets, *SETS])


@pytest.fixture
def blank_pictures(monkeypatch):
    """Leave pictures blank where a test looks at none: they take longer than a tiny task."""
    monkeypatch.setattr("cl_graft.lab.experiments.localized_task.png", lambda figure, dpi: b"")


def test_a_task_is_localized_into_a_graft_file_numbers_and_pictures(tiny_bert, tmp_path):
    sets = [f"model.name={tiny_bert}", "grafting.mask_steps=2", "grafting.mask_batch=16", *SETS]
    asked = ["localize", "scope", "--density", "0.01", "--out", str(tmp_path), "--json"]
    asked += [word for value in sets for word in ("--set", value)]
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert said["coordinates"] == numbers["coordinates"]
    scores = said["scores"]
    assert set(scores) == {"fine-tuning", "graft", "re-trained graft"}
    assert sum(place["share"] for place in numbers["anatomy"]) == pytest.approx(1.0)
    for name in ("densities", "anatomy"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000, name

    config = load_config(None, ["stream.tasks=[scope]", "grafting.density=0.01", *sets])
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path / "cache"))
    task = bench.task(0)
    stored = load_graft(tmp_path / "graft.safetensors", expect=bench.identity.fingerprint)
    assert stored.task == "scope"
    assert len(stored.graft.region) == said["coordinates"]
    head = {name: stored.head[name.rpartition("heads.0.")[2]] for name in task.head}
    assert bench.graft_answers(0, stored.graft, head).score == scores["graft"]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return write_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("kind", ["regression", "tagging", *slow("extractive_qa")])
def test_tasks_of_other_kinds_are_localized(kind, kinds, tiny_bert, tmp_path):
    name, _ = KINDS_OF_TASKS[kind]
    sets = [f"stream.tasks=[{name}]", f"stream.data={kinds}", "grafting.localizer=movement"]
    asked = [f"model.name={tiny_bert}", "stream.shots=null", "grafting.density=0.01", *sets]
    found = localize_task(
        load_config(None, [*[s for s in SETS if "shots" not in s], *asked]), out=tmp_path
    )
    stored = load_graft(tmp_path / "graft.safetensors")
    assert len(stored.graft.region) == found.coordinates


@pytest.mark.usefixtures("blank_pictures")
def test_a_task_is_localized_by_prompts(tiny_bert, tmp_path):
    sets = ("model.family=masked_lm", "grafting.localizer=movement", "grafting.density=0.01")
    localize_task(config_of(tiny_bert, *sets), out=tmp_path)
    assert set(load_graft(tmp_path / "graft.safetensors").head) == {"token_ids"}
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["config"]["model"]["family"] == "masked_lm"
