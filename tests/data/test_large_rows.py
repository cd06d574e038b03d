"""A small file whose rows would fill the memory is refused before they are built."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_footers import I64, read_footer, write_footer

from cl_graft.data.readers import read_rows
from cl_graft.data.record_files import Columns, read_records
from cl_graft.data.text_files import MAX_LINE, Reading
from cl_graft.errors import InputError

SMALL = Reading(max_megabytes=2)
LONG = "a" * 900_000
VALUES, UNPACKED_BYTES = 5, 6
"""Fields of a column in the footer of a parquet file."""


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


def repeated(kind: pa.DataType, rows: int = 2000) -> pa.Array:
    """One long value in a dictionary, which every row has."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([LONG], kind))


class Wrapped(pa.ExtensionType):
    """Texts under another name."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "cl_graft.tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Wrapped":
        return cls()


def test_an_item_of_a_list_is_no_longer_than_a_line_may_be(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "' + "a" * 100_000 + '", "label": "b"}]')
    assert len(read_records(path).records) == 1
    path.write_text('[{"text": [' + "[]," * (MAX_LINE // 3) + "[]]}]")
    with pytest.raises(InputError, match="8,000,000 characters"):
        read_records(path)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize("stored", [True, False])
def test_a_parquet_dictionary_counts_as_often_as_rows_have_its_values(tmp_path, kind, stored):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": repeated(kind), "label": [0, 1] * 1000})
    pq.write_table(table, path, compression="zstd", store_schema=stored)
    assert path.stat().st_size < 2000
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(path, reading=SMALL)


def test_parquet_of_large_plain_values_is_refused_by_what_it_declares(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [LONG] * 100
    pq.write_table(pa.table({"text": texts}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(path, reading=SMALL)


NESTED = {
    "words": {"tokens": [[LONG, "b"]] * 99, "tags": [["O", "O"]] * 99},
    "tags": {"tokens": [["a"]] * 1000, "tags": pa.array([[0] * 9000] * 1000, pa.list_(pa.int8()))},
    "empty words": {"tokens": [[""] * 9000] * 1000, "tags": [["O"]] * 1000},
    "answers": {
        "question": ["a"] * 99,
        "context": ["b"] * 99,
        "answers": [{"text": [LONG], "answer_start": [0]}] * 99,
    },
    "messages": {"messages": [[{"role": "user", "content": LONG}]] * 99},
    "lists in lists": {"messages": [[[[0] * 900] * 100] * 4] * 10},
}
"""Columns of kinds of tasks, whose repeated values a file stores once."""


@pytest.mark.parametrize("case", NESTED)
def test_lists_of_parquet_count_as_often_as_rows_have_their_values(tmp_path, case):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(NESTED[case]), path, compression="zstd")
    assert path.stat().st_size < 200_000
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(path, reading=SMALL)


def write_lie(path, table: pa.Table, number: int, **options) -> None:
    """Write a parquet file whose footer says 1 in a field of the first column, and of its rows."""
    plain = {"use_dictionary": False, "write_statistics": False, "store_schema": False, **options}
    pq.write_table(table, path, compression="zstd", **plain)
    footer = read_footer(path)
    (group,) = footer.structs(4)
    footer[3] = group[3] = I64, 1
    group.structs(1)[0].struct(3)[number] = I64, 1
    write_footer(path, footer)


def test_a_parquet_footer_that_lies_about_its_values_is_found_out(tmp_path):
    count = 6_000_000
    ends = pa.array([0, count], pa.int32())
    zeros = pa.ListArray.from_arrays(ends, pa.array(np.zeros(count, "i8")))
    table = pa.table({"tags": zeros, "tokens": [["a"]]})
    options = {"data_page_size": 1 << 30, "use_dictionary": True}
    write_lie(tmp_path / "a.parquet", table, VALUES, **options)
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(tmp_path / "a.parquet", reading=SMALL)


def test_a_parquet_footer_that_lies_about_its_rows_is_found_out(tmp_path):
    nothing = pa.table({"text": pa.nulls(6_000_000, pa.string())})
    options = {"data_page_size": 1 << 30, "row_group_size": 6_000_000}
    write_lie(tmp_path / "a.parquet", nothing, VALUES, **options)
    with little_memory(), pytest.raises(InputError, match="values in 1 rows"):
        read_records(tmp_path / "a.parquet", reading=SMALL)


def test_a_parquet_footer_that_lies_about_its_bytes_is_found_out(tmp_path):
    table = pa.table({"text": ["a" * 80_000_000]})
    write_lie(tmp_path / "a.parquet", table, UNPACKED_BYTES)
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(tmp_path / "a.parquet", reading=SMALL)


def write_shared_prefixes(path, table: pa.Table, *columns: str) -> None:
    encodings = dict.fromkeys(columns, "DELTA_BYTE_ARRAY")
    options = {"use_dictionary": False, "compression": "zstd", "write_statistics": False}
    pq.write_table(table, path, column_encoding=encodings, **options)


def test_texts_of_parquet_stored_by_shared_prefixes_are_read_and_counted(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [None, *(f"the same {n}" for n in range(2999))]
    write_shared_prefixes(path, pa.table({"text": texts}), "text")
    assert [record.values["text"] for record in read_records(path).records] == texts
    write_shared_prefixes(path, pa.table({"text": [f"{LONG}{n}" for n in range(500)]}), "text")
    assert path.stat().st_size < 2000
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(path, reading=SMALL)


def test_many_columns_of_shared_prefixes_are_counted_together(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {f"c{n}": [f"{LONG[:40_000]}{k}" for k in range(30)] for n in range(40)}
    write_shared_prefixes(path, pa.table(columns), *columns)
    assert path.stat().st_size < 100_000
    with little_memory(), pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(path, reading=SMALL)


def test_many_columns_of_fixed_bytes_are_counted_together(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {f"c{n}": pa.array([b"a" * 64] * 1000, pa.binary(64)) for n in range(800)}
    pq.write_table(pa.table(columns), path, compression="zstd")
    with (
        little_memory(40_000_000),
        pytest.raises(InputError, match="larger than 2 MB when unpacked"),
    ):
        read_records(path, reading=SMALL)


def test_lists_of_parquet_stored_by_shared_prefixes_are_refused(tmp_path):
    table = pa.table({"tokens": [["a", "b"]], "tags": [["O", "O"]]})
    write_shared_prefixes(tmp_path / "a.parquet", table, "tokens.list.element")
    with pytest.raises(InputError, match=r"column 'tokens' has lists .*DELTA_BYTE_ARRAY"):
        read_records(tmp_path / "a.parquet")


def test_lists_of_extension_types_and_maps_of_parquet_are_passed_over(tmp_path):
    path = tmp_path / "a.parquet"
    with suppress(pa.ArrowKeyError):  # this type is registered already
        pa.register_extension_type(Wrapped())
    wrapped = pa.ExtensionArray.from_storage(Wrapped(), pa.array([f'"{LONG}"'] * 300))
    offsets = pa.array(range(301), pa.int32())
    table = {
        "tokens": pa.ListArray.from_arrays(offsets, wrapped),
        "tags": pa.array([[("a", 1)]] * 300, pa.map_(pa.string(), pa.int8())),
        "text": ["a"] * 300,
    }
    pq.write_table(pa.table(table), path, compression="zstd")
    with little_memory():
        read = read_records(path, reading=SMALL)
    assert (read.columns, read.passed_over) == (("text",), ("tokens", "tags"))


def test_lists_and_large_fixed_values_of_parquet_are_passed_over(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "text": ["one", "two"] * 500,
            "label": ["x", "y"] * 500,
            "long": pa.array([[0] * 20_000] * 1000, pa.list_(pa.int8())),
            "wide": pa.array([b"a" * 100_000] * 1000, pa.binary(100_000)),
            "inner": pa.array([{"a": 1}] * 1000),
        }
    )
    pq.write_table(table, path, compression="zstd")
    with little_memory():
        read = read_records(path, reading=SMALL)
    assert read.columns == ("text", "label")
    assert read.records[1].values == {"text": "two", "label": "y"}


@pytest.mark.parametrize("known", [True, False])
def test_texts_of_an_extension_type_are_counted_or_passed_over(tmp_path, known):
    path = tmp_path / "a.parquet"
    kind = pa.json_() if known and hasattr(pa, "json_") else Wrapped()
    with suppress(pa.ArrowKeyError):  # this type is registered already
        pa.register_extension_type(kind)
    texts = pa.ExtensionArray.from_storage(kind, pa.array([f'"{LONG}"'] * 300))
    pq.write_table(pa.table({"text": texts, "label": [0] * 300}), path, compression="zstd")
    assert path.stat().st_size < 2000
    columns: tuple[str, ...] = ("label",)
    with little_memory(), suppress(InputError):
        columns = read_records(path, reading=SMALL).columns
    assert columns == ("label",)


def test_dictionaries_of_parquet_give_the_rows_that_they_stand_for(tmp_path):
    labels = pa.array(["good", "bad", None, "good"]).dictionary_encode()
    numbers = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, 0]), pa.array([7, 8]))
    table = pa.table({"text": list("abcd"), "label": labels, "number": numbers})
    pq.write_table(table, tmp_path / "a.parquet")
    values = [r.values for r in read_records(tmp_path / "a.parquet").records]
    assert values == table.to_pylist()


def test_more_parquet_rows_than_may_be_are_refused_before_one_is_built(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.nulls(3_000_000, pa.string())}), path)
    assert path.stat().st_size < 10_000
    start = time.perf_counter()
    with little_memory(), pytest.raises(InputError, match="more than 20,000 rows"):
        read_records(path, reading=SMALL)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("inside", [False, True])
def test_a_saved_data_set_with_a_dictionary_is_refused_before_it_is_unpacked(tmp_path, inside):
    datasets.disable_progress_bars()
    path = tmp_path / "saved"
    datasets.Dataset.from_dict({"text": ["a"] * 2000, "label": [0, 1] * 1000}).save_to_disk(path)
    (file,) = path.glob("*.arrow")
    text = repeated(pa.string())
    if inside:
        text = pa.ListArray.from_arrays(pa.array(range(2001), pa.int32()), text)
    table = pa.table({"text": text, "label": [0, 1] * 1000})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with little_memory(), pytest.raises(InputError, match="the datasets library does not write"):
        read_rows(path, reading=SMALL)


def test_a_saved_data_set_of_packed_rows_is_refused_before_they_are_unpacked(tmp_path):
    datasets.disable_progress_bars()
    path = tmp_path / "saved"
    table = pa.table({"text": ["a" * 90_000] * 2000, "label": [0, 1] * 1000})
    datasets.Dataset.from_dict({"text": ["a"] * 2, "label": [0, 1]}).save_to_disk(path)
    (file,) = path.glob("*.arrow")
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(file), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table)
    assert file.stat().st_size < 100_000
    with little_memory(), pytest.raises(InputError, match=r"\.arrow: packed rows"):
        read_rows(path, reading=SMALL)


@pytest.mark.parametrize("format_name", ["numpy", "torch", "pandas", "arrow"])
def test_a_saved_data_set_is_read_whatever_format_it_was_given(tmp_path, format_name):
    datasets.disable_progress_bars()
    saved = datasets.Dataset.from_dict({"text": ["a", "b"] * 20, "label": [0, 1] * 20})
    saved.with_format(format_name, columns=["label"]).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "beside.arrow").write_bytes(b"of another program")
    read = read_rows(tmp_path / "saved")
    assert [row.text for row in read.splits["train"]] == ["a", "b"] * 20


def test_a_saved_split_without_rows_is_named(tmp_path):
    datasets.disable_progress_bars()
    saved = datasets.Dataset.from_dict({"text": ["a", "b"] * 20, "label": [0, 1] * 20})
    splits = datasets.DatasetDict(train=saved, test=saved.select([]))
    splits.save_to_disk(tmp_path / "saved")
    with pytest.raises(InputError, match="test: the split has no rows"):
        read_rows(tmp_path / "saved")


def test_columns_of_a_saved_data_set_that_are_no_single_values_are_passed_over(tmp_path):
    datasets.disable_progress_bars()
    columns = {"text": ["a", "b"] * 20, "label": [0, 1] * 20, "words": [["c"] * 9] * 40}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    read = read_rows(tmp_path / "saved")
    assert (read.columns.text, len(read.splits["train"])) == ("text", 40)
    with pytest.raises(InputError, match="no column 'words'"):
        read_rows(tmp_path / "saved", columns=Columns(label="words"))


@pytest.mark.parametrize("last", [2_000_000_000, -2_000_000_000, 2])
@pytest.mark.parametrize("column", [0, 1])
def test_a_saved_data_set_whose_offsets_lead_nowhere_is_an_error(tmp_path, column, last):
    datasets.disable_progress_bars()
    columns = {"text": list("abc"), "tags": [["x"], ["y"], ["z"]], "label": [0, 1, 0]}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    offsets = np.array([0, 1, 2, 3], "<i4").tobytes()
    parts = file.read_bytes().split(offsets)
    assert len(parts) == 4  # of the texts, of the lists, and of what is in them
    wrong = [offsets] * 3
    wrong[column] = np.array([0, 1, 4, last], "<i4").tobytes()
    file.write_bytes(b"".join(part + own for part, own in zip(parts, [*wrong, b""], strict=True)))
    with pytest.raises(InputError, match=r"\.arrow: not an intact Arrow file"):
        read_rows(tmp_path / "saved")


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
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"a\.csv:2: not a readable row"):
        read_records(path)
    assert time.perf_counter() - start < 10
