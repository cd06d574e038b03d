"""The bench leaves its model at the base, and re-training changes a region and nothing else."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch
from small_tasks import make_task

from cl_graft.errors import DivergedError
from cl_graft.experiments.cache import DirectoryCache
from cl_graft.graft import gather, grafted, snapshot
from cl_graft.laboratory import EXPERIMENTS, experiment_config
from cl_graft.laboratory.answers import Answers
from cl_graft.laboratory.bench import Bench
from cl_graft.laboratory.multitask import grown
from cl_graft.laboratory.peers import LORA_EVERYWHERE, PEERS, share_of, sized, trained
from cl_graft.laboratory.readings import Reading, summarize, table
from cl_graft.laboratory.retraining import peer_plans, retrain, retrained
from cl_graft.laboratory.transfer import elsewhere, near, pairs, parting
from cl_graft.localization import localize
from cl_graft.localization.learned_mask import learned_mask
from cl_graft.region import Layout, Region
from cl_graft.training import FineTuning, fine_tune

LAYERS = re.compile(r"(query|key|value|dense)\.lora_A")


def test_experiments_leave_the_model_at_its_base(tiny_bert, tmp_path):
    config = experiment_config(EXPERIMENTS["fig8"], "smoke", sets=[f"model={tiny_bert}"])
    bench = Bench(config, data_seed=3, cache=DirectoryCache(tmp_path))
    for label in range(3):
        bench.problem(label)
    before = snapshot(dict(bench.model.named_parameters()))
    for name in ("fig8", "fig12", "fig15", "table1", "fig7", "sam_table1", "sam_table2"):
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


def test_retraining_that_diverges_says_at_which_step_and_rate_and_puts_the_model_back():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=30, batch_size=16, lr=1e30, clip=0, evaluations=0)
    with pytest.raises(DivergedError, match=r"at step \d+ of region training with lr \d"):
        retrain(task, region, plan, head=snapshot(task.head), seed=0)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in after.values())


def test_adamw_moves_every_coordinate_of_a_region_by_the_learning_rate_at_first():
    task = make_task()
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(
        steps=1, batch_size=16, lr=0.01, optimizer="adamw", weight_decay=0.0, clip=0, evaluations=0
    )
    base = gather(task.parameters, region)
    values, _ = retrain(task, region, plan, head=snapshot(task.head), seed=0)
    moved = (values.values - base.values).abs()
    assert torch.allclose(moved[moved > 1e-6], torch.tensor(0.01), rtol=1e-3)
    assert (moved > 1e-6).float().mean() > 0.5


def test_retraining_takes_batches_of_similar_length_where_the_schedule_says_so(tiny_bert, tmp_path):
    def padding(grouped):
        sets = [f"model={tiny_bert}", f"group_by_length={grouped}", "shots=16", "max_length=64"]
        config = experiment_config(EXPERIMENTS["table1"], "smoke", sets=sets)
        bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path / str(grouped)))
        task = bench.problem(0)
        widths = []

        def watched(inputs):
            if inputs.shape[0] == config.batch_size and torch.is_grad_enabled():
                widths.append(int((inputs[:, 1] != 0).any(0).sum()))  # what is not padding
            return task.forward(inputs)

        bench._problems[0] = replace(task, forward=watched)
        retrained(bench, 0, Region.of(bench.layout, range(50)), steps=12)
        assert len(widths) == 12
        return sum(widths)

    assert padding("true") < padding("false")


def test_a_region_that_grows_from_a_base_is_learned_once_for_each_base(
    tiny_bert, tmp_path, monkeypatch
):
    config = experiment_config(EXPERIMENTS["fig12"], "smoke", sets=[f"model={tiny_bert}"])
    cache, learned = DirectoryCache(tmp_path), []

    def counted(problem, *, started, **more):
        learned.append(len(started))
        return learned_mask(problem, started=started, **more)

    monkeypatch.setattr("cl_graft.laboratory.multitask.learned_mask", counted)
    found = []
    for base in (0.002, 0.002, 0.01):
        bench = Bench(config, data_seed=0, cache=cache)  # as another process would
        found.append(grown(bench, 0, bench.dense(0), base=base))
    assert learned == [bench.size(0.002), bench.size(0.01)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("second", [("good", "bad"), ("good", "neither", "bad")])
def test_labels_elsewhere_are_compared_by_name_in_whatever_order_they_stand(
    second, tiny_bert, tmp_path
):
    names = {"first": ("bad", "good"), "second": second}
    for task, own in names.items():
        rows = [(f"{word} number {n}", own.index(word)) for n in range(20) for word in own]
        for split, some in (("train", rows[:24]), ("test", rows[24:])):
            place = tmp_path / "data" / task / f"{split}.jsonl"
            place.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"text": text, "label": label}) for text, label in sorted(some)]
            place.write_text("\n".join(lines))
    sets = [f"model={tiny_bert}", "tasks=first,second", "shots=null", "max_test=null"]
    sets += [f"task_settings.{task}.label_names={list(own)}" for task, own in names.items()]
    config = experiment_config(EXPERIMENTS["table3"], "smoke", data=tmp_path / "data", sets=sets)
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path / "cache"))
    run = bench.dense(0, steps=100, lr=0.3)
    with bench.carrying(0, bench.cut(run, Region.full(bench.layout)), run.head):
        seen = [reading.value for reading in elsewhere(bench, 0, [1], "fine-tuning")]
    assert min(seen) > 0.8  # rows of a label that the first task does not have are left out
    if set(second) == set(names["first"]):
        assert seen[0] == seen[1]  # the rows are the same, and so is their truth


def test_the_near_pair_is_asked_once(tiny_bert, tmp_path):
    config = experiment_config(
        EXPERIMENTS["fig7"], "smoke", sets=[f"model={tiny_bert}", "tasks=[sentiment, urgency]"]
    )
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))

    def asked(names):
        bench.names = names
        return [(i, j) for i, others in [*pairs(bench), *near(bench)] for j in others]

    assert asked(["qnli", "mnli", "snli"]) == [(0, 1), (0, 2), (1, 2)]
    assert asked(["mnli", "snli"]) == [(0, 1)]
    assert asked(["mine", "yours"]) == [(0, 1)]


@pytest.mark.parametrize(
    ("gaps", "step"),
    [
        ((0.2, 0.0, 0.1, 0.2), 3),  # apart by chance at first
        ((0.1, 0.1, 0.1, 0.1), 1),
        ((0.0, 0.1, 0.1, 0.0), 4),
        ((0.0, 0.0, 0.05, 0.06), 4),
    ],
)
def test_train_and_dev_part_at_the_step_from_which_on_they_stay_apart(gaps, step):
    assert parting(dict(enumerate(gaps, start=1)), apart=0.05) == step


def test_a_region_is_trained_again_once_and_then_answered_by_the_cache(
    tiny_bert, tmp_path, monkeypatch
):
    config = experiment_config(EXPERIMENTS["table1"], "smoke", sets=[f"model={tiny_bert}"])
    cache = DirectoryCache(tmp_path)
    bench = Bench(config, data_seed=0, cache=cache)
    trained = []

    def counted(task, region, settings, **more):
        trained.append(len(region))
        return retrain(task, region, settings, **more)

    monkeypatch.setattr("cl_graft.laboratory.retraining.retrain", counted)
    region, other = (Region.of(bench.layout, range(0, 900, step)) for step in (9, 10))
    values, head = retrained(bench, 0, region)
    # Another process has a bench of its own.
    again, head_again = retrained(Bench(config, data_seed=0, cache=cache), 0, region)
    assert trained == [100]
    assert values.same_bits(again)
    assert all(torch.equal(value, head_again[name]) for name, value in head.items())
    retrained(bench, 0, other)
    retrained(bench, 0, region, lr=0.01)
    retrained(Bench(config, data_seed=1, cache=cache), 0, region)
    retrained(bench, 0, region, anew=True)
    assert trained == [100, 90, 100, 100, 100]


def test_what_gradients_ranked_is_answered_by_the_cache_as_deep_as_it_was_ranked(
    tiny_bert, tmp_path, monkeypatch
):
    config = experiment_config(EXPERIMENTS["table1"], "smoke", sets=[f"model={tiny_bert}"])
    cache = DirectoryCache(tmp_path)
    bench = Bench(config, data_seed=0, cache=cache)
    depths = []

    def counted(problem, localizer, *, depth, **more):
        depths.append(depth)
        return localize(problem, localizer, depth=depth, **more)

    monkeypatch.setattr("cl_graft.laboratory.bench.localize", counted)
    run = bench.dense(0)

    def ranked(bench, localizer="learned_mask", dense=run, **more):
        return bench.ranking(0, localizer, k=40, dense=dense, **more).order

    first = ranked(bench, depth=40)
    # Another process has a bench of its own.
    assert torch.equal(ranked(Bench(config, data_seed=0, cache=cache), depth=40), first)
    assert torch.equal(ranked(bench, depth=7)[:7], first[:7])
    assert depths == [40]
    whole = ranked(bench)
    assert torch.equal(whole[:40], first)
    assert torch.equal(ranked(bench), whole)
    assert torch.equal(ranked(bench, depth=40, anew=True), first)
    assert depths == [40, None, 40]
    moved = replace(run, tuned={name: 2 * value for name, value in run.tuned.items()})
    for other in ({"localizer": "fisher"}, {"localizer": "movement"}, {"dense": moved}):
        ranked(bench, depth=5, **other)
        ranked(bench, depth=5, **other)
    # Movement is cheaper to compute than to keep.
    assert depths == [40, None, 40, 5, 5, 5, 5]


@pytest.mark.parametrize("name", ["fig8", "table6"])
def test_joint_models_and_peers_are_trained_once(name, tiny_bert, tmp_path, monkeypatch):
    config = experiment_config(EXPERIMENTS[name], "smoke", sets=[f"model={tiny_bert}"])
    module = {"fig8": "laboratory.multitask", "table6": "learning"}[name]
    trained = []

    def counted(model, *given, phase="dense fine-tuning", **more):
        if name == "fig8" or phase == "training":  # peers' phase
            trained.append(model)
        return fine_tune(model, *given, phase=phase, **more)

    monkeypatch.setattr(f"cl_graft.{module}.fine_tune", counted)
    benches = [Bench(config, data_seed=0, cache=DirectoryCache(tmp_path)) for _ in range(2)]
    first = list(EXPERIMENTS[name].run(benches[0]))
    count = len(trained)
    assert count == {"fig8": 1, "table6": 11 + 3}[name]  # the smallest of three at two rates
    assert list(EXPERIMENTS[name].run(benches[1])) == first
    assert len(trained) == count


def test_sams_methods_that_train_few_parameters_are_all_trained_one_way(
    tiny_bert, tmp_path, monkeypatch
):
    sets = [f"model={tiny_bert}", "region_lr=0.003", "weight_decay=0.02"]
    config = experiment_config(EXPERIMENTS["sam_table1"], "smoke", sets=sets)
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    seen = []

    def watched(*given, settings, phase="dense fine-tuning", **more):
        if phase != "dense fine-tuning":
            seen.append((settings.optimizer, settings.lr, settings.weight_decay))
        return fine_tune(*given, settings=settings, phase=phase, **more)

    monkeypatch.setattr("cl_graft.learning.fine_tune", watched)
    list(EXPERIMENTS["sam_table1"].run(bench))
    assert seen == [("adamw", 0.003, 0.02)] * 8  # five regions, biases, adapters, LoRA


def test_a_rate_at_which_a_region_diverges_is_passed_over(tiny_bert, tmp_path, monkeypatch):
    experiment = EXPERIMENTS["region_rates"]
    config = experiment_config(experiment, "smoke", sets=[f"model={tiny_bert}"])
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    monkeypatch.setattr("cl_graft.laboratory.rates.RATES", (0.1, 1e38))
    readings = list(experiment.run(bench))
    assert {r.x for r in readings if r.measure == "score" and r.method == "random"} == {0.1}
    monkeypatch.setattr("cl_graft.laboratory.rates.RATES", (1e38,))
    with pytest.raises(DivergedError):
        list(experiment.run(bench))


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
    places = [Reading("a", "m", "score", 0.5, x) for x in (106 / 10_646_784, 20_000.0)]
    lines = table(summarize([places]), axis="density").splitlines()[2:]
    assert [line.split(" | ")[2] for line in lines] == ["9.96e-06", "20000"]


def test_the_best_constant_answer_is_that_of_the_metric():
    targets = torch.tensor([0, 0, 1, 0])
    logits = torch.zeros(4, 2)
    assert Answers(logits, targets, "accuracy").best_constant == 0.75
    assert Answers(logits, targets, "matthews").best_constant == 0.0
    assert Answers(logits, targets, "f1").best_constant == pytest.approx(2 * 1 / (4 + 1))


def test_peers_train_their_parts_alone_on_a_copy_of_the_model(tiny_bert, tmp_path):
    config = experiment_config(EXPERIMENTS["table6"], "smoke", sets=[f"model={tiny_bert}"])
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    own = bench.problem(0)
    before = snapshot(dict(bench.model.named_parameters()))
    untrained = bench.answers(0)
    (plan,) = peer_plans(bench, (2e-3,))
    for name, peer in PEERS.items():
        size = sized(bench, peer, share=0.02)
        near = {n: abs(share_of(bench, peer, n) - 0.02) for n in range(max(1, size - 1), size + 2)}
        assert min(near, key=near.__getitem__) == size, name
        with trained(bench, 0, peer, size=size, plan=plan) as other:
            assert not torch.equal(other.answers(0).logits, untrained.logits), name
            held = dict(other.model.named_parameters())
            parts = {id(part) for part in peer.parts(other.model.task_model).values()}
            rest = [n for n, p in held.items() if id(p) not in parts and n in before]
            trunk = [n for n in rest if "heads" not in n]
            assert all(torch.equal(held[n], before[n]) for n in trunk), name
        after = dict(bench.model.named_parameters())
        assert after.keys() == before.keys()
        assert all(torch.equal(value, after[n]) for n, value in before.items()), name
    assert bench.problem(0) is own


def test_parts_that_are_put_into_a_model_change_nothing_before_they_are_trained(
    tiny_bert, tmp_path
):
    config = experiment_config(EXPERIMENTS["table6"], "smoke", sets=[f"model={tiny_bert}"])
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    bench.problem(0)
    for name, peer in PEERS.items():
        other = bench.with_parts(lambda model, peer=peer: peer.insert(model, 2, 0))
        assert torch.allclose(other.answers(0).logits, bench.answers(0).logits), name
        # Houlsby's adapters stand in both halves of a block, Pfeiffer's behind each.
    one, two = PEERS["Pfeiffer"], PEERS["Houlsby"]
    assert len(two.parts(_with(bench, two))) == 2 * len(one.parts(_with(bench, one)))
    for peer, layers in (
        (PEERS["LoRA"], {"query", "value"}),
        (LORA_EVERYWHERE, {"query", "key", "value", "dense"}),
    ):
        assert set(LAYERS.findall(" ".join(peer.parts(_with(bench, peer))))) == layers


def test_rows_that_are_left_out_are_left_out_of_dense_runs_and_of_models_with_parts(
    tiny_bert, tmp_path
):
    config = experiment_config(EXPERIMENTS["sam_table2"], "smoke", sets=[f"model={tiny_bert}"])
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    whole, rows = bench.dense(0), len(bench.problem(0).train)
    with bench.fewer_rows(0, range(2, rows)):
        fewer = bench.dense(0)
        other = bench.with_parts(lambda model: PEERS["Pfeiffer"].insert(model, 2, 0))
        for asked in (bench, other):
            assert len(asked.problem(0).train) == rows - 2
    assert len(bench.problem(0).train) == rows
    assert any(not torch.equal(whole.tuned[name], fewer.tuned[name]) for name in whole.tuned)
    again = bench.dense(0)
    assert all(torch.equal(whole.tuned[name], again.tuned[name]) for name in whole.tuned)


def _with(bench, peer):
    other = bench.with_parts(lambda model: peer.insert(model, 2, 0))
    return other.model.task_model


def test_other_label_words_and_another_model_config_have_outcomes_of_their_own(tiny_bert, tmp_path):
    reviews = tmp_path / "data" / "reviews"
    reviews.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = [{"text": f"{split} number {place}", "label": place % 2} for place in range(16)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (reviews / f"{split}.jsonl").write_text(text)
    same, other = tmp_path / "same", tmp_path / "without dropout"
    for copy in (same, other):
        shutil.copytree(tiny_bert, copy)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.0}))

    def hits(model, words) -> int:
        cache = DirectoryCache(tmp_path / "cache")
        sets = [
            f"model={model}", "family=masked_lm", "tasks=reviews", "shots=null",
            f"task_settings.reviews.label_names={json.dumps(words)}",
        ]  # fmt: skip
        table1 = EXPERIMENTS["table1"]
        config = experiment_config(table1, "smoke", data=reviews.parent, sets=sets)
        Bench(config, data_seed=0, cache=cache).dense(0)
        return cache.hits["dense"]

    assert hits(tiny_bert, ["bad", "good"]) == 0
    assert hits(same, ["bad", "good"]) == 1
    assert hits(other, ["bad", "good"]) == 0
    assert hits(same, ["terrible", "great"]) == 0


def test_a_grid_has_dev_choose_the_rate_of_a_region(tiny_bert, tmp_path):
    sets = [f"model={tiny_bert}", "grid=true", "steps=40", "density=0.05", "max_dev=null"]
    config = experiment_config(EXPERIMENTS["table1"], "smoke", sets=sets)
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    region = bench.biases(0)

    def dev(found) -> float:
        return bench.graft_answers(0, *found, split="valid").score

    rates = [dev(retrained(bench, 0, region, lr=rate)) for rate in (0.01, 0.1, 1.0)]
    assert len(set(rates)) > 1
    assert dev(retrained(bench, 0, region)) == max(rates)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_task_in_fp16_is_localized_with_a_loss_scale(precision, tiny_bert, tmp_path):
    sets = [f"model={tiny_bert}", f"precision={precision}"]
    config = experiment_config(EXPERIMENTS["table1"], "smoke", sets=sets)
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    run, task = bench.dense(0), bench.problem(0)
    with bench.posed(0, "learned_mask", run, task) as problem:
        assert (problem.loss_scale > 1) == (precision == "fp16")
        assert all(bool(loss().isfinite()) for loss in problem.losses(0))
