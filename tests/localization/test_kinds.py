"""Every localizer runs on every kind of tasks."""

import pytest
import torch
from answer_data import answer_folder
from kind_data import KINDS_OF_TASKS, write_kinds
from localization.planted import FEW
from papers.bench import Bench
from slow_cases import slow_but

from cl_graft.grafts.graft import snapshot
from cl_graft.localization import LOCALIZERS
from cl_graft.localization.inputs_of_task import RowCounter, inputs_of_task
from cl_graft.localization.region_search import find_region
from cl_graft.settings import load_config
from cl_graft.storage.cache_folder import DirectoryCache


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_kinds(tmp_path_factory.mktemp("kinds"))
    # More than one batch of training rows, which some localizers score.
    answer_folder(folder / "answers", "input", train=72)
    return folder


@pytest.fixture(scope="module", params=[*KINDS_OF_TASKS, "text2text"])
def learned(request, data, tiny_bert, tiny_gpt2, tmp_path_factory):
    """A bench with one task of a kind, and its dense run."""
    text = request.param == "text2text"
    name = "answers" if text else KINDS_OF_TASKS[request.param][0]
    sets = [
        f"model.name={tiny_gpt2 if text else tiny_bert}",
        f"model.family={'causal_lm' if text else 'encoder'}",
        f"stream.tasks=[{name}]", f"stream.data={data}",
        "stream.max_length=32", "fine_tuning.steps=4", "fine_tuning.batch_size=8",
        "fine_tuning.evaluations=1", "grafting.density=0.01", "grafting.mask_steps=2",
        "grafting.mask_batch=4",
    ]  # fmt: skip
    cache = DirectoryCache(tmp_path_factory.mktemp("cache"))
    bench = Bench(
        load_config(None, sets), data_seed=0, cache=cache, kinds=(*KINDS_OF_TASKS, "text2text")
    )
    return request.param, bench, bench.dense(0, path=True)


@pytest.mark.parametrize("localizer", slow_but(FEW, LOCALIZERS))
def test_every_localizer_finds_a_region(localizer, learned):
    _, bench, run = learned
    task = bench.task(0)
    before = snapshot(task.parameters)
    found = find_region(task, bench.localization(0, localizer=localizer), dense=run)
    wanted = bench.size(0.01)
    assert len(found.region) == wanted or (
        LOCALIZERS[localizer].allowed is not None and 0 < len(found.region) < wanted
    )
    assert all(torch.equal(value, before[name]) for name, value in task.parameters.items())


def test_the_losses_of_single_rows_average_to_that_of_their_batch(learned):
    _, bench, run = learned
    task, settings = bench.task(0), bench.localization(0)
    with inputs_of_task(task, settings, run, counter=RowCounter()) as inputs, torch.no_grad():
        rows = [float(loss()) for loss in inputs.row_losses(0)]
        micro = [float(loss()) for loss in inputs.losses(0)]
    assert len(rows) > len(micro)
    assert sum(rows) / len(rows) == pytest.approx(sum(micro) / len(micro), rel=1e-4)
