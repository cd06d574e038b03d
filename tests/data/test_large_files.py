"""Large tables and JSON lines are decoded line by line, and read as small ones are."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cl_graft.data import text_files
from cl_graft.data.bad_rows import BadRows
from cl_graft.data.record_files import read_records
from cl_graft.data.text_files import EncodedText, Reading, detect_encoding, find_lines
from cl_graft.errors import InputError

LINES = st.lists(
    st.sampled_from(
        [
            *("text,label", "a,b", '"a', 'b",c', "", " ", "sep=;", "text;label", "ü;ß", "😀,1"),
            *(r'"a \"b\" c",\N', '{"text": "é", "label": 1}', '{"text": 1', "[", "{}]", "a\tb"),
        ]
    ),
    max_size=8,
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
FEW = settings(max_examples=40)
MARK = "\ufeff"


def outcome(path: Path, encoding: str | None, *, skip: bool) -> object:
    bad = BadRows("skip" if skip else "error")
    try:
        found = read_records(path, reading=Reading(encoding=encoding), bad_rows=bad)
    except InputError as error:
        return str(error)
    return found, bad.counts, bad.notes


@FEW
@given(
    LINES,
    ENDS,
    st.sampled_from(["csv", "tsv", "jsonl", "json"]),
    st.sampled_from([None, "utf-8", "cp1252", "utf-16"]),
    st.binary(max_size=2),
    st.booleans(),
)
@example([MARK + MARK + "text,label", "a,b"], "\n", "csv", "utf-8", b"", False)
@example(["sep=§", "text§label", "a§b"], "\n", "csv", None, b"", False)
def test_a_large_file_is_read_as_a_small_one(lines, end, suffix, encoding, tail, skip) -> None:
    content = end.join(lines).encode(encoding or "utf-8", "replace") + tail
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder) / f"a.{suffix}"
        path.write_bytes(content)
        whole = outcome(path, encoding, skip=skip)
        patched.setattr(text_files, "_LARGE", 0)
        assert outcome(path, encoding, skip=skip) == whole


@FEW
@given(st.text(), st.sampled_from(["utf-8", "iso8859-1", "cp1252"]))
def test_the_lines_of_an_encoded_text_are_those_of_the_text(text: str, codec: str) -> None:
    data = text.encode(codec, "ignore")
    found = [line[0] for line in find_lines(EncodedText(data, codec))]
    assert found == [line[0] for line in find_lines(data.decode(codec))]


@FEW
@given(st.text(min_size=1), st.integers(1, 300), st.booleans())
def test_a_fault_far_from_the_start_is_found(text: str, times: int, is_cut: bool) -> None:
    data = text.encode() * times + (b"\xe9" if is_cut else b"")
    with pytest.MonkeyPatch.context() as patched:
        whole = detect_encoding(data)
        patched.setattr(text_files, "_PART", 7)
        assert detect_encoding(data) == whole


def test_one_emoji_does_not_multiply_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "_LARGE", 1_000_000)
    monkeypatch.setattr(text_files, "_PART", 100_000)
    path = tmp_path / "a.csv"
    row = f"{'a long text about nothing ' * 80},yes\n"
    rows = 2_000_000 // len(row)
    path.write_text("text,label\n" + row * rows + "😀,no\n")
    tracemalloc.start()
    records = read_records(path).records
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(records) == rows + 1
    assert peak < 2.5 * path.stat().st_size
