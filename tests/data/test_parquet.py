"""Parquet files give single values and what kinds of tasks have, within limits."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cl_graft.data import record_files
from cl_graft.data.record_files import read_records
from cl_graft.errors import InputError

PLAIN = {"use_dictionary": False, "store_schema": False}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.parquet"


def test_batches_give_every_row_whatever_their_size(path, monkeypatch):
    table = pa.table(
        {
            "text": [None, *(f"text {n}" for n in range(99))],
            "label": pa.array(["good", "bad"] * 50).dictionary_encode(),
            "tokens": [["one", str(n)] for n in range(100)],
            "tags": [["O", None]] * 99 + [None],
        }
    )
    pq.write_table(table, path, row_group_size=13)
    for rows in (1, 7, 10_000):
        monkeypatch.setattr(record_files, "_BATCH_ROWS", rows)
        assert [r.values for r in read_records(path).records] == table.to_pylist()


def test_other_columns_than_those_of_texts_and_kinds_are_passed_over(path):
    table = {
        "text": ["one", "two"],
        "label": ["x", "y"],
        "long": [[0, 1]] * 2,
        "day": pa.array([10**8, None], pa.int32()).cast(pa.date32()),
        "when": pa.array([1, None], pa.timestamp("us", tz="Nowhere/Else")),
        "inner": [{"a": 1}] * 2,
        "json": pa.array(['"a"'] * 2, pa.json_()),
        "tokens": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int8())),
    }
    pq.write_table(pa.table(table), path)
    read = read_records(path)
    assert read.columns == ("text", "label")
    assert read.passed_over == ("long", "day", "when", "inner", "json", "tokens")
    assert read.records[1].values == {"text": "two", "label": "y"}


def test_a_text_that_is_not_utf_8_names_its_column(path):
    pq.write_table(pa.table({"text": ["aé", "b"], "label": [0, 1]}), path, **PLAIN)
    path.write_bytes(path.read_bytes().replace("aé".encode(), b"a\xff\xff"))
    with pytest.raises(InputError, match="column 'text' holds a text that is not UTF-8"):
        read_records(path)


def test_a_name_with_dots_is_one_column_and_a_name_given_twice_none(path):
    inner = pa.array([{"a": ["x"]}] * 2)
    table = pa.table({"text.a": ["one", "two"], "text": inner, "label": [0, 1], "label.b": inner})
    pq.write_table(table, path)
    read = read_records(path)
    expected = [{"text.a": "one", "label": 0}, {"text.a": "two", "label": 1}]
    assert [record.values for record in read.records] == expected
    assert read.passed_over == ("text", "label.b")
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), path)
    with pytest.raises(InputError, match="several columns called 'text'"):
        read_records(path)


@pytest.mark.parametrize("cut", [5, 50, 900])
def test_a_file_that_was_cut_off_is_an_error(path, cut):
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(90)]}), path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match="not an intact parquet file"):
        read_records(path)
