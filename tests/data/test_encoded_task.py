"""A task is encoded for a model's family, and a word that does not fit names the task."""

from dataclasses import replace

import pytest

from cl_graft.data import Prompt, load_task
from cl_graft.data.encoded_task import encode_task


def test_dev_and_test_rows_stand_by_length_and_are_numbered_as_in_the_task(roberta):
    task = load_task("scope", shots=6, data_seed=0, max_dev=9, max_test=9)
    encoded = encode_task(task, roberta, family="encoder", max_length=40)
    inputs, targets = encoded.splits["test"]
    lengths = (inputs[:, 1] != 0).sum(1).tolist()
    assert lengths == sorted(lengths, reverse=True)
    labels = [task.test[row].label for row in encoded.rows["test"].tolist()]
    assert targets.tolist() == labels
    assert encoded.rows["train"].tolist() == list(range(12))


def test_a_word_that_does_not_fit_is_refused_with_the_task(roberta):
    words = {"in_scope": "xylophonically", "out_of_scope": "terrible"}
    task = load_task("scope", shots=6, max_dev=9, max_test=9)
    bad = replace(task, prompt=Prompt("{text} {mask}", words))
    with pytest.raises(ValueError, match=r"task 'scope': .*must be one token"):
        encode_task(bad, roberta, family="masked_lm", max_length=40)
