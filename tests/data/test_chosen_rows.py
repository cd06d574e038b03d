"""Several tasks can share one file: each takes the rows that have some values."""

import pytest
from answer_tasks import write_task
from configs import config_with
from read_data import read_rows

from cl_graft.data import load_task
from cl_graft.data.text_files import Reading
from cl_graft.errors import InputError
from cl_graft.settings.tasks import load_tasks

LABELS = {"bank": ("balance", "transfer"), "travel": ("visa", "hotel")}


@pytest.fixture
def folder(tmp_path):
    """A data folder with one set of two domains, whose `meta.json` declares all labels."""
    splits = {
        split: [
            {"text": f"{split} {label} {n}", "label": label, "domain": domain}
            for n in range(rows)
            for domain, labels in LABELS.items()
            for label in labels
        ]
        for split, rows in (("train", 6), ("test", 2))
    }
    write_task(tmp_path / "intents", splits, label_names=["visa", "transfer", "hotel", "balance"])
    return tmp_path


def test_a_task_takes_its_rows_and_their_labels_in_the_declared_order(folder):
    task = load_task("intents", data=folder, where={"domain": "bank"}, warn=False)
    assert task.label_names == ("transfer", "balance")
    assert len(task.test) == 4
    for row in (*task.train, *task.dev, *task.test):
        assert task.label_names[int(row.label)] in row.text
    assert task.source["where"] == {"domain": "bank"}


def test_labels_that_the_caller_names_are_kept(folder):
    names = ["balance", "transfer", "loan"]
    reading = Reading(where={"domain": "bank"})
    rows = read_rows(folder / "intents", label_names=names, reading=reading)
    assert rows.label_names == tuple(names)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"domian": "bank"}, "there is no column 'domian'; did you mean 'domain'?"),
        ({"domain": "bnk"}, "no row has 'bnk' in column 'domain'; did you mean 'bank'?"),
    ],
)
def test_a_column_or_value_that_is_not_there_is_refused(folder, where, sentence):
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        load_task("intents", data=folder, where=where)


def test_tasks_of_one_file_have_names_of_their_own_in_a_stream(folder):
    own = {name: {"rows_from": "intents", "where": {"domain": name}} for name in LABELS}
    config = config_with(tasks=[*LABELS], data=str(folder), shots=None, task_settings=own)
    tasks = load_tasks(config.stream, seed=0)
    assert [task.name for task in tasks] == ["bank", "travel"]
    assert [task.label_names for task in tasks] == [("transfer", "balance"), ("visa", "hotel")]
