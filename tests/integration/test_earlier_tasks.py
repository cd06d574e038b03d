"""What a task builds on is chosen on dev, among few candidates, by forward passes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from slow_cases import slow
from tiny_streams import TASKS, bits, quick, text_learner
from two_layer_banks import LAYOUT, empty_bank, grow

from cl_graft import InputError
from cl_graft.grafts.graft import find_parameters
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.region import Region
from cl_graft.strategies.earlier_tasks import list_candidates

FOUR = (*TASKS, "language")


class KeptScores:
    """A cache that can say which scores it holds other ones than were computed."""

    def __init__(self, kept=()) -> None:
        self.kept: dict[str, tuple[dict[str, torch.Tensor], dict[str, object]]] = dict(kept)
        self.asked = self.answered = 0

    def get(self, key):
        if not key.startswith("earlier"):
            return None
        self.asked += 1
        self.answered += key in self.kept
        return self.kept.get(key)

    def put(self, key, tensors, values):
        if key.startswith("earlier"):
            self.kept[key] = dict(tensors), dict(values)


def learned(folder, cache=None, names=TASKS, **settings):
    grafting = {"cache": cache} if cache is not None else {}
    return text_learner(folder, names, settings=quick(**settings), grafting=grafting).learn()


def test_the_best_candidate_on_dev_is_built_on_and_its_rows_are_counted(tiny_bert):
    cache = KeptScores()
    plugin = learned(tiny_bert, cache, builds_on="dev").plugin
    scores = [values["score"] for _, values in cache.kept.values()]
    # The second task: all or none. The third: all, the first alone, none, and the second alone,
    # which is all where it builds on the first; whether it does depends on the machine's last bits.
    assert len(scores) == 2 + (3 if plugin.bank.builds_on(1) else 4)
    assert [entry.metadata.get("builds_on") for entry in plugin.bank.entries] == ["dev"] * 3
    assert "earlier" not in plugin.passes[0]
    for label, candidates in ((1, scores[:2]), (2, scores[2:])):
        rows = plugin.passes[label]["earlier"]
        assert rows.forward_backward == 0
        assert rows.forward % len(candidates) == 0
        assert rows.forward > 0


@pytest.fixture(scope="module")
def saying(tiny_bert):
    """Return a function that makes a cache which holds given scores of the prefix and the base."""
    cache = KeptScores()
    learned(tiny_bert, cache, TASKS[:2], builds_on="dev")

    def with_scores(*scores):  # the prefix was scored first, then the base
        changed = zip(cache.kept.items(), scores, strict=True)
        return KeptScores(
            {key: (kept, {**values, "score": score}) for (key, (kept, values)), score in changed}
        )

    return with_scores


@pytest.mark.parametrize("better", [1, *slow(0)])
def test_a_higher_score_is_taken_and_of_equal_ones_the_longest_prefix(tiny_bert, saying, better):
    cache = saying(0.5, 0.5 + 0.1 * better)
    plugin = learned(tiny_bert, cache, TASKS[:2], builds_on="dev").plugin
    assert cache.answered == 2
    assert plugin.bank.builds_on(1) == (() if better else (0,))


@pytest.mark.parametrize(
    ("scores", "choice", "setting"),
    [((1.0, 0.0), (0,), "all"), *slow(((0.0, 1.0), (), "none"))],
)
def test_the_choice_changes_nothing_but_what_is_built_on(
    tiny_bert, saying, scores, choice, setting
):
    chosen = learned(tiny_bert, saying(*scores), TASKS[:2], builds_on="dev").plugin.bank
    asked = learned(tiny_bert, None, TASKS[:2], builds_on=setting).plugin.bank
    assert chosen.builds_on(1) == asked.builds_on(1) == choice
    assert chosen.entries[1].owned.same_bits(asked.entries[1].owned)
    assert chosen.entries[1].weights_sha256 == asked.entries[1].weights_sha256


def test_tasks_that_build_on_some_keep_their_bits_while_others_are_learned(tiny_bert):
    run = text_learner(tiny_bert, TASKS, settings=quick(builds_on="none")).learn()
    for j in range(3):
        for i in range(j, 3):
            assert run.scores.logit_hash(i, j) == run.scores.logit_hash(j, j)
    for position, entry in enumerate(run.plugin.bank.entries):
        run.plugin.carry(run.model, position)
        parameters = find_parameters(run.unwrapped, run.plugin.bank.layout)
        assert hash_tensors(parameters) == entry.weights_sha256
    run.plugin.carry(run.model, None)
    assert bits(run.unwrapped) == bits(text_learner(tiny_bert).unwrapped)


def test_a_name_that_no_task_has_is_refused(tiny_bert):
    run = text_learner(tiny_bert, settings=quick(may_build_on=("sentimental",)))
    with pytest.raises(InputError, match="no task 'sentimental' here"):
        run.learn()


def test_candidates_are_all_few_single_answers_and_the_base_the_longest_first():
    bank = empty_bank()
    for number, under in enumerate([None, (), (1,), (), (), (), ()]):
        names = ["yes", "no"] if number == 0 else [f"{number}", "other"]
        bank = grow(bank, Region.of(LAYOUT, [number]), builds_on=under)
        entries = (*bank.entries[:-1], replace(bank.entries[-1], metadata={"label_names": names}))
        bank = replace(bank, entries=entries)
    everything = tuple(range(7))
    same = list_candidates(bank, everything, label_names=["yes", "no"])
    assert same == [everything, (6,), (5,), (4,), (0,), ()]
    assert list_candidates(bank, everything) == [everything, (6,), (5,), (4,), (3,), ()]
    assert list_candidates(bank, (1, 2)) == [(1, 2), (1,), ()]
    assert list_candidates(bank, ()) == [()]
