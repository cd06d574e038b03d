"""The benchmark scripts run, at the smallest scale."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from answer_data import answer_folder
from benchmark_scripts import run_script
from kind_data import write_kinds
from kind_streams import write_table
from papers.claims import CLAIMS, judge
from papers.stored import read_stream
from related_tasks import describe_runs
from related_tasks import write_table as write_related
from tiny_runs import tiny_run

from cl_graft.data.streams import STREAMS


def run_smoke(name, folder, *options, sets=(), kept=None):
    """Run a script at its smallest scale; return its table and what it stored."""
    results = folder / "results"
    asked = ["--scale", "smoke", "--out", folder / "runs", "--results", results, *options]
    asked += [word for value in sets for word in ("--set", value)]
    table = run_script(f"{name}.py", *asked, folder=folder).stdout
    return table, json.loads((results / f"{kept or name}-smoke.json").read_text())


def run_twice(name, folder, *options, sets=()):
    """Run a script, and again from what is finished; return what it stored."""
    first, _ = run_smoke(name, folder, *options, sets=sets)
    again, stored = run_smoke(name, folder, *options, sets=sets)
    kept = (folder / "results" / f"{name}-smoke.md").read_text()
    assert all(told[told.index("|") :] == kept for told in (first, again))
    return stored


def test_table4_is_stored_as_claims_read_it(tiny_bert, tmp_path):
    sets = ["stream.tasks=[scope,banking]", "stream.max_length=24"]
    run_smoke("table4", tmp_path, sets=[*sets, f"model.name={tiny_bert}"])
    result = read_stream(tmp_path / "results" / "table4-smoke.json")
    assert result.scale == "smoke"
    verdicts = {
        claim.name: judge(claim, {"table4": result.view})
        for claim in CLAIMS
        if claim.experiments == ("table4",)
    }
    assert verdicts["grafting-forgets-nothing"].holds
    assert verdicts["grafting-retains"].holds is not None
    assert "on scope, banking;" in result.setting


@pytest.mark.parametrize("scale", ["cpu", "long"])
def test_the_page_shows_the_table_of_the_stored_streams(scale):
    root = Path(__file__).parents[2]
    stored = json.loads((root / f"benchmarks/results/kind_streams-{scale}.json").read_text())
    table = write_table(stored["streams"])
    assert table == (root / f"benchmarks/results/kind_streams-{scale}.md").read_text()
    assert table in (root / "docs/results/other_kinds.md").read_text()


@pytest.mark.slow
def test_streams_of_other_kinds_are_tuned_alike_and_added_to(tiny_bert, tmp_path):
    data = write_kinds(tmp_path / "data")
    sets = ["stream.tasks=[numbers,names]", f"model.name={tiny_bert}"]

    def learn(*options):
        asked = ("--data", data, "--streams", "stsb-sst2", *options)
        _, stored = run_smoke("kind_streams", tmp_path, *asked, sets=sets)
        (found,) = stored["streams"].values()
        return found

    before = learn("--strategies", "grafting,independent")
    assert set(before["strategies"]) == {"grafting", "independent"}
    found = learn("--strategies", "naive")
    assert found["metrics"] == ["pearson", "span_f1"]
    assert found["rates"] == before["rates"]
    learn("--longer")
    longer = learn("--strategies", "naive")  # keeps it
    assert list(longer["strategies"])[-1] == "independent, twice the steps"
    assert {**longer, "rates": found["rates"], "strategies": found["strategies"]} == found
    runs = (tmp_path / "runs" / "stsb-sst2" / "longer" / "runs").rglob("results.json")
    assert [json.loads(run.read_text())["schedules"]["names"]["steps"] for run in runs] == [4]
    assert len({len(one["tried"]) for one in found["rates"].values()}) == 1  # grids of one size
    for rate in found["rates"].values():
        scores = {one["value"]: one["score"] for one in rate["tried"]}
        assert scores[rate["chosen"]] == max(scores.values())
    assert found["strategies"]["grafting"] == before["strategies"]["grafting"]
    assert found["strategies"]["grafting"]["most_forgetting"] == 0.0
    assert set(found["strategies"]) == {"grafting", "independent", "naive"}


@pytest.mark.slow
def test_grafts_on_related_tasks_are_compared_with_independent_models(tiny_bert, tmp_path):
    sets = ["stream.tasks=[scope,entailment]", "stream.name=null", f"model.name={tiny_bert}"]
    asked = ("--rows", "64", "--streams", "inference")
    stored = run_twice("related_tasks", tmp_path, *asked, sets=sets)
    (found,) = stored["streams"].values()
    assert set(found["scores"]) == {"independent", "isolated", "on earlier tasks"}
    assert len({len(rate["tried"]) for rate in found["rates"].values()}) == 1  # as many each
    assert set(found["most_forgetting"].values()) == {0.0}
    runs = tmp_path / "runs" / "inference-64"
    assert len(list((runs / "on_earlier_tasks").rglob("results.json"))) == 2  # two orders


def test_a_seed_with_two_orders_counts_once_against_independent():
    def at_end(seed, tasks, scores):
        return SimpleNamespace(seed=seed, tasks=tasks, R=[scores], forgetting=0.0)

    runs = {
        "independent": [at_end(k, ["a", "b"], [0.5, 0.7 + k / 100]) for k in range(3)],
        "isolated": [at_end(k, ["a", "b"], [0.5, 0.8]) for k in range(2)],
        "on earlier tasks": [
            at_end(k, tasks, scores)
            for k in range(3)
            for tasks, scores in ((["a", "b"], [0.6, 0.8]), (["b", "a"], [0.9, 0.7]))
        ],
    }
    found = describe_runs(runs, ["a", "b"])
    assert found["scores"]["on earlier tasks"]["a"]["1"] == pytest.approx(0.65)
    assert found["averages"]["on earlier tasks"] == pytest.approx(dict.fromkeys("012", 0.75))
    above = found["above_independent"]
    assert above["on earlier tasks"]["mean"] == pytest.approx(0.145)
    assert above["isolated"]["interval"] is None  # two seeds
    line = write_related({"few": found}).splitlines()[-1]
    assert line.startswith("| few | 60.5 ± 0.5 | 65.0 ± 0.0 | 75.0 ± 0.0 | +4.8 | +14.5 (")


@pytest.mark.slow
def test_every_training_is_answered_with_its_last_and_its_best_step(tiny_bert, tmp_path):
    sets = ["stream.tasks=[scope,topic]", f"model.name={tiny_bert}", "stream.max_length=24"]
    stored = run_twice("last_step", tmp_path, sets=sets)
    (cell,) = stored["cells"]
    for method, own in cell["scores"].items():
        steps = own.get("steps", [0, 0])
        for step, last, best in zip(steps, own["last"], own["best"], strict=True):
            assert step != 4 or last == best, method  # the last step was the best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "chosen"),
    [
        ("frontier", ("--localizers", "movement;base_gradient;learned_mask, 20x")),
        ("candidates", ()),
    ],
)
def test_localizers_are_compared_and_finished_cells_are_not_computed_again(
    script, chosen, data_dir, minilm, tmp_path
):
    sets = ["stream.tasks=[sst2_sent,ag_news]"]
    stored = run_twice(script, tmp_path, "--data", data_dir, *chosen, sets=sets)
    assert str(tmp_path) not in stored["command"]
    if script == "frontier":
        costs = {row["variant"]: row["passes"] for row in stored["rows"]}
        assert costs["base_gradient"]["find"] < costs["learned_mask, 20x"]["find"]
        assert (tmp_path / "results" / "frontier-smoke.png").stat().st_size > 1000
    else:
        jaccard = {cell["multiple"]: cell["jaccard"]["ag_news"] for cell in stored["cells"]}
        assert jaccard[None] == 1.0
        assert 0.5 < jaccard[5] <= jaccard[50] <= 1.0


@pytest.mark.slow
def test_routers_stand_beside_the_oracle_and_finished_cells_are_not_computed_again(
    data_dir, minilm, tmp_path
):
    asked = ("--data", data_dir, "--comparisons", "routers")
    stored = run_twice("routers", tmp_path, *asked, sets=["stream.tasks=[sst2_sent,qnli]"])
    rows = {row["strategy"]: row for row in stored["rows"]}
    assert rows["grafting"]["below_the_oracle"]["mean"] == 0.0
    assert rows["grafting"]["told"] == "the task"
    assert rows["grafting_by_discriminant"]["told"] == "nothing"
    assert rows["grafting_by_discriminant"]["routing_accuracy"]["mean"] > 0.8
    for row in rows.values():
        assert row["below_the_oracle"]["mean"] >= 0.0
    assert str(tmp_path) not in json.dumps(stored)


@pytest.mark.slow
@pytest.mark.parametrize("matched", [(), ("--matched", "150kB")])
def test_baselines_leave_a_table_its_latex_csv_and_pictures(matched, data_dir, minilm, tmp_path):
    stem = "matched-150kB" if matched else "baselines"
    asked = ("--data", data_dir, "--untuned", "--strategies", "independent,grafting,bitfit")
    sets = ["stream.tasks=[sst2_sent,mrpc]"]
    for _ in range(2):
        _, stored = run_smoke("baselines", tmp_path, *asked, *matched, sets=sets, kept=stem)
    assert [*stored["strategies"]] == ["independent", "grafting", "bitfit"]
    assert stored["normalization"]["missing"] == ""  # MRPC has F1, SST-2 accuracy
    assert str(tmp_path) not in json.dumps(stored)
    files = {path.name.removeprefix(f"{stem}-smoke") for path in (tmp_path / "results").iterdir()}
    assert files == {".json", ".md", ".tex", ".csv", "-bytes.png"}


def test_baselines_store_the_summary_of_their_comparison(tiny_bert, data_dir, tmp_path):
    asked = ("--untuned", "--strategies", "naive")
    sets = [f"model.name={tiny_bert}", "stream.tasks=[qnli,mrpc]"]
    _, stored = run_smoke("baselines", tmp_path, *asked, sets=sets)
    assert stored["shared"] == {}
    assert "naive" in json.dumps(stored["strategies"])
    (by_task,) = stored["scores"]["naive"].values()
    final = stored["strategies"]["naive"]["final"]
    assert by_task == {task: pytest.approx(over["mean"]) for task, over in final.items()}


@pytest.mark.slow
def test_orders_of_long15_share_their_choices_and_go_on_from_stored_runs(tiny_bert, tmp_path):
    for name in STREAMS["long15-order4"].tasks():
        folder = tmp_path / "data" / "long15" / name
        folder.mkdir(parents=True)
        for split in ("train", "dev", "test"):
            rows = [(f"{word} {name} {split} {i}", word) for i in range(8) for word in "yn"]
            lines = [json.dumps({"text": text, "label": word}) + "\n" for text, word in rows]
            (folder / f"{split}.jsonl").write_text("".join(lines))
    asked = ("long15", tmp_path, "--data", "data", "--strategies", "grafting,naive")
    sets = [f"model.name={tiny_bert}"]
    _, first = run_smoke(*asked, "--orders", "4", sets=sets)
    shutil.rmtree(tmp_path / "runs")  # another machine
    table, second = run_smoke(*asked, "--orders", "4,6", sets=sets)
    assert second["chosen"] == first["chosen"]
    assert second["runs"]["4"] == first["runs"]["4"]
    assert not list((tmp_path / "runs").glob("order4"))
    for order, own in second["runs"].items():
        for strategy in ("grafting", "naive"):
            (one,) = own[strategy].values()
            assert one["tasks"] == STREAMS[f"long15-order{order}"].tasks()
            assert len(one["end"]) == len(one["learned"]) == 15
        assert own["grafting"]["0"]["forgetting"] == 0.0
    mean = [own["naive"]["0"]["average_accuracy"] for own in second["runs"].values()]
    assert f"| mean of 2 | naive | {50 * sum(mean):.1f} |" in table


@pytest.mark.slow
def test_peft_writes_the_tokens_of_tasks_that_were_exported_as_loras(tiny_chat, tmp_path):
    tasks = ["one", "two"]
    for task, form in zip(tasks, ("instruction", "input"), strict=True):
        answer_folder(tmp_path / "data" / task, form)
    own = {"data": str(tmp_path / "data"), "family": "causal_lm", "max_length": 48}
    own |= {"localizer": "columns", "density": 0.02, "region_lr": 0.001}
    run = tiny_run(tmp_path / "run", tiny_chat, tasks, **own)
    told = json.loads(run_script("lora_export.py", run, "--prompts", 8, "--batch", 4).stdout)
    assert told["same"] == {"PEFT": 8, "PEFT, mixed batches": 8}
    assert told["tokens"] > 0


@pytest.mark.slow
def test_a_model_with_every_graft_answers_the_last_task_as_the_bank_does(tmp_path):
    _, stored = run_smoke("merged", tmp_path, sets=['stream.tasks=["topic","scope"]'])
    for (run,) in stored["runs"].values():
        assert run["alone"] == pytest.approx([100 * score for score in run["R"][-1]])
    (grafting,) = stored["runs"]["grafting"]
    assert grafting["losses"]["2"][-1] == 0.0


@pytest.mark.slow
def test_reproducibility_is_measured(tmp_path):
    run_script("reproducibility.py", "--scale", "smoke", "--results", tmp_path)
    told = json.loads((tmp_path / "reproducibility-smoke.json").read_text())
    lines = {line["what"]: line for line in told["lines"]}
    assert lines["trained again, 1 thread"]["same_bits"]
    assert lines["the same once more"]["same_bits"]
    assert not lines["precision bf16"]["same_bits"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc")
def test_a_long_stream_forgets_nothing_and_goes_on_from_what_is_learned(tmp_path):
    stored = {}
    places = ("--out", tmp_path / "run", "--results", tmp_path / "results")
    for _ in range(2):
        done = run_script("long_stream.py", "--scale", "smoke", *places)
        stored = json.loads((tmp_path / "results" / "long_stream-smoke.json").read_text())
        assert all(stored["passed"].values()), done.stdout
        assert stored["memory"]["processes"] == 1
    assert str(tmp_path) not in json.dumps(stored)
    assert stored["tasks"] == ["words-0", "words-11", 12]
    assert (tmp_path / "results" / "long_stream-smoke.png").stat().st_size > 1000
