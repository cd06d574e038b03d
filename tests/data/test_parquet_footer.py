"""Sizes in the footer of a parquet file are those that pyarrow tells; what is none is an error."""

import pyarrow
import pyarrow.parquet as parquet
import pytest

from cl_graft.data.parquet_footer import DeclaredSize, read_declared_sizes

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
}


@pytest.fixture(params=WRITTEN)
def path(request, tmp_path):
    parquet.write_table(pyarrow.table(TABLE), tmp_path / "a.parquet", **WRITTEN[request.param])
    return tmp_path / "a.parquet"


def test_sizes_are_those_of_pyarrow(path):
    metadata = parquet.read_metadata(path)
    expected: dict[str, DeclaredSize] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            before = expected.get(column.path_in_schema, DeclaredSize())
            expected[column.path_in_schema] = DeclaredSize(
                before.unpacked_bytes + column.total_uncompressed_size,
                before.values + column.num_values,
            )
    assert read_declared_sizes(path) == expected
    assert len(expected) == 6


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
    with pytest.raises(ValueError, match=r"footer|deep|bits|type|list"):
        read_declared_sizes(tmp_path / "a")
