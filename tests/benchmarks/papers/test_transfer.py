"""Which tasks are asked of what was learned on another, and how labels there are read."""

import json

import pytest
from papers.transfer import elsewhere, find_parting
from slow_cases import slow
from smoke_benches import smoke_bench

from cl_graft.grafts.region import Region


@pytest.mark.parametrize("second", [("good", "neither", "bad"), *slow((("good", "bad"),))])
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
    sets = ["stream.tasks=first,second", "stream.shots=null", "stream.max_test=null"]
    sets += [f"stream.task_settings.{task}.label_names={list(own)}" for task, own in names.items()]
    bench = smoke_bench("table3", tiny_bert, tmp_path / "cache", *sets, data=tmp_path / "data")
    run = bench.dense(0, steps=100, lr=0.3)
    with bench.apply_graft(0, bench.cut(run, Region.full(bench.layout)), run.head):
        seen = [measurement.value for measurement in elsewhere(bench, 0, [1], "fine-tuning")]
    assert min(seen) > 0.8  # rows of a label that the first task does not have are left out
    if set(second) == set(names["first"]):
        assert seen[0] == seen[1]  # the rows are the same, and so is their truth


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
    assert find_parting(dict(enumerate(gaps, start=1)), apart=0.05) == step
