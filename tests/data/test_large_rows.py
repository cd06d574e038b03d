"""A small file whose rows would fill the memory is refused before they are built."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from cl_graft.data.record_files import read_records
from cl_graft.data.text_files import MAX_LINE, Reading
from cl_graft.errors import InputError

SMALL = Reading(max_megabytes=2)


@contextmanager
def little_memory(most: int = 60_000_000) -> Iterator[None]:
    """Make sure that a `with` block takes less than `most` bytes, of Python's and of Arrow's."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield
        taken = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert taken < most, f"{taken:,} bytes"


def test_rows_are_counted_as_the_memory_that_they_take(tmp_path):
    """Thousands of empty objects in a line, or hundreds of columns, are small in the file alone."""
    empty = json.dumps({"text": "a", "label": 0, "more": [{}] * 300})
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((f"{empty}\n" * 1500).encode()))
    header = ",".join(["text", "label", *(f"c{n}" for n in range(500))])
    row = ",".join(["a", "0", *["1"] * 500])
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress("\n".join([header, *[row] * 900]).encode()))
    for path in tmp_path.iterdir():
        with little_memory(100_000_000), pytest.raises(InputError, match="16 MB of memory, 8 time"):
            read_records(path, reading=SMALL)


def test_a_line_beyond_any_row_is_refused_before_it_is_parsed(tmp_path):
    objects = "{}," * (MAX_LINE // 3)
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 0, "more": [' + objects + "{}]}\n")
    with little_memory(), pytest.raises(InputError, match=r"a\.jsonl:1: the line has 8,000,0.."):
        read_records(tmp_path / "a.jsonl")
    for name, content in {
        "header.csv": "," * (MAX_LINE + 1),
        "row.csv": "text,label\na,b\n" + "," * (MAX_LINE + 1),
        "field.tsv": 'text\tlabel\n"' + "a" * (MAX_LINE + 1) + '"\tb\n',
    }.items():
        (tmp_path / name).write_text(content)
        with little_memory(), pytest.raises(InputError, match=r"a line of 8,000,0.. characters"):
            read_records(tmp_path / name)


def test_an_open_quote_before_many_lines_takes_the_time_of_one_pass(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"open,x\n' + "a,b\n" * 100_000)
    start = time.process_time()
    with pytest.raises(InputError, match=r"a\.csv:2: not a readable row"):
        read_records(path)
    assert time.process_time() - start < 10
