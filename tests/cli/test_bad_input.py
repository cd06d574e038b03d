"""Whatever is wrong with what a user brings is told in one sentence, at once, and exits with 2.

All commands run in one new process, each to its end, as the imports take longer than they do.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_runs import Told, cl_graft, cl_graft_each

from cl_graft.banks.bank_base import load_base
from cl_graft.storage import StoredGraft, load_bank, save_graft

SECONDS = 60.0
"""Nobody waits longer for an error, even on a busy machine; training would take minutes."""

EXPECTED = {
    "missing config": "nowhere.yaml: cannot read the config: No such file",
    "config that is no mapping": "expected 'name: value' lines",
    "unknown key": "unknown key 'grafting.densty'; did you mean 'grafting.density'?",
    "missing data": "there is no such file or folder",
    "unknown column": "'wrong'",
    "label outside": "'maybe'",
    "empty text": "empty",
    "too few rows": "too few training rows for 500 shots",
    "unknown task": "unknown task 'sentimnt'; did you mean 'sentiment'?",
    "unknown model": "did you mean 'minilm'?",
    "unknown strategy": "unknown strategy 'graftin': did you mean 'grafting'?",
    "unknown localizer": "unknown localizer 'learned_mas'",
    "density 0": "density: must be in (0, 1] or 'auto', got 0.0",
    "density above 1": "density: must be in (0, 1] or 'auto', got 1.5",
    "no transformer": "holds no transformer",
    "another base": "belongs to another model",
    "truncated entry": "cut short",
    "truncated graft": "bytes are left",
    "foreign graft": "not a file of cl_graft",
    "foreign bank": "is not a bank",
    "missing bank": "there is no folder",
    "run in the way": "holds a run with another config (",
    "comparison in the way": "a comparison with another config (stream.shots 8 there, 9 here)",
    "something in the way": "is not empty and holds no comparison",
    "unknown device": "no device 'abacus' here",
    "bank: unknown column": "'wrong'",
    "bank: other labels": "give the new task another name",
}


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def good_rows(count: int = 60) -> list[dict[str, str]]:
    return [{"text": f"text {n}", "label": ["no", "yes"][n % 2]} for n in range(count)]


@pytest.fixture(scope="module")
def told(
    compared: tuple[Path, Told],
    bank: Path,
    settings: tuple[str, ...],
    tiny_bert: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Told]:
    there = tmp_path_factory.mktemp("bad")
    out, (rows, labels, empty) = compared[0], (there / f"{n}.jsonl" for n in ("rows", "l", "e"))
    write_rows(rows, good_rows())
    write_rows(labels, [*good_rows(), {"text": "text", "label": "maybe"}])
    write_rows(empty, [*good_rows(), {"text": " ", "label": "yes"}])
    write_rows(there / "topic.jsonl", good_rows())
    (there / "list.yaml").write_text("- 1\n")
    (there / "no_model").mkdir()
    (there / "no_model" / "readme.txt").write_text("nothing")
    learned = load_bank(bank)
    base = load_base(learned.base)
    with torch.no_grad():
        next(base.model.backbone.parameters())[0, 0] += 1.0
    base.model.backbone.save_pretrained(there / "other_base")
    base.tokenizer.save_pretrained(there / "other_base")
    cut = shutil.copytree(bank, there / "cut")
    entry = next((cut / "entries").iterdir())
    entry.write_bytes(entry.read_bytes()[:-20])
    stored = StoredGraft(learned.entries[0].owned, learned.base, "sentiment")
    save_graft(stored, there / "cut.safetensors")
    whole = (there / "cut.safetensors").read_bytes()
    (there / "cut.safetensors").write_bytes(whole[:-20])
    (there / "foreign.safetensors").write_bytes(b"something else")

    def compare(*arguments: object, tasks: str = "sentiment", free: bool = True) -> list[object]:
        where = ["--out", there / "out"] if free else []
        return ["compare", "--tasks", tasks, "--model", tiny_bert, *settings, *where, *arguments]

    config = there / "stream.yaml"
    config.write_text(f"stream: {{tasks: [sentiment]}}\nmodel: {{name: {tiny_bert}}}\n")
    other_run = ["--strategy", "naive", "--seed", 0, "--set", "fine_tuning.steps=3"]
    named = ["--data", rows, "--set", "stream.task_settings.mine.text=wrong"]
    declared = ["--data", labels, "--set", "stream.task_settings.mine.label_names=['no', 'yes']"]
    commands: dict[str, list[object]] = {
        "missing config": ["compare", there / "nowhere.yaml"],
        "config that is no mapping": ["run", there / "list.yaml"],
        "unknown key": compare("--set", "grafting.densty=0.1"),
        "missing data": compare("--data", there / "nowhere"),
        "unknown column": compare(*named, tasks="mine"),
        "label outside": compare(*declared, tasks="mine"),
        "empty text": compare(tasks=str(empty)),
        "too few rows": compare("--shots", "500", "--shots-short", "error", tasks=str(rows)),
        "unknown task": compare(tasks="sentimnt"),
        "unknown model": compare("--model", "minilmm"),
        "unknown strategy": compare("--strategies", "naive,graftin"),
        "unknown localizer": compare("--localizer", "learned_mas"),
        "density 0": compare("--density", "0"),
        "density above 1": compare("--density", "1.5"),
        "no transformer": compare("--model", there / "no_model"),
        "another base": ["verify", bank, "--model", there / "other_base"],
        "truncated entry": ["verify", cut],
        "truncated graft": ["inspect", there / "cut.safetensors"],
        "foreign graft": ["inspect", there / "foreign.safetensors"],
        "foreign bank": ["verify", there / "no_model"],
        "missing bank": ["add", there / "nowhere", "--task", "topic"],
        "run in the way": ["run", config, "--out", out, *other_run],
        "comparison in the way": compare(
            "--shots", "9", "--out", out, tasks="sentiment,topic", free=False
        ),
        "something in the way": compare("--out", there),
        "unknown device": compare("--device", "abacus"),
        "bank: unknown column": ["add", bank, "--task", rows, "--text", "wrong"],
        "bank: other labels": ["add", bank, "--task", "topic", "--data", there],
    }
    assert commands.keys() == EXPECTED.keys()
    return dict(zip(commands, cl_graft_each(list(commands.values())), strict=True))


@pytest.mark.parametrize("case", EXPECTED)
def test_bad_input_is_told_in_one_sentence_at_once(told, case):
    answer: Told = told[case]
    assert answer.code == 2, answer
    assert EXPECTED[case] in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert answer.err.startswith("cl-graft: ")
    assert answer.err.count("\n") == 1
    assert answer.seconds < SECONDS


def test_the_process_itself_exits_with_2():
    answer = cl_graft("verify", "nowhere")
    assert answer.code == 2
    assert answer.err == "cl-graft: there is no folder nowhere\n"


def test_a_wrong_option_is_told_by_its_name():
    answer = cl_graft("compare", "--shot", "3")
    assert answer.code == 2
    assert "--shot" in answer.err
