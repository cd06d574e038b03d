"""A name becomes a task: preset, path, built-in or hub; and every wrong name is answered."""

import inspect
import itertools
import logging
from pathlib import Path

import pytest
from answer_tasks import write_rows, write_task
from warm_processes import printed_by

from cl_graft.data import TaskSettings, load_task
from cl_graft.errors import InputError
from cl_graft.kinds.prompts import PROMPTS, Prompt


def write(path: Path, texts: list[str], labels: tuple = ("ham", "spam")) -> Path:
    rows = zip(texts, itertools.cycle(labels), strict=False)
    return write_rows(path, [{"text": text, "label": label} for text, label in rows])


def texts(count: int, start: int = 0) -> list[str]:
    return [f"message number {number}" for number in range(start, start + count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of data sets: `mail` with train and test, `notes.jsonl`, and the preset `cr`."""
    write(tmp_path / "mail" / "train.jsonl", texts(200))
    write(tmp_path / "mail" / "test.jsonl", texts(60, 200))
    write(tmp_path / "notes.jsonl", texts(100))
    write(tmp_path / "cr" / "train.jsonl", texts(100), (1, 0))
    write(tmp_path / "cr" / "test.jsonl", texts(40, 100), ("positive", "negative"))
    return tmp_path


def test_a_name_is_looked_for_among_the_folders_and_files_of_the_data(folder: Path):
    mail = load_task("mail", data=folder, shots=20)
    assert (mail.name, len(mail.train), len(mail.dev), len(mail.test)) == ("mail", 40, 40, 60)
    assert mail.source["test_split"] == "the data's own test split"
    notes = load_task("notes", data=folder)
    assert (notes.name, len(notes.train), len(notes.dev), len(notes.test)) == ("notes", 76, 4, 20)
    assert notes.source["test_split"] == "80/20 of each class's rows, by data seed 0"
    assert notes.source["rows_read"] == {"train": 100}


def test_a_path_is_a_task_named_after_its_last_part_and_data_of_rows_after_the_name(folder: Path):
    assert load_task(str(folder / "notes.jsonl")).name == "notes"
    by_path, by_name = load_task(str(folder / "mail")), load_task("mail", data=folder)
    assert (by_path.name, by_path.fingerprint) == ("mail", by_name.fingerprint)
    task = load_task("letters", data=folder / "mail")
    assert (task.name, task.label_names) == ("letters", ("ham", "spam"))
    assert load_task("letters", data=folder / "notes.jsonl").name == "letters"


def test_a_preset_brings_names_and_prompts_to_data_that_declares_none(folder: Path):
    task = load_task("cr", data=folder)
    assert task.label_names == ("negative", "positive")
    assert task.prompt == PROMPTS["cr"]
    assert {task.train[0].label, task.train[1].label} == {0, 1}


def test_a_presets_labels_declared_in_another_order_mend_class_ids_and_keep_the_prompts(folder):
    write(folder / "cr" / "test.jsonl", texts(40, 100), (1, 0))
    given = load_task("cr", data=folder)
    mended = load_task("cr", data=folder, label_names=("positive", "negative"))
    assert mended.prompt == given.prompt
    for one, other in zip(given.test, mended.test, strict=True):
        assert given.label_names[one.label] != mended.label_names[other.label]


@pytest.mark.parametrize(
    ("name", "given", "declared"),
    [
        ("cr", ("ham", "spam"), False),
        ("imdb", ("negative", "neutral", "positive"), False),
        ("imdb", (1, 2, 3, 4, 5), False),
        ("copa", ("A", "B"), True),
        ("rte", (0, 1), False),
        ("stsb", ("bad", "good"), True),
    ],
)
def test_data_of_ones_own_that_have_a_presets_name_are_read_as_under_any_other_name(
    tmp_path: Path, name: str, given: tuple, declared: bool, caplog: pytest.LogCaptureFixture
):
    for own in (name, "mine"):
        write(tmp_path / own / "train.jsonl", texts(100), given)
        if declared:
            write_task(tmp_path / own, {}, label_names=given[::-1])
    with caplog.at_level(logging.WARNING):
        task = load_task(name, data=tmp_path)
    mine = load_task("mine", data=tmp_path)
    assert caplog.text.count(f"these data are not the known data set {name!r}") == 1
    for part in ("label_names", "train", "dev", "test", "metric", "max_length", "prompt"):
        assert getattr(task, part) == getattr(mine, part)
    assert task.label_names == tuple(str(label) for label in (given[::-1] if declared else given))


def test_a_few_faulty_labels_do_not_make_a_presets_data_ones_own(tmp_path: Path):
    write(tmp_path / "cr" / "train.jsonl", texts(100), (*[1, 0] * 10, "positve"))
    with pytest.raises(InputError, match=r"'positve' is not among .* did you mean 'positive'"):
        load_task("cr", data=tmp_path)
    task = load_task("cr", data=tmp_path, on_bad_row="skip")
    assert (task.label_names, task.prompt) == (("negative", "positive"), PROMPTS["cr"])


def test_labels_of_ones_own_that_the_caller_declares_need_no_note(tmp_path: Path):
    write(tmp_path / "cr" / "train.jsonl", texts(100))
    task = load_task("cr", data=tmp_path, label_names=("spam", "ham"))
    assert task.label_names == ("spam", "ham")
    assert task.prompt is not None
    assert task.prompt.words == {"spam": "spam", "ham": "ham"}
    assert task.source["notes"] == []


def test_an_f1_is_of_the_label_that_is_positive_wherever_it_stands(tmp_path: Path):
    pairs = [{"text": t, "text_pair": t, "label": n % 2} for n, t in enumerate(texts(100))]
    for name in ("qqp", "mine"):
        write_task(tmp_path / name, {"train": pairs})

    def scored(name: str, **settings) -> tuple:
        task = load_task(name, data=tmp_path, **settings)
        return task.metric, task.scored_by, task.source.get("f1_of")

    turned = ("duplicate", "not_duplicate")
    assert scored("qqp") == ("f1", "f1", "duplicate")
    assert scored("qqp", label_names=turned) == ("f1", "f1_of_class_0", "duplicate")
    assert scored("qqp", positive="not_duplicate") == ("f1", "f1_of_class_0", "not_duplicate")
    assert scored("mine") == ("accuracy", "accuracy", None)
    assert scored("mine", metric="f1") == ("f1", "f1", "1")
    write_task(tmp_path / "mine", {}, label_names=["same", "other"], positive="same")
    assert scored("mine") == ("accuracy", "accuracy", None)
    assert scored("mine", metric="f1") == ("f1", "f1_of_class_0", "same")
    with pytest.raises(InputError, match="positive 'neither' is for the metric 'f1' of two labels"):
        load_task("mine", data=tmp_path, metric="f1", positive="neither")
    with pytest.raises(InputError, match="the metric is 'accuracy'"):
        load_task("mine", data=tmp_path, positive="same")
    write_task(tmp_path / "mine", {}, positive=1)
    with pytest.raises(InputError, match="positive must be a label's name, got 1"):
        load_task("mine", data=tmp_path)


def test_a_dev_split_serves_as_test_split_where_there_is_none(tmp_path: Path):
    write(tmp_path / "mail" / "train.jsonl", texts(200))
    write(tmp_path / "mail" / "dev.jsonl", texts(60, 200))
    task = load_task("mail", data=tmp_path)
    assert [row.text for row in task.test] == texts(60, 200)
    assert task.source["test_split"] == "the data's dev split serves as test split"
    assert not {row.text for row in task.dev} & {row.text for row in task.test}


def test_settings_of_the_caller_override_what_is_found(folder: Path):
    words = {"ham": "fine", "spam": "junk"}
    settings = {
        "metric": "f1",
        "max_length": 40,
        "prompt": Prompt("{text} {mask}", words),
        "causal_prompt": Prompt("{text} is", words),
    }
    task = load_task("mail", data=folder, max_train=50, max_test=10, **settings)
    assert (len(task.train), len(task.test)) == (50, 10)
    assert {name: getattr(task, name) for name in settings} == settings


def test_splits_that_lack_classes_or_come_from_train_are_told_in_a_note(tmp_path, caplog):
    write(tmp_path / "post" / "train.jsonl", texts(30), ("ham", "spam", "news"))
    write(tmp_path / "post" / "test.jsonl", texts(9, start=90), ("spam",))
    assert load_task("post", data=tmp_path).source["notes"] == ["test has no row of ham, news"]
    write(tmp_path / "mail.jsonl", texts(120), ("ham", "ham", "spam"))
    with caplog.at_level(logging.WARNING):
        task = load_task("mail", data=tmp_path, shots=40)
    assert {row.label for row in task.dev} == {0, 1}
    (note,) = task.source["notes"]
    assert note.startswith("fewer than 40 rows, all of which serve: spam 32; dev is 5% of the ")
    assert f"task mail: {note}" in caplog.text


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("qnly", None, r"unknown task 'qnly'; did you mean 'qnli'\?"),
        ("built-in:scop", None, r"no built-in task 'scop'; did you mean 'scope'\?"),
        ("./nothing.csv", None, r"nothing\.csv: there is no such file or folder"),
        ("copa", None, "not on the hub in a form that is read here"),
        (" ", None, "name is empty"),
        ("a/b c", None, "cannot name a file"),
        ("mial", "", r"no data for task 'mial'; did you mean 'mail'\?.*notes"),
        ("qnli", "", "no data for task 'qnli'"),
        ("mail", "none", "there is no such file or folder"),
    ],
)
def test_an_unknown_name_is_answered(folder: Path, name: str, data: str | None, message: str):
    with pytest.raises(InputError, match=message):
        load_task(name, data=None if data is None else folder / data)


@pytest.mark.slow
def test_importing_the_tasks_imports_neither_transformers_nor_datasets():
    libraries = {"transformers", "datasets", "avalanche", "pyarrow"}
    code = f"import sys, cl_graft.data; print({libraries} & set(sys.modules))"
    assert printed_by(code, imported="torch").strip() == "set()"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shots": "8"}, "shots: .* valid integer, got '8'"),
        ({"on_bad_row": "skp"}, "on_bad_row: unknown 'skp'; did you mean 'skip'"),
        ({"max_tain": 5}, r"unknown key 'max_tain'; did you mean 'max_train'\?"),
    ],
)
def test_an_argument_of_another_kind_is_answered_in_a_sentence(given: dict, message: str):
    with pytest.raises(InputError, match=message):
        load_task("scope", **given)


def test_settings_are_one_object_or_keywords_which_go_before_it():
    settings = TaskSettings(shots=8, max_test=20)
    assert load_task("scope", settings) == load_task("scope", shots=8, max_test=20)
    assert len(load_task("scope", settings, max_test=30).test) == 30
    few = [p for p in inspect.signature(load_task).parameters.values() if p.kind != p.VAR_KEYWORD]
    assert len(few) == 4
