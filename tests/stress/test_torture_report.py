"""What the parts of the torture test write, and how it is shown."""

import json

import torture_report as report


def test_a_part_is_written_as_json_with_what_is_its_own(tmp_path):
    rows = [report.Row("SIGKILL in the dense run", 3, 2, "bit-identical", ("at step 4: …",))]
    path = report.write_part(tmp_path / "out", "kills", rows, 12.34, machine="mine")
    assert path == tmp_path / "out" / "kills.json"
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "part": "kills",
        "seconds": 12.3,
        "rows": [
            {
                "what": "SIGKILL in the dense run",
                "cases": 3,
                "survived": 2,
                "outcome": "bit-identical",
                "failures": ["at step 4: …"],
            }
        ],
        "machine": "mine",
    }


def test_a_table_has_a_line_a_row_and_names_every_failure():
    rows = [report.Row("a|b", 2000, 2000, "two\nlines"), report.Row("c", 2, 1, "", ("why",))]
    assert report.table(rows).splitlines() == [
        "| what | cases | survived | outcome |",
        "| --- | ---: | ---: | --- |",
        "| a\\|b | 2,000 | 2,000 | two lines |",
        "| c | 2 | 1 |  |",
        "",
        "- **c**: why",
    ]


def test_a_row_without_cases_or_with_a_failure_is_not_ok():
    assert report.Row("a", 2, 2).ok
    assert not report.Row("a", 0, 0).ok
    assert not report.Row("a", 2, 1).ok
    assert not report.Row("a", 2, 2, failures=("why",)).ok
