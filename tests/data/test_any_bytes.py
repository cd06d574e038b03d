"""Whatever bytes a file holds, it gives rows or an InputError, and every row is accounted for."""

import gzip
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from read_data import read_rows
from slow_cases import slow

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.record_files import read_records
from cl_graft.errors import InputError

PIECES = st.sampled_from(
    [
        *(b'"', b",", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"{", b"}", b"[", b'""', b"a", b" "),
        *(b"text", b"label", b"text,label\n", b"a,1\n", b"b,0\n", b"nan", b"1e999", b"\\ud800"),
        *(b'{"text": "a", "label": 1}', b'{"text": "b", "label": 0}\n'),
        *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xe9", "é\u2028漢".encode()),
    ]
)
CONTENT = st.one_of(st.lists(PIECES, max_size=40).map(b"".join), st.binary(max_size=200))
SETTINGS = settings(max_examples=150)
GOOD = {"good,1": "good", "fine,0": "fine", '"shut",1': "shut"}


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", *slow("a.tsv", "a.json", "a.csv.gz")])
def test_any_bytes_are_rows_or_an_input_error(name, on_bad_row):
    @SETTINGS
    @given(CONTENT, st.booleans())
    def read(content: bytes, packed: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(gzip.compress(content) if packed else content)
            with suppress(InputError):
                assert read_rows(path, bad_rows=BadRows(on_bad_row)).splits["train"]

    read()


@SETTINGS
@given(st.lists(st.sampled_from(['"open,1', "few", "a,b,c", '"a"b,1', *GOOD])))
@example(['"open,1', *["good,1"] * 10, '"shut",1'])
def test_every_line_of_a_table_without_line_ends_in_quotes_is_a_record_or_counted(given_lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_text("\n".join(["text,label", *given_lines, "last,0"]))
        bad = BadRows("skip")
        records = read_records(path, bad_rows=bad).records
        good = [GOOD[line] for line in given_lines if line in GOOD]
        assert [record.values["text"] for record in records] == [*good, "last"]
        assert bad.total == len(given_lines) - len(good)
