"""Parquet files that an enemy made: footers and pages that contradict each other are errors.

Each case takes a sound file's footer apart, changes it and writes it again.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_footers import I64, LIST, STRUCT, read_footer, write_footer

from cl_graft.data.record_files import read_records
from cl_graft.data.text_files import Reading
from cl_graft.data.thrift import Struct, read_struct
from cl_graft.errors import InputError

SMALL = Reading(max_megabytes=2)
PLAIN = {"use_dictionary": False, "write_statistics": False, "store_schema": False}


@pytest.fixture
def path(tmp_path):
    table = pa.table({"text": list("abcd"), "label": [0, 1, 0, 1]})
    pq.write_table(table, tmp_path / "a.parquet", **PLAIN)
    return tmp_path / "a.parquet"


def change_rows(footer: Struct) -> None:
    footer[3] = I64, 10


def change_rows_of_the_group(footer: Struct) -> None:
    footer.structs(4)[0][3] = I64, 8


def change_both_rows(footer: Struct) -> None:
    footer[3] = I64, 2
    footer.structs(4)[0][3] = I64, 2


def take_a_column(footer: Struct) -> None:
    del footer.structs(4)[0].structs(1)[1:]


CHANGES = [
    (change_rows, "4 rows in its groups, 10 in the file"),
    (change_rows_of_the_group, "4 values in 8 rows"),
    (change_both_rows, "4 values in 2 rows"),
    (take_a_column, "1 columns, not 2|not an intact"),
]


def test_a_footer_that_is_written_again_is_read(path):
    write_footer(path, read_footer(path))
    assert [record.values["text"] for record in read_records(path).records] == list("abcd")


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_a_footer_that_contradicts_itself_or_its_pages_is_an_error(path, change, told):
    footer = read_footer(path)
    change(footer)
    write_footer(path, footer)
    with pytest.raises(InputError, match=told):
        read_records(path, reading=SMALL)


def test_pages_that_many_groups_of_rows_share_are_an_error(path):
    pq.write_table(pa.table({"text": ["a" * 5000]}), path, compression="none", **PLAIN)
    footer = read_footer(path)
    footer[4] = LIST, (STRUCT, footer.structs(4) * 200)
    footer[3] = I64, 200
    write_footer(path, footer)
    with pytest.raises(InputError, match="pages of more than the file's"):
        read_records(path, reading=SMALL)


def test_a_column_of_the_footer_is_measured_whatever_it_is_called(path):
    table = pa.table({"text": ["a" * 5_000_000], "label": [0]})
    pq.write_table(table, path, compression="zstd", **PLAIN)
    footer = read_footer(path)
    footer.structs(4)[0].structs(1)[0].struct(3)[3] = LIST, (8, [b"texu"])
    write_footer(path, footer)
    with pytest.raises(InputError, match="larger than 2 MB when unpacked"):
        read_records(path, reading=SMALL)


@pytest.mark.parametrize("kind", [0x19, 0x1A, 0x1B, 0x1C, 0x11, 0x16, 0x15, 0x18])
def test_a_field_of_a_page_of_another_type_is_rows_or_an_input_error(path, kind):
    whole = path.read_bytes()
    refused = 0
    for place in range(4, 40):
        path.write_bytes(whole[:place] + bytes([kind]) + whole[place + 1 :])
        try:
            read_records(path, reading=SMALL)
        except InputError:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"\x15\x02\x05\x02\x04", "twice"),  # field 1, and field 1 again by its number
        (b"\x05\x80\x80\x08\x02", "cannot be"),  # field 65536
        (b"\x19" + b"\xfc\xd0\x0f" + b"\0" * 2000, "too many"),  # 2,000 empty structs
    ],
)
def test_a_struct_that_other_readers_would_read_in_another_way_is_an_error(written, told):
    with pytest.raises(ValueError, match=told):
        read_struct(written + b"\0", most_values=1000)


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd", "gzip", "snappy", "brotli", "lz4"])
def test_texts_behind_their_lengths_are_read(path, encoding, version, codec):
    texts = [None if n % 7 == 0 else f"text {n}" * (n % 5) for n in range(3000)]
    own = {"column_encoding": {"text": encoding}, "data_page_version": version}
    table = pa.table({"text": texts, "tags": [["a", str(n)] for n in range(3000)]})
    pq.write_table(table, path, compression=codec, max_rows_per_page=700, **own, **PLAIN)
    assert [record.values["text"] for record in read_records(path).records] == texts
    if encoding == "DELTA_LENGTH_BYTE_ARRAY":
        own["column_encoding"] = {"tokens.list.element": encoding}
        table = pa.table({"tokens": table["tags"], "tags": table["tags"]})
        pq.write_table(table, path, compression=codec, **own, **PLAIN)
        read = read_records(path)
        assert [record.values["tokens"] for record in read.records] == table["tags"].to_pylist()


@pytest.mark.parametrize(
    ("encoding", "which"),
    [("DELTA_LENGTH_BYTE_ARRAY", 0), ("DELTA_BYTE_ARRAY", 0), ("DELTA_BYTE_ARRAY", 1)],
)
def test_more_lengths_than_values_are_refused(path, encoding, which):
    own = {"column_encoding": {"text": encoding}}
    pq.write_table(pa.table({"text": ["ab", "cd"]}), path, compression="none", **own, **PLAIN)
    parts = path.read_bytes().split(bytes([128, 1, 4, 2]))  # blocks of 128 in 4 parts, 2 numbers
    assert len(parts) == 2 + (encoding == "DELTA_BYTE_ARRAY")
    wrong = [bytes([128, 1, 4, 127 if place == which else 2]) for place in range(len(parts) - 1)]
    path.write_bytes(b"".join(part + own for part, own in zip(parts, [*wrong, b""], strict=True)))
    with pytest.raises(InputError, match=r"127 lengths in a page of 2 values|ends too early"):
        read_records(path, reading=SMALL)


def test_a_text_that_is_not_utf_8_names_its_column(path):
    pq.write_table(pa.table({"text": ["aé", "b"], "label": [0, 1]}), path, **PLAIN)
    path.write_bytes(path.read_bytes().replace("aé".encode(), b"a\xff\xff"))
    with pytest.raises(InputError, match="column 'text' holds a text that is not UTF-8"):
        read_records(path)


def test_a_name_with_dots_is_one_column(path):
    inner = pa.array([{"a": ["x"]}] * 2)
    table = pa.table({"text.a": ["one", "two"], "text": inner, "label": [0, 1], "label.b": inner})
    pq.write_table(table, path)
    read = read_records(path)
    assert [record.values for record in read.records] == [
        {"text.a": "one", "label": 0},
        {"text.a": "two", "label": 1},
    ]
    assert read.passed_over == ("text", "label.b")
