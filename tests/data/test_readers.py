"""Every form of data gives the same rows, and every fault one sentence with file and line."""

import time
from pathlib import Path

import datasets
import pandas as pd
import pytest
from answer_tasks import write_task
from huggingface_hub import constants
from read_data import read_rows

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.readers import has_rows
from cl_graft.data.record_files import read_records
from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row

datasets.disable_progress_bars()

TEXTS = ["Good, very good", 'She said "no"', "tab\there", "Zoë — 漢字", "two\nlines", "plain"]
RECORDS = [
    {"text": text, "label": label}
    for text, label in zip(TEXTS, ["good", "bad", "good", "bad", "good", "bad"], strict=True)
]
ROWS = tuple(Row(r["text"], None, int(r["label"] == "good")) for r in RECORDS)


def write(path: Path, records: list[dict], **options) -> Path:
    """Write rows as pandas does, in the format of the file's name."""
    path.parent.mkdir(exist_ok=True)
    table, kind = pd.DataFrame(records), path.name.lower().removesuffix(".gz").rsplit(".")[-1]
    if kind == "parquet":
        table.to_parquet(path)
    elif kind == "csv":
        table.to_csv(path, index=False, **options)
    elif kind == "tsv":
        table.to_csv(path, index=False, sep="\t", **options)
    else:
        options = {"orient": "records", "lines": kind == "jsonl", "force_ascii": False, **options}
        table.to_json(path, **options)
    return path


def labelled_table(names: list[str], **columns: list) -> datasets.Dataset:
    """A table of the library, whose column `label` has classes."""
    types = {name: datasets.Value("string") for name in columns}
    features = datasets.Features({**types, "label": datasets.ClassLabel(names=names)})
    return datasets.Dataset.from_dict(columns, features=features)


OPTIONS = {
    "semicolon.csv": {"sep": ";"},
    "tabs.csv": {"sep": "\t"},
    "bom.csv": {"encoding": "utf-8-sig"},
    "indented.json": {"indent": 2},
}


@pytest.mark.parametrize(
    "name",
    [
        *("a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz"),
        *("a.csv", "a.tsv", "a.parquet", "A.CSV", *OPTIONS),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str):
    path = write(tmp_path / name, RECORDS, **OPTIONS.get(name, {}))
    read = read_rows(path)
    assert read.splits == {"train": ROWS}
    assert read.label_names == ("bad", "good")
    assert has_rows(path)


def test_texts_are_read_as_they_are(tmp_path: Path):
    texts = [
        "هذا نص עברית \u202e\u200f.",
        "👩‍👩‍👧‍👦 🇪🇺 👍🏽",
        "Z\u0351\u036b\u0343a\u0302\u0323l\u0336g\u0321o",
        "a\x01b\x1b[31mc\x7f, zero\u200bwidth",
        "[SEP] [MASK] </s> <|endoftext|>",
    ]
    records = [{"text": text, "label": n % 2} for n, text in enumerate(texts)]
    for name in ("a.jsonl", "a.csv", "a.tsv", "a.parquet"):
        read = read_rows(write(tmp_path / name, records))
        assert [row.text for row in read.splits["train"]] == texts


def test_a_folder_gives_its_splits_in_any_formats(tmp_path: Path):
    write(tmp_path / "train.jsonl.gz", RECORDS)
    write(tmp_path / "validation.csv", RECORDS[:4])
    write(tmp_path / "test.parquet", RECORDS[:2])
    (tmp_path / "README.md").write_text("notes")
    read = read_rows(tmp_path)
    assert read.splits == {"train": ROWS, "dev": ROWS[:4], "test": ROWS[:2]}


@pytest.mark.parametrize("split", ["dev", "valid", "val", "eval", "validation"])
def test_a_dev_file_has_many_names(tmp_path: Path, split: str):
    write_task(tmp_path, {"train": RECORDS, split: RECORDS})
    assert set(read_rows(tmp_path).splits) == {"train", "dev"}


def test_a_folders_meta_file_declares_label_names_and_their_order(tmp_path: Path):
    splits = {"train": [{"text": "a", "label": 0}, {"text": "b", "label": "x"}]}
    read = read_rows(write_task(tmp_path, splits, label_names=["z", "x"]))
    assert read.label_names == ("z", "x")
    assert [row.label for row in read.splits["train"]] == [0, 1]
    for meta, message in (
        ("{", r"meta\.json: not a readable JSON object"),
        ('{"label_names": "z, x"}', "must be a list of texts, got 'z, x'"),
    ):
        (tmp_path / "meta.json").write_text(meta)
        with pytest.raises(InputError, match=message):
            read_rows(tmp_path)


def test_data_sets_saved_to_disk_give_rows_and_label_names(tmp_path: Path):
    table = labelled_table(["good", "bad"], sentence=TEXTS, label=[r["label"] for r in RECORDS])
    table.save_to_disk(tmp_path / "one")
    splits = datasets.DatasetDict({"train": table, "validation": table.select([0, 1])})
    splits.save_to_disk(tmp_path / "many")
    table.to_parquet(tmp_path / "table.parquet")
    expected = tuple(Row(row.text, None, 1 - int(row.label)) for row in ROWS)
    for name in ("one", "many", "table.parquet"):
        read = read_rows(tmp_path / name)
        assert has_rows(tmp_path / name)
        assert read.label_names == ("good", "bad")
        assert read.splits["train"] == expected
    assert read_rows(tmp_path / "many").splits["dev"] == expected[:2]
    assert read_rows(tmp_path / "many").columns.text == "sentence"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_whose_names_hold_other_delimiters_is_parted_by_its_own(tmp_path, delimiter):
    name = "text; of, it\tall".replace(delimiter, " ")
    lines = [f'"{name}, ; , ;"{delimiter}label', *(f"{t}{delimiter}{t}" for t in "ab")]
    (tmp_path / "a.csv").write_text("\n" + "\n".join(lines))
    assert read_records(tmp_path / "a.csv").columns == (f"{name}, ; , ;", "label")


def test_rows_marked_unlabelled_by_the_datasets_library_are_left_out_with_a_warning(tmp_path: Path):
    table = labelled_table(["a", "b"], text=["x", "y", "z"], label=[0, -1, 1])
    table.save_to_disk(tmp_path / "saved")
    bad = BadRows()
    read = read_rows(tmp_path / "saved", bad_rows=bad)
    assert [row.text for row in read.splits["train"]] == ["x", "z"]
    assert "left out 1 row: without a label" in bad.sentences()[0]


def test_a_test_split_with_hidden_labels_is_named_and_left_out(tmp_path: Path):
    hidden = [{"text": "a", "label": -1}, {"text": "b", "label": -1}]
    read = read_rows(write_task(tmp_path, {"train": RECORDS, "dev": RECORDS, "test": hidden}))
    assert set(read.splits) == {"train", "dev"}
    assert read.without_labels == ("test",)


def test_an_unreachable_hub_is_an_error_within_seconds_that_names_the_local_forms(monkeypatch):
    # Port 9 of this machine answers nobody: a hub that cannot be reached, wherever the test runs.
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    start = time.monotonic()
    with pytest.raises(InputError, match=r"cannot be reached .*\.parquet.*save_to_disk"):
        read_rows("someone/some_data")
    assert time.monotonic() - start < 8


def test_what_the_datasets_library_loads_by_name_becomes_rows(tmp_path, monkeypatch):
    # Offline the library loads only what is on this machine: here a folder under its full path.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    splits = {"train": RECORDS, "test": RECORDS[:2]}
    read = read_rows(str(write_task(tmp_path / "named", splits)))
    assert read.splits == {"train": ROWS, "test": ROWS[:2]}
    with pytest.raises(InputError, match=r"hub data set 'someone/absent' cannot be loaded"):
        read_rows("someone/absent")


def test_labels_without_declared_names_become_names_sorted_as_numbers_or_as_text(tmp_path: Path):
    for name, labels, names in (
        ("a.jsonl", (10, 2, 10, 1), ("1", "2", "10")),
        ("a.jsonl", (True, False), ("false", "true")),
        ("a.csv", ("10", "9"), ("9", "10")),
    ):
        read = read_rows(write(tmp_path / name, [{"text": "t", "label": one} for one in labels]))
        assert read.label_names == names
        told = [names[row.label] for row in read.splits["train"]]
        assert told == [str(label).lower() for label in labels]


def test_a_tsv_with_lone_quotes_is_read_literally(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"lone quote\tx\nanother " one\ty\n')
    assert [row.text for row in read_rows(path).splits["train"]] == ['"lone quote', 'another " one']


GOOD = '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n'
LIST = '[{"text": "a", "label": "x"},\n{"text": " ", "label": "y"}'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", GOOD + '\n{"text": "c"}\n', r"a\.jsonl:4: there is no column 'label'"),
        ("a.jsonl", GOOD + '{"text": null, "label": "x"}\n', r"a\.jsonl:3: .*'text' is empty"),
        ("a.jsonl", GOOD + '{"text": "c", "label": [1]}\n', r"a\.jsonl:3: label \[1\] is neither"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n', r"a\.jsonl: all rows have the same label 'x'"),
        ("a.jsonl", "\n \n", r"a\.jsonl: the file is empty"),
        ("a.jsonl", '{"words": "a", "label": 1}', r"no text column found among words, label"),
        ("a.jsonl", '{"text": "a", "lab": 1}', r"no label column found among text, lab"),
        ("a.csv", 'text,label\n"a\nb",x\nc\n', r"a\.csv:4: 1 fields, but the header has 2"),
        ("a.csv", "text,text\na,x\n", r"a\.csv:1: the header names a column twice"),
        ("a.tsv", "text\tlabel\na\tx\nb\n", r"a\.tsv:3: 1 fields, but the header has 2"),
        ("a.json", "[]", r"a\.json: there are no rows"),
        ("a.json", "[1]", r"a\.json: item 1: each item of the list must be an object"),
        ("a.json", LIST + "]", r"a\.json: item 2: .*'text' is empty"),
        ("a.json", LIST, r"a\.json:2: not a valid list of JSON .* cut off, or written to twice"),
        ("a.json", LIST + "]\n[]", r"a\.json:3: not a valid list of JSON \(Extra data"),
        ("a.json", '{\n"a": 1}', r"a\.json:1: not valid JSON .* one document over many lines"),
        ("a.json", '{"data": [{"a": 1}, {"a": 2}]}', r"a\.json: one object .* a list of its rows"),
        ("a.json", '{"a": {"0": 1}, "b": {"0": 1}}', r"a\.json: one object .* orient='records'"),
        ("a.txt", "text", r"a\.txt: unknown kind of file; read are \.jsonl"),
    ],
)
def test_a_fault_in_a_file_is_one_sentence_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_rows(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_folder_with_two_train_files_is_an_error(tmp_path: Path):
    assert not has_rows(tmp_path)
    write(tmp_path / "train.jsonl", RECORDS)
    write(tmp_path / "train.jsonl.gz", RECORDS)
    with pytest.raises(InputError, match=r"both train\.jsonl and train\.jsonl\.gz are train files"):
        read_rows(tmp_path)


def test_an_encoding_that_nobody_named_is_found_and_told(tmp_path):
    rows = [
        {"text": f"They had “{word}” there – for €5 a day", "label": word[0]}
        for word in ("café", "née", "naïve")
    ] * 9
    path = write(tmp_path / "a.csv", rows)
    path.write_bytes(path.read_text(encoding="utf-8").encode("cp1252"))
    bad = BadRows()
    read = read_rows(path, bad_rows=bad)
    assert [row.text for row in read.splits["train"]] == [row["text"] for row in rows]
    (note,) = bad.notes
    assert note.startswith(
        f"{path}: not UTF-8, read as cp1252; if that is wrong, name its encoding"
    )


def test_an_unknown_column_is_an_error_that_lists_those_there_are(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", RECORDS)
    for name in ("text", "text_pair", "label"):
        said = r"no column 'txt'; did you mean 'text'\?.*label, text"
        with pytest.raises(InputError, match=said):
            read_rows(path, **{name: "txt"})
