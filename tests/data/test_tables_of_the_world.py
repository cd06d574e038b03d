"""Tables as other programs write them are read as what they are, or refused by the right cause."""

import json
from pathlib import Path

import pytest
from answer_tasks import write_rows

from cl_graft.data import load_task
from cl_graft.data.bad_rows import BadRows
from cl_graft.data.record_files import read_records
from cl_graft.errors import InputError

TEXTS = [f"the tap in room {n} drips" for n in range(40)]
LABELS = ["bad", "good"] * 20
ROWS = [*zip(TEXTS, LABELS, strict=True)]


def write(path: Path, lines: list[str], encoding: str = "utf-8") -> Path:
    path.write_text("\n".join([*lines, ""]), encoding=encoding)
    return path


def texts(path: Path) -> list[object]:
    return [record.values["text"] for record in read_records(path).records]


def test_the_first_line_that_names_a_separator_for_excel_is_no_header(tmp_path):
    rows = [f"{text}, really;{label}" for text, label in ROWS]
    for name, first in {"a.csv": "sep=;", "b.csv": '"SEP=;"', "c.tsv": "sep=;"}.items():
        table = read_records(write(tmp_path / name, [first, "text;label", *rows]))
        assert table.columns == ("text", "label")
        assert table.records[0].values == {"text": f"{TEXTS[0]}, really", "label": "bad"}
        assert table.records[0].origin.endswith(":3")


def test_backslashes_before_quotes_are_read_where_doubled_quotes_leave_bad_rows(tmp_path):
    rows = [
        r'0,"He said \"it drips\", then left",\N,"bad"',
        '1,"two\\\nlines",web,"good"',
        r'2,"a path C:\\N, and a tab",web,"good"',
    ]
    table = read_records(write(tmp_path / "a.csv", ["id,text,channel,label", *rows]))
    assert [r.values["text"] for r in table.records] == [
        'He said "it drips", then left',
        "two\nlines",
        r"a path C:\N, and a tab",
    ]
    assert [r.values["channel"] for r in table.records] == ["", "web", "web"]
    bad = BadRows("skip")
    read_records(tmp_path / "a.csv", bad_rows=bad)
    assert (bad.total, bad.notes) == (
        0,
        [f"{tmp_path / 'a.csv'}: read with backslashes before quotes, as MySQL writes them"],
    )


def test_fields_may_be_parted_by_bars(tmp_path):
    rows = [f"{text}, really|{label}" for text, label in ROWS]
    assert texts(write(tmp_path / "a.csv", ["text|label", *rows]))[0] == f"{TEXTS[0]}, really"


def test_columns_without_a_name_are_no_columns_and_a_note_tells_of_what_they_hold(tmp_path):
    rows = [f'{label},"{text}",,,' for text, label in ROWS]
    path = write(tmp_path / "spam.csv", ["label,text,,,", *rows, 'bad,"and, more"," text",,'])
    task = load_task(str(path), warn=False)
    assert task.label_names == ("bad", "good")
    assert task.source["notes"] == [
        f"{path}: 1 row holds something in columns without a name, which is not read"
    ]
    # The row numbers of pandas need no note; fields beyond the header that are empty are none.
    write(path, [",text,label", *(f"{n},{TEXTS[n]},{LABELS[n]},," for n in range(40))])
    assert load_task(str(path), warn=False).source["notes"] == []
    with pytest.raises(InputError, match=r"spam\.csv:1: the header names no column"):
        read_records(write(path, [",,", "a,b,c"]))
    (tmp_path / "a.jsonl").write_text(json.dumps({"": 1, "text": "a"}))
    assert read_records(tmp_path / "a.jsonl").columns == ("text",)


def test_a_header_within_the_rows_is_a_bad_row_and_no_class(tmp_path):
    path = write(tmp_path / "a.csv", ["text,label", *map(",".join, ROWS), "text,label"])
    with pytest.raises(InputError, match=r"a\.csv:42: the names of the columns again; .*several"):
        load_task(str(path))
    task = load_task(str(path), on_bad_row="skip", warn=False)
    assert task.label_names == ("bad", "good")
    assert task.source["left_out"][str(path)]["rows"] == 1


def test_json_is_read_as_lines_or_as_a_list_by_its_first_character(tmp_path):
    rows = [{"text": text, "label": label} for text, label in ROWS]
    for name in ("lines.json", "list.jsonl", "list.json", "lines.jsonl"):
        path = write_rows(tmp_path / name, rows)
        if "list" in name:
            path.write_text(json.dumps(rows, indent=1))
        assert texts(tmp_path / name) == TEXTS
        assert len(load_task(name, data=tmp_path, warn=False).train) == 30


def test_values_inside_of_records_are_columns_with_a_path(tmp_path):
    rows = [
        {"id": n, "review": {"body": TEXTS[n], "by": {"name": "Ada"}}, "meta": {"stars": n % 3}}
        for n in range(40)
    ]
    path = write_rows(tmp_path / "a.jsonl", rows)
    task = load_task(str(path), text="review.body", label="meta.stars", warn=False)
    assert task.label_names == ("0", "1", "2")
    assert task.train[0].text in TEXTS
    with pytest.raises(InputError, match=r"no column 'review\.text'; .*review\.body"):
        load_task(str(path), text="review.text", label="meta.stars")


def test_rows_with_faults_are_counted(tmp_path):
    rows = [f"{n},{text},x" for n, text in enumerate(TEXTS)]
    path = write(tmp_path / "a.csv", ["text,label", "good,bad", *rows])
    with pytest.raises(InputError, match=r"a\.csv:3: 3 fields.*\(40 of 41 rows cannot be used"):
        load_task(str(path))
    with pytest.raises(InputError, match=r"none of its 40 rows .*3 fields"):
        read_records(write(path, ["text,label", *rows]), bad_rows=BadRows("skip"))
    path = write(path, ["text,label", *(f"{t},bad" for t in TEXTS), ",bad", ",good"])
    with pytest.raises(InputError, match=r"a\.csv:42: .*empty \(2 of 42 rows cannot be used"):
        load_task(str(path))
