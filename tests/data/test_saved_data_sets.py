"""Data sets that `save_to_disk` wrote are read, and damage in them is told."""

import random

import datasets
import pytest
from read_data import read_rows

from cl_graft.errors import InputError

datasets.disable_progress_bars()

ROWS = {"text": ["a", "b"] * 20, "label": [0, 1] * 20}


def test_a_saved_data_set_is_read_whatever_format_it_was_given(tmp_path):
    saved = datasets.Dataset.from_dict(ROWS)
    saved.with_format("torch", columns=["label"]).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "beside.arrow").write_bytes(b"of another program")
    read = read_rows(tmp_path / "saved")
    assert [row.text for row in read.splits["train"]] == ["a", "b"] * 20


def test_a_saved_split_without_rows_is_named(tmp_path):
    saved = datasets.Dataset.from_dict(ROWS)
    splits = datasets.DatasetDict(train=saved, test=saved.select([]))
    splits.save_to_disk(tmp_path / "saved")
    with pytest.raises(InputError, match="saved: a split has no rows"):
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
