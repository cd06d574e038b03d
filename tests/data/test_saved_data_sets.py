"""Data sets that `save_to_disk` wrote are read, and damage in them is told."""

import random

import datasets
import numpy as np
import pytest
from read_data import read_rows

from cl_graft.errors import InputError

datasets.disable_progress_bars()

ROWS = {"text": ["a", "b"] * 20, "label": [0, 1] * 20}


@pytest.mark.parametrize("format_name", ["numpy", "torch", "pandas", "arrow"])
def test_a_saved_data_set_is_read_whatever_format_it_was_given(tmp_path, format_name):
    saved = datasets.Dataset.from_dict(ROWS)
    saved.with_format(format_name, columns=["label"]).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "beside.arrow").write_bytes(b"of another program")
    read = read_rows(tmp_path / "saved")
    assert [row.text for row in read.splits["train"]] == ["a", "b"] * 20


def test_a_saved_split_without_rows_is_named(tmp_path):
    saved = datasets.Dataset.from_dict(ROWS)
    splits = datasets.DatasetDict(train=saved, test=saved.select([]))
    splits.save_to_disk(tmp_path / "saved")
    with pytest.raises(InputError, match="saved: a split has no rows"):
        read_rows(tmp_path / "saved")


def test_columns_of_a_saved_data_set_that_are_no_single_values_are_passed_over(tmp_path):
    columns = {**ROWS, "words": [["c"] * 9] * 40}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    read = read_rows(tmp_path / "saved")
    assert (read.columns.text, len(read.splits["train"])) == ("text", 40)
    with pytest.raises(InputError, match="no column 'words'"):
        read_rows(tmp_path / "saved", label="words")


@pytest.mark.parametrize("last", [2_000_000_000, -2_000_000_000, 2])
@pytest.mark.parametrize("column", [0, 1])
def test_a_saved_data_set_whose_offsets_lead_nowhere_is_an_error(tmp_path, column, last):
    columns = {"text": list("abc"), "tags": [["x"], ["y"], ["z"]], "label": [0, 1, 0]}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    offsets = np.array([0, 1, 2, 3], "<i4").tobytes()
    parts = file.read_bytes().split(offsets)
    assert len(parts) == 4  # of the texts, of the lists, and of what is in them
    wrong = [offsets] * 3
    wrong[column] = np.array([0, 1, 4, last], "<i4").tobytes()
    file.write_bytes(b"".join(part + own for part, own in zip(parts, [*wrong, b""], strict=True)))
    with pytest.raises(InputError, match="the rows cannot be read"):
        read_rows(tmp_path / "saved")


def test_damaged_bytes_are_rows_or_an_input_error(tmp_path):
    datasets.Dataset.from_dict(ROWS).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    whole, draw, refused = file.read_bytes(), random.Random(0), 0
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 20))):
            damaged[draw.randrange(len(whole))] = draw.randrange(256)
        file.unlink()  # it may be mapped into memory
        file.write_bytes(damaged)
        try:
            read_rows(tmp_path / "saved")
        except InputError:
            refused += 1
    assert refused > 20
