"""Sizes of columns of parquet are those of pages that pyarrow reads; what is none is an error."""

from collections import Counter

import pyarrow
import pyarrow.parquet as parquet
import pytest

from cl_graft.data.parquet_lengths import check_lengths
from cl_graft.data.parquet_sizes import ColumnSize, Levels, read_column_sizes

TABLE = {
    "text": [f"text {n}" for n in range(90)],
    "label": [n % 2 for n in range(90)],
    "tokens": [["one", str(n)] for n in range(90)],
    "tags": [["O", None]] * 89 + [None],
    "answers": [{"text": ["a"], "answer_start": [0]}] * 90,
}
WRITTEN = {
    "plain": {"use_dictionary": False},
    "groups": {"row_group_size": 13, "compression": "zstd"},
    "pages": {"data_page_version": "2.0", "write_page_index": True, "store_schema": False},
    "small pages": {"max_rows_per_page": 7, "compression": "gzip"},
}


@pytest.fixture(params=WRITTEN)
def path(request, tmp_path):
    parquet.write_table(pyarrow.table(TABLE), tmp_path / "a.parquet", **WRITTEN[request.param])
    return tmp_path / "a.parquet"


def read_sizes(path):
    """Sizes of all columns by their paths."""
    schema = parquet.ParquetFile(path).schema
    columns = [schema.column(place) for place in range(len(schema))]
    levels = {
        place: Levels(column.max_repetition_level, column.max_definition_level)
        for place, column in enumerate(columns)
    }
    sizes = read_column_sizes(path, columns=len(columns), levels=levels)
    for place, size in sizes.items():
        check_lengths(path, size.pages_with_lengths, levels[place])
    return {columns[place].path: size for place, size in sizes.items()}


def test_sizes_are_those_of_an_intact_footer(path):
    metadata = parquet.read_metadata(path)
    packed, values, chunks = Counter(), Counter(), Counter()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            packed[column.path_in_schema] += column.total_uncompressed_size
            values[column.path_in_schema] += column.num_values
            chunks[column.path_in_schema] += 1
    read = read_sizes(path)
    assert len(read) == 6
    for name, size in read.items():
        assert size.values == values[name]
        # The footer counts headers of pages, too: here about 20 to 60 bytes each.
        pages = 26 * chunks[name]
        assert packed[name] - 60 * pages < size.unpacked_bytes < packed[name]
        assert size.unpacked_bytes / pages <= size.largest_page <= size.unpacked_bytes
        assert not size.shares_prefixes


def test_one_page_has_the_bytes_of_its_values(tmp_path):
    table = pyarrow.table({"n": pyarrow.array([1, 2, 3], pyarrow.int64())})
    table = table.cast(pyarrow.schema([pyarrow.field("n", pyarrow.int64(), nullable=False)]))
    parquet.write_table(table, tmp_path / "a", use_dictionary=False)
    assert read_sizes(tmp_path / "a") == {"n": ColumnSize(24, 3, 24)}


@pytest.mark.parametrize("length", [10, 5_000, 100_000])
def test_a_page_header_may_hold_long_statistics(tmp_path, length):
    texts = pyarrow.array([b"a" * length, b"b"], pyarrow.binary(-1))
    options = {"write_page_index": False, "data_page_version": "1.0", "compression": "zstd"}
    parquet.write_table(pyarrow.table({"t": texts}), tmp_path / "a", **options)
    size = read_sizes(tmp_path / "a")["t"]
    assert (size.values, size.largest_page > length) == (2, True)


def test_a_page_of_shared_prefixes_is_told(tmp_path):
    encodings = {"column_encoding": {"t": "DELTA_BYTE_ARRAY", "u": "PLAIN"}}
    table = pyarrow.table({"t": ["aa", "ab"], "u": ["a", "b"]})
    parquet.write_table(table, tmp_path / "a", use_dictionary=False, **encodings)
    sizes = read_sizes(tmp_path / "a")
    assert (sizes["t"].shares_prefixes, sizes["u"].shares_prefixes) == (True, False)


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"\x19" * 5000,  # lists in lists
        b"\x1c" * 5000,  # structs in structs
        b"\x16" + b"\xff" * 20,  # a number without an end
        b"\x18\xff\xff\xff\xff\x0f",  # a text that is longer than the footer
        b"\x49\xfc\xff\xff\xff\xff\x0f",  # more groups of rows than bytes
        b"\x1d\x00",  # no type
        b"\x15\x02\x00",  # no groups of rows
    ],
)
def test_what_is_no_footer_is_an_error(tmp_path, footer):
    (tmp_path / "a").write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"footer|deep|bits|type|missing|early|cannot be"):
        read_column_sizes(tmp_path / "a", columns=0, levels={})
