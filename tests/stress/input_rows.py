"""Kinds of rows: ragged, broken, empty, mislabelled, doubled, strange but good."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from input_case import Case, Make, csv, document, jsonl, rows

__all__ = ["cases"]

SKIP = ("--on-bad-row", "skip")


def cases() -> list[Case]:
    """Return all kinds of rows."""
    return [*_tables(), *_json_lines(), *_labels(), *_texts(), *_skipped(), *_suspicious()]


def _tables() -> list[Case]:
    group = "table"

    def case(name: str, make: Make, *says: str, **more: Any) -> Case:
        return Case(group, name, make, says, **more)

    def table(header: str) -> Make:
        words = {"text": "a text {n}", "words": "a text {n}", "remark": "another one {n}"}
        lines = [
            ",".join(words.get(name, "{m}").format(n=n, m=n % 2) for name in header.split(","))
            for n in range(40)
        ]
        return document("\n".join([header, *lines]) + "\n", name="mine.csv")

    return [
        case("a field too many", csv("a, b,yes"), r"mine\.csv:42: 3 fields, but the header has 2"),
        case("a field too few", csv("alone"), r"mine\.csv:42: 1 fields, but the header has 2"),
        case(
            "open quote", csv('"open,yes', "next,no"), r"mine\.csv:42: .*quote that is not closed"
        ),
        case("text behind a quote", csv('"a" b,yes'), r"mine\.csv:42: not a readable row"),
        case(
            "column named twice",
            csv(header="text,text"),
            r"mine\.csv:1: the header names a column twice",
        ),
        case("header alone", document("text,label\n", name="mine.csv"), "a header but no rows"),
        case("empty file", document("", name="mine.csv"), r"mine\.csv: the file is empty"),
        case("blank lines alone", document("\n \r\n\n", name="mine.csv"), "the file is empty"),
        case("no header", document("good,yes\nbad,no\n", name="mine.csv"), "no text column found"),
        case(
            "unusual names",
            table("words,remark,label"),
            r"mine\.csv: which column holds the text, remark or words\?",
        ),
        case(
            "no label",
            table("text,grade,mark"),
            r"mine\.csv: which column holds the label, grade .* or mark",
        ),
        case(
            "column that is not there",
            csv(),
            r"mine\.csv: there is no column 'txt'; did you mean 'text'",
            arguments=("--set", "stream.task_settings.mine.text=txt"),
        ),
        case(
            "another header in the test file",
            _splits(csv(name="mine/train.csv"), csv(header="txt,label", name="mine/test.csv")),
            r"test\.csv: there is no column 'text', as train has; did you mean 'txt'",
        ),
        case(
            "ragged tsv",
            document("text\tlabel\na\tx\nb\n", name="mine.tsv"),
            r"mine\.tsv:3: 1 fields",
        ),
        case("10,000 columns", csv(header=",".join(map(str, range(10_000)))), "header has 10000"),
        Case(
            group,
            "lone quotes in a tsv",
            document(
                "text\tlabel\n" + "".join(f'"lone {n}\t{n % 2}\n' for n in range(40)),
                name="mine.tsv",
            ),
            (),
            0,
            data={"source.rows_read.train": 40},
        ),
        Case(
            group,
            "line ends within quotes",
            csv('"two\nlines",yes', '"and\r\nthree\nlines",no'),
            (),
            0,
            data={"source.rows_read.train": 42},
        ),
        Case(
            group,
            "semicolons",
            document(
                "text;label\n" + "".join(f"a, b {n};{n % 2}\n" for n in range(40)), name="mine.csv"
            ),
            (),
            0,
            data={"source.rows_read.train": 40},
        ),
    ]


def _json_lines() -> list[Case]:
    group = "JSON lines"

    def case(name: str, line: str, *says: str) -> Case:
        return Case(group, name, jsonl(None, line), tuple(rf"mine\.jsonl:41: .*{s}" for s in says))

    return [
        case("broken line", '{"text": "a", "label":', "not valid JSON .* at column 23"),
        case("no object", '["a", "yes"]', "one JSON object, got list"),
        case("two objects in a line", '{"text": "a"} {"label": "b"}', "not valid JSON"),
        case(
            "name given twice", '{"text": "a", "text": "b", "label": "no"}', "'text' stands twice"
        ),
        case("nested text", '{"text": {"a": "b"}, "label": "no"}', "must hold text, got dict"),
        case("number as text", '{"text": 7, "label": "no"}', "must hold text, got int"),
        case("number of 5,000 digits", f'{{"text": "a", "label": {"9" * 5000}}}', "cannot be read"),
        case("number beyond floats", '{"text": "a", "label": 1e999}', "label inf is neither"),
        case("nesting without end", "[" * 100_000, "JSON that cannot be read"),
        case("missing name", '{"text": "a"}', "there is no column 'label'"),
        case("null", '{"text": null, "label": "no"}', "column 'text' is empty"),
        case("half a character", '{"text": "a\\ud800", "label": "no"}', r"U\+D800"),
        case("escaped NUL", '{"text": "a\\u0000", "label": "no"}', r"U\+0000"),
        Case(
            group,
            "one document over many lines",
            document(json.dumps(rows()[0], indent=1), name="mine.jsonl"),
            (r"mine\.jsonl:1: .*one document over many lines",),
        ),
        Case(group, "empty objects", document("{}\n" * 9, name="mine.jsonl"), ("no text column",)),
        Case(
            group,
            "line ends of other systems, blank lines",
            document("\r\n\r\n".join(json.dumps(row) for row in rows()), name="mine.jsonl"),
            (),
            0,
            data={"source.rows_read.train": 40},
        ),
    ]


def _labels() -> list[Case]:
    group = "label"

    def case(name: str, label: Any, *says: str, **more: Any) -> Case:
        make = jsonl([*rows(), {"text": "one more", "label": label}])
        return Case(group, name, make, tuple(rf"mine\.jsonl:41: .*{s}" for s in says), **more)

    def alike(name: str, label: Callable[[int], Any], names: list[str]) -> Case:
        expected = {"source.split.train_rows": dict.fromkeys(names, 4)}
        return Case(group, name, jsonl(rows(label=label)), (), 0, data=expected)

    names = ("--set", "stream.task_settings.mine.label_names=[no, 'yes']")
    quoted = ("--set", "stream.task_settings.mine.label_names=['no', 'yes']")
    ones = ([1, "1", 1.0, "1.0", " 1 "], [0, "0", 0.0, "0.0", "0 "])
    return [
        case("1.5", 1.5, "label 1.5 is neither a name nor a whole number"),
        case("'1.5'", "1.5", "label '1.5' is neither a name nor a whole number"),
        case("NaN", float("nan"), "column 'label' is NaN, so its value is missing"),
        case("'nan'", "nan", "label 'nan' looks like a missing value"),
        case("'None'", "None", "label 'None' looks like a missing value"),
        case("null", None, "column 'label' is empty"),
        case("blank", "  ", "column 'label' is empty"),
        case("list", ["yes"], r"label \['yes'\] is neither"),
        case("a line end in it", "yes\nno", "control characters"),
        case("a whole text", "yes " * 100, "it has 399 characters"),
        case("undeclared", "maybe", "'maybe' is not among the declared", arguments=quoted),
        case("nearly declared", "yess", "did you mean 'yes'", arguments=quoted),
        case("above the class ids", 2, "outside the declared 2 labels", arguments=quoted),
        case("below the class ids", -1, "outside the declared 2 labels", arguments=quoted),
        Case(group, "names that YAML reads as truth", csv(), ("put quotes around",), 2, names),
        Case(group, "one class alone", jsonl(rows(label=lambda n: "x")), ("the same label 'x'",)),
        Case(
            group,
            "as many labels as rows",
            jsonl(rows(label=lambda n: f"id{n}")),
            ("40 different values in 40 rows",),
        ),
        Case(
            group,
            "label of the test split that train has not",
            _splits(csv(name="mine/train.csv"), csv("odd,mabye", "odd,yes", name="mine/test.csv")),
            (r"test\.csv:42: label 'mabye' is not among the labels of the training rows",),
        ),
        Case(
            group,
            "too few rows of a class",
            csv(*(f"so few {n},maybe" for n in range(5))),
            (r"task 'mine': too few training rows for 30 shots; .*maybe \d",),
            2,
            ("--set", "stream.shots=30", "--set", "stream.shots_short=error"),
        ),
        alike("1, '1', 1.0, '1.0' and ' 1 '", lambda n: ones[n % 2][n // 2 % 5], ["0", "1"]),
        alike("blanks around", lambda n: ("no", " no ", "yes", "yes\t")[n % 4], ["no", "yes"]),
        alike("truth values", lambda n: n % 2 == 0, ["false", "true"]),
        Case(
            group,
            "names that differ in their case",
            jsonl(rows(label=lambda n: ("no", "yes", "Yes")[n % 3])),
            ("'Yes' and 'yes' differ only in their case",),
            0,
        ),
        Case(
            group,
            "test split without labels",
            _splits(
                csv(name="mine/train.csv"),
                document("text,label\na,\nb,\n", name="mine/test.csv"),
            ),
            (r"test\.csv: no row has a label in column 'label'; the test split is left out",),
            0,
            data={"source.without_labels": ["test"]},
        ),
    ]


def _texts() -> list[Case]:
    group = "text"

    def case(name: str, text: str, says: str) -> Case:
        make = jsonl([*rows(), {"text": text, "label": "yes"}])
        return Case(group, name, make, (rf"mine\.jsonl:41: .*{says}",))

    def accepted(name: str, text: str) -> Case:
        own = [{**row, "text": f"{text} {n}"} for n, row in enumerate(rows())]
        return Case(group, name, jsonl(own), (), 0, data={"source.rows_read.train": 40})

    long = [{**row, "text": row["text"] + " and on" * 100} for row in rows()]
    longest = [*rows(), {"text": "word " * 199_999, "label": "yes"}]
    return [
        case("empty", "", "column 'text' is empty"),
        case("blank", " \t ", "column 'text' is empty"),
        case("blanks of other scripts", "\u3000\u00a0", "column 'text' is empty"),
        case("zero-width characters alone", "\u200b\u200d\ufeff", "but for invisible characters"),
        case("control characters alone", "\x01\x02\x7f", "but for invisible characters"),
        Case(group, "empty in a table", csv(",yes"), (r"mine\.csv:42: column 'text' is empty",)),
        accepted("right to left", "هذا نص עברית \u202e\u200f"),
        accepted("emoji", "👩‍👩‍👧‍👦 🇪🇺 👍🏽"),
        accepted("combining characters", "Z\u0351\u036b\u0343a\u0302\u0323l\u0336g\u0321o"),
        accepted("control characters within", "a\x01b\x1b[31mc\x7f"),
        accepted("separators of lines within", "a\u2028b\u2029c\x85d"),
        accepted("special tokens spelt out", "[SEP] [MASK] </s> <|endoftext|>"),
        accepted("characters that no vocabulary has", "\U0001f9ff\ue000\u0e33"),
        Case(
            group,
            "rows over the length limit",
            jsonl(long),
            (),
            0,
            data={"cut.train": 8, "max_length": 24},
        ),
        Case(group, "a line of a million characters", jsonl(longest), (), 0, ("--shots", "30")),
    ]


def _skipped() -> list[Case]:
    group = "on-bad-row skip"

    def case(name: str, make: Make, left_out: dict[str, int], *says: str, code: int = 0) -> Case:
        return Case(group, name, make, says, code, SKIP, left_out=left_out)

    bad = ("too,many,fields", '"open,yes', "few", ",yes", "no label,", "a\0b,yes")
    lines = ("{", "[]", '{"text": "a"}', '{"text": "", "label": "no"}', '{"a": 1, "a": 2}')
    return [
        case("one row", csv("alone"), {"mine.csv": 1}, "left out 1 row: .*mine.csv:42: 1 fields"),
        case("rows of every kind in a table", csv(*bad, "last,no"), {"mine.csv": 6}, "left out 6"),
        case("lines of every kind", jsonl(None, *lines), {"mine.jsonl": 5}, "left out 5 rows"),
        case(
            "bytes of another encoding",
            document(
                csv_bytes() + "été,no\n".encode() + "café,no\nthé,yes\n".encode("latin-1"),
                name="mine.csv",
            ),
            {"mine.csv": 2},
            r"mine\.csv:43: byte 0xe9",
        ),
        case("odd labels", jsonl([*rows(), *_labelled(1.5, None, "nan")]), {"mine.jsonl": 3}),
        case(
            "labels that train has not",
            _splits(csv(name="mine/train.csv"), csv("odd,mabye", name="mine/test.csv")),
            {"test.csv": 1},
            "'mabye' is not among the labels",
        ),
        case(
            "an open quote costs its own row alone",
            csv('"open,yes', *(f"after {n},yes" for n in range(5))),
            {"mine.csv": 1},
        ),
        case("no row that is good", document("text,label\n,a\n,b\n", name="mine.csv"), {},
             r"mine\.csv: none of its 2 rows can be used", code=2),
        case("damage of the whole file", document("", name="mine.csv"), {}, "empty", code=2),
        Case(
            group,
            "another word for it",
            csv(),
            ("on_bad_row: unknown 'ignore'",),
            2,
            ("--on-bad-row", "ignore"),
        ),
    ]  # fmt: skip


def _suspicious() -> list[Case]:
    group = "suspicious rows"
    every = (
        "--set",
        "stream.shots=null",
        "--set",
        "stream.max_dev=null",
        "--set",
        "stream.max_test=null",
    )

    def case(name: str, make: Make, says: str, **counted: int) -> Case:
        data = {f"source.{key}": value for key, value in counted.items()}
        return Case(group, name, make, (says,), 0, every, data=data)

    def texts(start: int, count: int, label: int = 0) -> list[str]:
        return [f"text {n},{(n + label) % 2}" for n in range(start, start + count)]

    def three(train: list[str], dev: list[str], test: list[str]) -> Make:
        return _splits(
            *(
                document("\n".join(["text,label", *lines]), name=f"mine/{split}.csv")
                for split, lines in (("train", train), ("dev", dev), ("test", test))
            )
        )

    far, farther = texts(1000, 10), texts(2000, 10)
    return [
        case(
            "test rows in train",
            three(texts(0, 40), far, texts(35, 10)),
            "5 of 10 test rows also stand in train or dev",
            train_test_overlap=5,
        ),
        case(
            "dev rows in train",
            three(texts(0, 40), texts(36, 10), farther),
            "4 of 10 dev rows also stand in train",
            train_dev_overlap=4,
        ),
        case(
            "rows that stand twice",
            three([*texts(0, 40), *texts(0, 7)], far, farther),
            "7 of 47 training rows repeat an earlier one",
            duplicates=7,
        ),
        case(
            "equal texts with two labels",
            three([*texts(0, 40), *texts(0, 3, label=1)], far, farther),
            "6 of 43 training rows have texts that also stand in train with another label",
            conflicts=6,
        ),
    ]


def csv_bytes() -> bytes:
    """Return a table of good rows."""
    return ("text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in rows())).encode()


def _labelled(*labels: Any) -> list[Any]:
    return [{"text": f"labelled {n}", "label": label} for n, label in enumerate(labels)]


def _splits(*makes: Make) -> Make:
    def make(folder: Path) -> None:
        for one in makes:
            one(folder)

    return make
