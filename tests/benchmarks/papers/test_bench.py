"""The bench leaves its model at the base, and keeps what it computes apart by what it is of."""

import json
import shutil

import pytest
import torch
from papers import EXPERIMENTS
from slow_cases import slow
from smoke_benches import smoke_bench

from cl_graft.grafts.graft import snapshot


@pytest.mark.parametrize("names", ["fig8", *slow("sam_table1 fig15 fig12 table1 fig7 sam_table2")])
def test_experiments_leave_the_model_at_its_base(names, tiny_bert, tmp_path):
    bench = smoke_bench("fig8", tiny_bert, tmp_path, data_seed=3)
    for label in range(3):
        bench.task(label)
    before = snapshot(dict(bench.model.named_parameters()))
    for name in names.split():
        list(EXPERIMENTS[name].run(bench))
        after = dict(bench.model.named_parameters())
        assert all(torch.equal(value, after[n]) for n, value in before.items()), name
        assert not bench.model.training


def test_a_sample_of_the_data_is_drawn_by_its_own_seed(tiny_bert, tmp_path):
    first, second = (smoke_bench("table1", tiny_bert, tmp_path, data_seed=seed) for seed in (0, 1))
    rows = [bench.stream.tasks[0].splits["train"][0] for bench in (first, second)]
    assert not torch.equal(rows[0], rows[1])
    heads = [bench.task(0).head for bench in (first, second)]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])


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
        sets = ["model.family=masked_lm", "stream.tasks=reviews", "stream.shots=null"]
        sets += [f"stream.task_settings.reviews.label_names={json.dumps(words)}"]
        bench = smoke_bench("table1", model, tmp_path / "cache", *sets, data=reviews.parent)
        bench.dense(0)
        return bench._cache.hits["dense"]

    assert hits(tiny_bert, ["bad", "good"]) == 0
    assert hits(same, ["bad", "good"]) == 1
    assert hits(other, ["bad", "good"]) == 0
    assert hits(same, ["terrible", "great"]) == 0
