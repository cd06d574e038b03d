"""A file that is no table, and a row that is no row, are told in one sentence with their place."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cl_graft.data import load_task
from cl_graft.errors import InputError

ROWS = [(f"this is text number {n}", ("no", "yes")[n % 2]) for n in range(40)]
TABLE = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
LINES = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
PACKED = gzip.compress(TABLE.encode())


def zipped() -> bytes:
    with zipfile.ZipFile(made := io.BytesIO(), "w") as archive:
        archive.writestr("mine.csv", TABLE)
    return made.getvalue()


FOREIGN: Mapping[str, tuple[bytes, str]] = {
    "zip": (zipped(), "a zip archive"),
    "gzip": (PACKED, "a gzip archive"),
    "web page": (b"<!DOCTYPE html><html>Sign in", "a web page"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "nothing": (b"", "the file is empty"),
    "header alone": (b"text,label\n", "there are no rows"),
}
DAMAGED: Mapping[str, tuple[str, bytes, str]] = {
    "gzip cut short": ("mine.csv.gz", PACKED[: len(PACKED) // 2], "ends too early"),
    "text called gz": ("mine.csv.gz", TABLE.encode(), "not an intact gzip archive"),
    "text called parquet": ("mine.parquet", TABLE.encode(), "not an intact parquet file"),
}
BAD_ROWS: Mapping[str, tuple[str, str, str]] = {
    "a NUL byte": ("csv", "a\0b,yes", "there is a NUL byte"),
    "a field too many": ("csv", "a, b,yes", "3 fields, but the header has 2"),
    "a field too few": ("csv", "alone", "1 fields, but the header has 2"),
    "a quote that stays open": ("csv", '"open,yes', "quote that is not closed"),
    "no text": ("csv", ",yes", "column 'text' is empty"),
    "a broken object": ("jsonl", '{"text": "a", "label":', "not valid JSON .* at column 23"),
    "nesting without end": ("jsonl", "[" * 100_000, "JSON that cannot be read"),
    "half a character": ("jsonl", '{"text": "a\\ud800", "label": "no"}', r"U\+D800"),
    "no word": ("jsonl", '{"text": "\\u200b\\ufeff", "label": "no"}', "but for invisible"),
    "a list for a text": ("jsonl", '{"text": ["a"], "label": "no"}', "must hold text, got list"),
    "NaN": ("jsonl", '{"text": "a", "label": NaN}', "column 'label' is NaN"),
    "a long text": (
        "jsonl",
        json.dumps({"text": "ab " * 340_000, "label": "no"}),
        "1,020,000 characters, the limit is 1,000,000",
    ),
}
PLACES: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "folder": (lambda path: path.mkdir(), "the folder has no train file"),
    "link in a circle": (lambda path: path.symlink_to(path), "there is no such file"),
    "pipe": (os.mkfifo, "a pipe"),
}


@pytest.mark.parametrize("kind", [*FOREIGN, *DAMAGED])
def test_a_damaged_file_or_one_of_another_kind_is_named(tmp_path: Path, kind: str) -> None:
    name, content, said = DAMAGED.get(kind) or ("mine.csv", *FOREIGN[kind])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{re.escape(name)}: .*{said}"):
        load_task("mine", data=tmp_path)


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    make, said = PLACES[kind]
    make(tmp_path / "mine.csv")
    with pytest.raises(InputError, match=rf"mine\.csv: .*{said}"):
        load_task("mine", data=tmp_path)


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_bad_row_is_told_with_its_line_or_left_out_and_counted(tmp_path: Path, kind: str) -> None:
    ending, row, said = BAD_ROWS[kind]
    path = tmp_path / f"mine.{ending}"
    path.write_text((TABLE if ending == "csv" else LINES) + row + "\n", encoding="utf-8")
    line = 42 if ending == "csv" else 41
    message = rf"mine\.{ending}:{line}: .*{said}.*'skip' leaves such rows out"
    with pytest.raises(InputError, match=message):
        load_task("mine", data=tmp_path)
    task = load_task("mine", data=tmp_path, on_bad_row="skip")
    assert [left["rows"] for left in task.source["left_out"].values()] == [1]


def test_a_label_that_nobody_knows_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"{TABLE}one more,yess\n")
    with pytest.raises(InputError, match=r"mine\.csv:42: .*did you mean 'yes'"):
        load_task("mine", data=tmp_path, label_names=["no", "yes"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.csv").write_text(TABLE)
    (tmp_path / "other" / "test.csv").write_text(f"{TABLE}odd,mabye\n")
    with pytest.raises(InputError, match=r"test\.csv:42: label 'mabye' is not among the labels"):
        load_task("other", data=tmp_path)
