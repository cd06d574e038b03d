"""A report shows what the runs hold, in one page that stands alone, and in files for papers."""

import csv
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from slow_cases import slow
from tiny_runs import file_hashes

from cl_graft import InputError
from cl_graft.lab.commands.report import report_command
from cl_graft.lab.reporting.page import PAGE, make_report
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.sections import make_sections
from cl_graft.lab.results.run_results import read_result, write_result
from cl_graft.lab.results.summary_tables import scores
from cl_graft.lab.results.tables import Cell, Table
from cl_graft.lab.results.task_files import ERRORS

STRATEGIES = ("grafting", "naive", "independent", "ewc")


class Page(HTMLParser):
    """The texts, ids and references of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text, self.ids, self.links, self.tags = "", [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "action"):
                self.links.append(value)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report / "report.html")


def with_result(compared: Path, folder: Path, **changes) -> Path:
    """Copy a run of grafting with other results."""
    run = shutil.copytree(compared / "grafting" / "seed0", folder)
    write_result(replace(read_result(run), **changes), run)
    return run


def test_the_page_has_every_section_strategy_and_task(page):
    sections = (
        "In short, Comparison, Scores after each task, Along the stream, Learning each task, "
        "Errors of each task, Calibration, Costs, What each strategy is, To run it again"
    )
    for section in sections.split(", "):
        assert section in page.text
    for name in (*STRATEGIES, "scope", "topic", "entailment"):
        assert name in page.text
    assert "cl-graft compare first.yaml" in page.text
    assert "torch" in page.text


def test_the_page_stands_alone(page, report):
    assert (report / "report.html").stat().st_size < 3_000_000
    others = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert others == []
    assert "default-src 'none'" in (report / "report.html").read_text()
    assert not {"iframe", "object", "embed"} & set(page.tags)


def test_every_picture_has_words_for_those_who_do_not_see_it(report):
    pictures = re.findall(r'<img [^>]*alt="([^"]*)"', (report / "report.html").read_text())
    assert len(pictures) > 10
    assert min(map(len, pictures)) > 10


def test_ids_are_given_once_and_anchors_lead_somewhere(page):
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_figures_and_tables_are_files_too(report):
    svgs = sorted((report / "figures").glob("*.svg"))
    assert {path.stem for path in svgs} == {p.stem for p in (report / "figures").glob("*.png")}
    names = {path.stem for path in svgs}
    curves = {"curve-average", "curve-forgetting"}
    assert {"R-grafting", *curves, "overlap-grafting", "reliability-ewc"} <= names
    assert {"bytes", "learning-1"} <= names
    for path in svgs:
        assert {*ElementTree.parse(path).getroot().iter()}  # well-formed, and with something in it
        assert not re.search("<script|<dc:date", path.read_text())
    for path in (report / "tables").glob("*.tex"):
        rows = [line for line in path.read_text().splitlines() if line.endswith(r"\\")]
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1, path.name
        table = [*csv.reader(path.with_suffix(".csv").read_text().splitlines())]
        assert len({len(row) for row in table}) == 1, path.name


def test_a_table_is_downloaded_as_its_csv_file(report):
    page_text = (report / PAGE).read_text(encoding="utf-8")
    links = re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)" download="([^"]*)"', page_text)
    assert {name for _, name in links} == {p.name for p in (report / "tables").glob("*.csv")}
    for content, name in links:
        assert unquote(content) == (report / "tables" / name).read_text()


@pytest.mark.parametrize("name", ["costs", *slow(None)])
def test_a_report_is_made_the_same_twice(name, compared, tmp_path, monkeypatch):
    def some(*given, **more):
        sections = make_sections(*given, **more)
        return [one for one in sections if name in (None, one.name)]

    monkeypatch.setattr("cl_graft.lab.reporting.page.make_sections", some)
    for folder in ("first", "second"):
        make_report([compared], out=tmp_path / folder)
    assert list((tmp_path / "first" / "figures").glob("*.svg"))
    assert file_hashes(tmp_path / "first") == file_hashes(tmp_path / "second")


def test_the_comparison_states_intervals_significance_and_the_best(compared):
    table = scores(read_report_data([compared]).summary)
    assert table.rows[0][0].text == "grafting"
    assert "grafting is better by" in table.head
    accuracy = [row[1] for row in table.rows]
    assert all(re.fullmatch(r"[\d.]+ ± [\d.]+", cell.text) for cell in accuracy)
    best = max(cell.value for cell in accuracy)
    assert {cell.value == best for cell in accuracy if cell.best} == {True}
    kept = {row[0].text: row[table.head.index("same bits at the end")].text for row in table.rows}
    assert kept["grafting"] == kept["independent"] == "9 of 9"


@pytest.mark.usefixtures("blank_figures")
def test_one_run_alone_has_no_intervals_and_says_so(compared, tmp_path):
    made = make_report([compared / "grafting" / "seed0"], out=tmp_path)
    page = Page(made.page)
    assert made.strategies == ("grafting",)
    assert "nothing can be said about how sure" in page.text
    assert "±" not in scores(read_report_data([compared / "grafting" / "seed0"]).summary).latex()


@pytest.mark.usefixtures("blank_figures")
def test_a_report_is_written_into_its_run_which_is_read_as_before(compared, tmp_path, capsys):
    run = shutil.copytree(compared / "naive" / "seed0", tmp_path / "out" / "naive" / "seed0")
    report_command([run])
    page = run / "report" / "report.html"
    assert page.is_file()
    assert str(page) in capsys.readouterr().out
    assert read_report_data([run]).strategies == ["naive"]


def test_the_same_strategy_of_two_folders_is_told_apart(compared, tmp_path):
    other = shutil.copytree(compared, tmp_path / "second")
    data = read_report_data([compared, other])
    assert {"grafting (first)", "grafting (second)"} <= set(data.strategies)
    assert len(data.runs) == 24


def test_strategies_with_names_that_look_alike_have_figures_of_their_own(compared, tmp_path):
    outs = [tmp_path / "a-b", tmp_path / "a_b"]
    for out in outs:
        shutil.copytree(compared / "grafting" / "seed0", out / "grafting" / "seed0")
    data = read_report_data(outs)
    assert data.strategies == ["grafting (a-b)", "grafting (a_b)"]
    assert [*map(data.file_name, data.strategies)] == ["grafting--a-b", "grafting--a-b_2"]
    names = [picture.name for one in make_sections(data) for picture in one.pictures]
    assert len(set(names)) == len(names)


def test_what_files_of_others_say_is_text_and_nothing_else(compared, tmp_path):
    evil = "<script>alert('x')</script>$\\frac{$ & \"'"
    result = read_result(compared / "grafting" / "seed0")
    run = with_result(
        compared, tmp_path / "evil", model={**result.model, "name": evil},
        command=f"{evil}\u202egnp\x1b[2J", strategy=f"{evil}\\input{{x}}",
    )  # fmt: skip
    labels = json.dumps(f"{evil}\u202e")
    (run / ERRORS.name).write_text((run / ERRORS.name).read_text().replace('"in_scope"', labels))
    made = make_report([run], out=tmp_path / "report")
    assert Page(made.page).tags.count("script") == 1
    assert evil in Page(made.page).text
    page = made.page.read_text(encoding="utf-8")
    assert "\\u202egnp\\x1b[2J" in page
    assert not {"\u202e", "\x1b"} & set(page)
    told = "".join(path.read_text(encoding="utf-8") for path in made.tables)
    assert not {"\u202e", "\x1b"} & set(told)
    latex = [path for path in made.tables if path.suffix == ".tex"]
    written = "".join(path.read_text(encoding="utf-8") for path in latex)
    assert "textbackslash{}input" in written
    assert "\\input" not in written


def test_unfinished_runs_are_named_and_left_out(compared, tmp_path):
    there = shutil.copytree(compared, tmp_path / "there")
    run = there / "naive" / "seed1"
    result = read_result(run)
    write_result(replace(result, complete=False, R=result.R[:1]), run)
    data = read_report_data([there])
    assert len(data.runs) == 11
    (shown,) = (one for one in make_sections(data) if one.name == "comparison")
    assert shown.lines == ("Not finished: naive, seed 1: 1 of 3 tasks learned so far",)


def test_what_cannot_be_compared_is_refused(compared, tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        make_report([tmp_path / "nothing"], out=tmp_path / "report")
    with pytest.raises(InputError, match="holds no run"):
        make_report([tmp_path], out=tmp_path / "report")
    result = read_result(compared / "grafting" / "seed0")
    other = with_result(compared, tmp_path / "b", model={**result.model, "fingerprint": "0" * 64})
    with pytest.raises(InputError, match="of different base models"):
        make_report([compared, other], out=tmp_path / "report")
    config = {**result.model["config"], "hidden_act": "relu"}
    other = with_result(compared, tmp_path / "d", model={**result.model, "config": config})
    with pytest.raises(InputError, match="of different base models"):
        make_report([compared, other], out=tmp_path / "report")
    other = with_result(
        compared, tmp_path / "c", tasks=["a", "b", "c"], metrics=dict.fromkeys("abc", "accuracy")
    )
    with pytest.raises(InputError, match="runs of the same tasks"):
        make_report([compared, other], out=tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_latex_escapes_what_it_would_take_for_commands():
    table = Table("a", ("task_1", "R&D"), ((Cell("50 %"), Cell("1.0 ± 0.1", 1.0, best=True)),))
    text = table.latex()
    assert r"task\_1 & R\&D \\" in text
    assert r"50 \% & \textbf{1.0 $\pm$ 0.1} \\" in text


@pytest.mark.usefixtures("blank_figures")
def test_the_command_says_what_it_wrote(compared, tmp_path, capsys):
    report_command([compared / "grafting" / "seed0"], out=tmp_path / "report", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["strategies"] == ["grafting"]
    assert Path(told["page"]).stat().st_size == told["bytes"]
