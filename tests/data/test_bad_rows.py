"""Rows that cannot be used are an error, or left out and counted: never dropped silently."""

import logging
import time
from pathlib import Path

import pytest
from read_data import read_rows

from cl_graft.data import load_task
from cl_graft.data.bad_rows import BadRows
from cl_graft.errors import InputError

ROWS = [f"text {n},{'no' if n % 2 else 'yes'}" for n in range(40)]


def table(path: Path, *more: str, rows: list[str] = ROWS) -> Path:
    path.write_text("\n".join(["text,label", *rows, *more, ""]), encoding="utf-8")
    return path


def test_rows_left_out_are_counted_by_file_and_the_first_are_shown(tmp_path, caplog):
    path = table(tmp_path / "a.csv", *["alone"] * 4, ",yes", "good,no", '"open,yes')
    bad = BadRows("skip")
    with caplog.at_level(logging.WARNING):
        read = read_rows(path, bad_rows=bad)
        assert caplog.text == ""
        bad.warn()
    assert len(read.splits["train"]) == 41
    assert read.splits["train"][-1].text == "good"
    assert bad.counts == {str(path): 6}
    (said,) = bad.report().values()
    assert said["rows"] == 6
    assert [at.split(" ")[0] for at in said["first"]] == [f"{path}:{n}:" for n in (42, 43, 44)]
    assert f"{path}: left out 6 rows: {path}:42: 1 fields" in caplog.text


def test_an_open_quote_before_many_lines_takes_the_time_of_one_pass(tmp_path: Path):
    path = table(tmp_path / "a.csv", *["a,b"] * 100_000, rows=['"open,x'])
    start = time.process_time()
    with pytest.raises(InputError, match=r"a\.csv:2: not a readable row"):
        read_rows(path)
    assert time.process_time() - start < 10


def test_an_open_quote_costs_its_own_row_alone(tmp_path: Path):
    after = [f"after {n},yes" for n in range(10)]
    path = table(tmp_path / "a.csv", '"open,yes', *after, '"closed",no')
    bad = BadRows("skip")
    texts = [row.text for row in read_rows(path, bad_rows=bad).splits["train"]]
    assert texts[40:] == [*(f"after {n}" for n in range(10)), "closed"]
    assert bad.total == 1


def test_a_file_without_one_good_row_is_an_error_even_so(tmp_path: Path):
    path = table(tmp_path / "a.csv", ",yes", ",no", rows=[])
    with pytest.raises(InputError, match=r"none of its 2 rows can be used; .*a\.csv:2"):
        read_rows(path, bad_rows=BadRows("skip"))


def test_a_tsv_is_read_with_literal_quotes_only_where_that_gives_fewer_bad_rows(tmp_path: Path):
    path = tmp_path / "a.tsv"
    quoted = [f'"one ""{n}"" two"\t{n % 2}' for n in range(10)]
    path.write_text("\n".join(["text\tlabel", *quoted, "ragged"]))
    bad = BadRows("skip")
    assert read_rows(path, bad_rows=bad).splits["train"][0].text == 'one "0" two'
    assert bad.total == 1


def test_what_was_left_out_stands_in_the_source_of_the_task(tmp_path: Path):
    path = table(tmp_path / "a.csv", "alone")
    task = load_task(str(path), on_bad_row="skip")
    said = "1 fields, but the header has 2 (text, label); a field with ',' in it needs quotes"
    assert task.source["left_out"] == {str(path): {"rows": 1, "first": [f"{path}:42: {said}"]}}
    assert load_task(str(table(tmp_path / "b.csv"))).source["left_out"] == {}
