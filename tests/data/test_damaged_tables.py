"""Damage in binary tables is told in a sentence: none of it ends the process."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet as parquet
import pytest
from read_data import read_rows
from slow_cases import slow

from cl_graft.data.text_files import Reading
from cl_graft.errors import InputError

CLASSES = {"text": [f"text {n}" for n in range(60)], "label": [0, 1] * 30}
TAGS = {"tokens": [["one", str(n)] for n in range(60)], "tags": [["O", "B-a"]] * 60}
ANSWERS = {
    "question": ["what"] * 60,
    "context": ["a thing"] * 60,
    "answers": [{"text": ["thing"], "answer_start": [2]}] * 60,
}


def write_parquet(folder: Path, table: dict[str, list], **options) -> Path:
    path = folder / "a.parquet"
    parquet.write_table(pyarrow.table(table), path, **options)
    return path


def write_saved(folder: Path, table: dict[str, list]) -> Path:
    datasets.Dataset.from_dict(table).save_to_disk(folder / "saved")
    (path,) = (folder / "saved").glob("*.arrow")
    return path


@pytest.mark.parametrize("table", [CLASSES, TAGS, ANSWERS], ids=["classes", "tags", "answers"])
@pytest.mark.parametrize(
    "write",
    [
        write_parquet,
        write_saved,
        *slow(
            lambda folder, table: write_parquet(folder, table, row_group_size=13),
            lambda folder, table: write_parquet(folder, table, data_page_version="2.0"),
            lambda folder, table: write_parquet(folder, table, use_dictionary=False),
        ),
    ],
)
def test_damaged_bytes_are_rows_or_an_input_error(
    tmp_path, table: dict[str, list], write: Callable[[Path, dict[str, list]], Path]
):
    path = write(tmp_path, table)
    whole = path.read_bytes()
    asked = path if path.suffix == ".parquet" else path.parent
    draw, refused = random.Random(0), 0
    for _ in range(250):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 2, 20))):
            # Footer and head, where the sizes are, as often as all the rest.
            place = draw.choice((draw.randrange(len(whole)), -1 - draw.randrange(1000)))
            damaged[max(place, -len(whole))] = draw.randrange(256)
        path.unlink()  # it may be mapped into memory
        path.write_bytes(damaged)
        try:
            read_rows(asked, reading=Reading(max_megabytes=20))
        except InputError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("flip", [0x10, *slow(0x01, 0x80)])
def test_every_damaged_byte_of_a_footer_is_rows_or_an_input_error(tmp_path, flip):
    path = write_parquet(tmp_path, {name: rows[:2] for name, rows in TAGS.items()})
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    read = 0
    for place in range(len(whole) - footer, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= flip  # in a list of sizes, one more or less than there are
        path.write_bytes(damaged)
        with suppress(InputError):
            read_rows(path, reading=Reading(max_megabytes=20))
            read += 1
    assert 0 < read < footer
