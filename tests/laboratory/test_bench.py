"""The bench leaves its model at the base, and re-training changes a region and nothing else."""

import torch
from small_tasks import make_task

from cl_graft.experiments.cache import DirectoryCache
from cl_graft.graft import grafted, snapshot
from cl_graft.laboratory import EXPERIMENTS, experiment_config
from cl_graft.laboratory.bench import Bench
from cl_graft.laboratory.readings import Reading, summarize, table
from cl_graft.laboratory.retraining import retrain
from cl_graft.region import Layout, Region
from cl_graft.training import FineTuning


def test_experiments_leave_the_model_at_its_base(tiny_bert, tmp_path):
    config = experiment_config(EXPERIMENTS["fig8"], "smoke", sets=[f"model={tiny_bert}"])
    bench = Bench(config, data_seed=3, cache=DirectoryCache(tmp_path))
    for label in range(3):
        bench.problem(label)
    before = snapshot(dict(bench.model.named_parameters()))
    for name in ("fig8", "fig15", "table1", "fig7", "sam_table2"):
        list(EXPERIMENTS[name].run(bench))
        after = dict(bench.model.named_parameters())
        assert all(torch.equal(value, after[n]) for n, value in before.items()), name
        assert not bench.model.training


def test_a_sample_of_the_data_is_drawn_by_its_own_seed(tiny_bert, tmp_path):
    config = experiment_config(EXPERIMENTS["table1"], "smoke", sets=[f"model={tiny_bert}"])
    cache = DirectoryCache(tmp_path)
    first, second = (Bench(config, data_seed=seed, cache=cache) for seed in (0, 1))
    rows = [bench.stream.tasks[0].splits["train"][0] for bench in (first, second)]
    assert not torch.equal(rows[0], rows[1])
    heads = [bench.problem(0).head for bench in (first, second)]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])


def test_retraining_learns_inside_the_region_and_puts_the_model_back():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=150, batch_size=16, lr=0.5, evaluations=0)
    task.model.eval()
    start = float(task.loss(range(150)).detach())
    values, head = retrain(task, region, plan, head=snapshot(task.head), seed=0)
    again, _ = retrain(task, region, plan, head=snapshot(task.head), seed=0)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in after.values())
    assert values.region == region
    assert values.same_bits(again)
    with grafted(task.model, values), torch.no_grad():
        for name, parameter in task.head.items():
            parameter.copy_(head[name])
        assert float(task.loss(range(150)).detach()) < 0.9 * start


def test_a_summary_is_the_mean_over_cells_and_leaves_out_what_is_no_number():
    cells = [
        [Reading("a", "m", "score", 0.4, 1.0), Reading("a", "m", "gap", float("nan"))],
        [Reading("a", "m", "score", 0.6, 1.0)],
    ]
    (row,) = summarize(cells)
    assert (row.mean, row.seeds, row.x) == (0.5, 2, 1.0)
    text = table([row], axis="density")
    assert text.splitlines()[0] == "| task | method | density | score |"
    assert text.splitlines()[2] == "| a | m | 1 | 0.500 ± 0.141 |"
