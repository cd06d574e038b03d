"""A budget in bytes for all entries of a bank."""

import pytest
from slow_cases import slow
from tiny_streams import TASKS, learner, quick, text_learner, vector_stream

from cl_graft import save_bank
from cl_graft.errors import InputError
from cl_graft.strategies.task_training import TaskMetadata


def entry_files(bank, folder):
    save_bank(bank, folder)
    return [path.stat().st_size for path in sorted(folder.glob("entries/*"))]


@pytest.mark.parametrize("avoid_owned", [True, *slow(False)])
def test_the_entries_of_a_stream_fill_the_budget_and_no_more(tiny_bert, tmp_path, avoid_owned):
    budget = 60_000
    run = text_learner(
        tiny_bert,
        TASKS[:3],
        settings=quick(density=1.0, bank_bytes=budget, avoid_owned=avoid_owned),
    )
    run.learn()
    files = entry_files(run.plugin.bank, tmp_path / "bank")
    assert len(files) == 3
    assert sum(files) <= budget
    if avoid_owned:
        assert sum(files) > 0.85 * budget
        assert max(files) < 1.3 * budget / 3


def test_names_of_labels_count_too(tiny_bert, tmp_path):
    names = [f"a name of a label that is long enough to be counted, number {n}" for n in range(60)]
    metadata = {1: TaskMetadata(name="topic", metadata={"label_names": names})}
    run = text_learner(
        tiny_bert,
        settings=quick(density=1.0, bank_bytes=40_000),
        grafting={"metadata": metadata},
    )
    run.learn()
    assert sum(entry_files(run.plugin.bank, tmp_path / "bank")) <= 40_000


def test_what_an_easy_task_leaves_goes_to_the_next(tiny_bert):
    small = quick(density=0.001, bank_bytes=60_000, bank_tasks=2)
    large = quick(density=1.0, bank_bytes=60_000, bank_tasks=2)
    sizes = []
    for first in (small, large):
        run = text_learner(tiny_bert, settings=large, grafting={"by_label": {0: first}}).learn()
        sizes.append([len(entry.owned) for entry in run.plugin.bank.entries])
    assert sizes[0][0] < sizes[1][0]
    assert sizes[0][1] > 1.3 * sizes[1][1]


def test_a_budget_that_holds_no_coordinate_is_refused_before_anything_is_trained(tiny_bert):
    run = text_learner(tiny_bert, settings=quick(bank_bytes=2_000, bank_tasks=20))
    with pytest.raises(InputError, match="and 100 are left for it: of bank_bytes=2,000") as told:
        run.strategy.train(run.train_stream[0])
    assert "earlier tasks take 0 (0), and later ones have a share (19)" in str(told.value)
    assert str(told.value).endswith("raise bank_bytes, or lower bank_tasks")
    assert not run.plugin.bank.entries


def test_a_budget_that_earlier_tasks_filled_says_so(tiny_bert):
    run = text_learner(tiny_bert, settings=quick(density=1.0, bank_bytes=20_000, bank_tasks=1))
    run.strategy.train(run.train_stream[0])
    with pytest.raises(InputError, match=r"take 1\d,\d+ \(1\), and later ones .* \(0\)") as told:
        run.strategy.train(run.train_stream[1])
    assert str(told.value).endswith("raise bank_bytes")


def test_models_without_text_have_budgets_too(tmp_path):
    from avalanche.models import SimpleMLP

    run = learner(
        SimpleMLP(num_classes=2, input_size=12, hidden_size=64, drop_rate=0.0),
        vector_stream(labels=[0, 1]),
        settings=quick(density=1.0, bank_bytes=9_000),
    )
    run.learn()
    assert sum(entry_files(run.plugin.bank, tmp_path / "bank")) <= 9_000


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"bank_bytes": 10_000, "keep_standalone": True}, "counts no standalone grafts"),
        ({"bank_tasks": 3}, "bank_tasks shares out bank_bytes"),
        ({"bank_bytes": 0}, "greater than or equal to 1"),
        ({"bank_bytes": "2 parsecs"}, "no size"),
    ],
)
def test_settings_that_do_not_fit_are_refused(asked, said):
    with pytest.raises(InputError, match=said):
        quick(**asked)


def test_a_budget_may_have_a_unit():
    assert quick(bank_bytes="2MB").bank_bytes == 2_000_000
