"""Claims are decided by stored numbers alone, and the pages say what the stored files hold."""

import json
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from papers import EXPERIMENTS, experiment_config
from papers.claims import CLAIMS, CLAIMS_BY_SOURCE, Claim, Rule, View, judge
from papers.claims.expression import compute_number
from papers.measurements import Measurement, summarize
from papers.pages import FOLDER, claims_page, read_results, table_page, tables_page
from papers.stored import Stored, read_stored, store

from cl_graft.errors import InputError
from cl_graft.settings import to_dotted

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"


SETTINGS = {
    "model.name": "minilm", "model.family": "encoder", "stream.tasks": ["x", "y"],
    "stream.shots": 64, "fine_tuning.steps": 9, "grafting.density": 0.003,
}  # fmt: skip


def claim_on(**rule) -> Claim:
    given = {"what": "a − b", "number": 'value("a") - value("b")', **rule}
    return Claim(
        name="one", source="Table 1", text="A beats b.", paper="1 against 0",
        experiments=("table1",), rule=Rule(**given),
    )  # fmt: skip


def result_of(measurements, name="table1") -> Stored:
    return Stored(
        name=name, title="Title", source="Somewhere", command=f"python {name}",
        scale="cpu", config=SETTINGS, cells="data seeds 0",
        rows=summarize([measurements]), versions={"torch": "2"},
        machine={"system": "Linux", "cores": 2, "device": "cpu"},
    )  # fmt: skip


TWO_TASKS = [
    Measurement("x", "a", "score", 0.9),
    Measurement("x", "b", "score", 0.8),
    Measurement("y", "a", "score", 0.5),
    Measurement("y", "b", "score", 0.6),
]


@pytest.mark.parametrize(
    ("rule", "holds", "words"),
    [
        ({"above": 0.0}, False, "a − b above 0.0 points on every task"),
        ({"above": 0.0, "share": 0.5}, True, "a − b above 0.0 points on 50 % of the tasks"),
        ({"least": -0.01, "over": "mean"}, True, "a − b at least -1.0 points on average"),
        ({"most": -0.01, "over": "mean"}, False, "a − b at most -1.0 points on average"),
        ({"above": -0.01, "over": "once", "unit": ""}, True, "a − b above -0.01"),
    ],
)
def test_a_rule_says_what_it_decides(rule, holds, words):
    claim = claim_on(**rule)
    views = {"table1": View({"table1": summarize([TWO_TASKS])})}
    assert str(claim.rule) == words
    assert judge(claim, views).holds is holds


def test_numbers_that_are_missing_decide_nothing():
    claim = claim_on(above=0.0)
    rows = summarize([TWO_TASKS[:1]])
    assert "no stored result of `table1`" in judge(claim, {}).ours
    missing = judge(claim, {"table1": View({"table1": rows})})
    assert (missing.holds, str(missing)) == (None, "not run here")
    assert missing.ours == "the stored result has no score of b"


def test_a_verdict_says_how_many_seeds_decide_alike_by_themselves():
    other = [replace(measurement, value=1 - measurement.value) for measurement in TWO_TASKS[:2]]
    rows = summarize([TWO_TASKS[:2], TWO_TASKS[:2], other])
    verdict = judge(claim_on(above=0.0), {"table1": View({"table1": rows})})
    assert (verdict.holds, verdict.alone) == (True, (2, 3))
    of_spread = claim_on(above=0.0, number='deviation("a")', over="once")
    assert judge(of_spread, {"table1": View({"table1": rows})}).alone is None
    one_seed = {"table1": View({"table1": summarize([TWO_TASKS])})}
    assert judge(claim_on(above=0.0), one_seed).alone is None


def test_a_place_on_the_axis_is_the_nearest_one():
    measurements = [
        Measurement("x", "a", "score", v, x) for x, v in ((0.9, 0.1), (1.0, 0.2), (4e-4, 0.3))
    ]
    view = View({"fig2": summarize([measurements])})
    assert view("a", x=0.9) == 0.1
    assert view("a", x=5e-4) == 0.3
    with pytest.raises(LookupError, match=r"score of a at 0\.1"):
        view("a", x=0.1)


@pytest.mark.parametrize(
    "number",
    ["open('x')", "value.__class__", "__import__('os')", "value('a') ** 2", "unknown", "a[0]"],
)
def test_a_number_is_arithmetic_on_readings_and_nothing_else(number):
    view = View({"table1": summarize([TWO_TASKS])})
    with pytest.raises(ValueError, match="a claim cannot compute"):
        compute_number(number, view)


def test_claims_have_names_of_their_own_and_experiments_that_exist():
    assert len(CLAIMS) >= 25
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert set(claim.experiments) <= {*EXPERIMENTS, "table4"}, claim.name
        bounds = (claim.rule.above, claim.rule.least, claim.rule.most)
        assert sum(bound is not None for bound in bounds) == 1, claim.name


def test_a_page_has_one_row_a_claim_and_says_why_one_was_not_run():
    page = claims_page({"table1": result_of(TWO_TASKS)})
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) == len(CLAIMS) + len(CLAIMS_BY_SOURCE)
    assert page.count("| not run here: ") == len(CLAIMS)
    assert "the stored result has no score of BitFit" in page
    shown = table_page("table1", {"table1": result_of(TWO_TASKS)})
    assert "| x | a | 0.900 |" in shown
    assert (
        "minilm with a head on x, y; 64 rows a class, 9 steps, density 0.3 %, all test rows, "
        "data seeds 0" in shown
    )


def test_results_are_stored_one_file_an_experiment_and_scale(tmp_path):
    with pytest.raises(InputError, match="holds no results"):
        store(tmp_path, tmp_path / "kept")
    found = tmp_path / "out" / "fig2"
    found.mkdir(parents=True)
    (found / "results.json").write_text(json.dumps({"experiment": "fig2"}))
    with pytest.raises(InputError, match="not the result of an experiment"):
        store(tmp_path / "out", tmp_path / "kept")


def test_the_pages_are_what_the_stored_results_say():
    results = read_results(RESULTS / "laboratory", stream=RESULTS / "table4-cpu.json")
    pages = {"claims": claims_page(results), FOLDER: tables_page(results)}
    shown = [name for name in results if name in EXPERIMENTS]
    pages |= {f"{FOLDER}/{name}": table_page(name, results) for name in shown}
    kept = ROOT / "docs" / "results"
    for name, page in pages.items():
        assert (kept / f"{name}.md").read_text() == page, f"{name}.md is old: make results"
    assert {file.stem for file in (kept / FOLDER).iterdir()} == set(shown)


REMOVED = {
    "grafting.auto_share": 0.98,
    "grafting.builds_on": "all",
    "grafting.head_fit_rows": 0,
    "grafting.start": "base",
    "grafting.head_start": "dense",
    "grafting.states_memory": 2**30,
    "stream.shots_short": "all",
}
"""Settings that are gone, with what stored results were run with."""

GENERATED = {"sentiment"}
"""Tasks that are gone; the pages of results on them say so."""


@pytest.mark.parametrize(
    "file", sorted((RESULTS / "laboratory").glob("*.json")), ids=lambda f: f.stem
)
def test_a_stored_result_was_run_with_what_its_command_asks_for_now(file):
    stored = json.loads(file.read_text())
    words = shlex.split(stored["command"])
    sets = [value for word, value in pairwise(words) if word == "--set"]
    found = read_stored(file).config
    del found["grafting.dropout"]  # only streams read it, whose default changed
    config = experiment_config(
        EXPERIMENTS[stored["experiment"]], stored["scale"], data=found["stream.data"], sets=sets
    )
    asked = _without_unset(to_dotted(config.values()))
    asked["grafting.lr_decay"] = asked["grafting.lr_decay"] or "linear"  # as older results say
    # null was SGD with an encoder, as all of them have.
    found["grafting.optimizer"] = found.get("grafting.optimizer") or "sgd"
    # A task that left with the generated ones is part of what was run, and not of what is asked.
    found["stream.tasks"] = [task for task in found["stream.tasks"] if task not in GENERATED]
    others = {
        name: (value, asked.get(name))
        for name, value in _without_unset(found).items()
        if value != asked.get(name, REMOVED.get(name))
    }
    assert others == {}


def _without_unset(config):
    """Leave settings of tasks out that are not set: older results do not name younger ones."""
    settings = {
        task: {name: value for name, value in own.items() if value is not None}
        for task, own in config["stream.task_settings"].items()
    }
    return {**config, "stream.task_settings": settings}


def test_stored_results_name_no_folder_of_the_machine():
    for file in (RESULTS / "laboratory").glob("*.json"):
        result = read_stored(file)
        assert "/" not in result.config["model.name"], file
        assert "/" not in result.command.removeprefix("python benchmarks/"), file
