"""Whatever is wrong with what a user brings is told in one sentence, at once, and exits with 2.

All commands run in one new process, each to its end, as the imports take longer than they do.
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from tiny_runs import Told, cl_graft, cl_graft_each

from cl_graft.banks.open_bank import load_base
from cl_graft.storage import StoredGraft, load_bank, save_graft

SECONDS = 60.0
"""Nobody waits longer for an error, even on a busy machine; training would take minutes."""

COMPARE = "compare --model {model} --out {there}/out {settings} --tasks"
CASES = {
    "compare {there}/nowhere.yaml": "nowhere.yaml: cannot read the config: No such file",
    "run {there}/list.yaml": "expected 'name: value' lines",
    f"{COMPARE} scope --set grafting.densty=0.1": "unknown key 'grafting.densty'; did you mean "
    "'grafting.density'?",
    f"{COMPARE} scope --data {{there}}/nowhere": "there is no such file or folder",
    f"{COMPARE} mine --data {{rows}} --set stream.task_settings.mine.text=wrong": "'wrong'",
    f"{COMPARE} mine --data {{labels}} --set stream.task_settings.mine.label_names=[bad,good]": (
        "'maybe'"
    ),
    f"{COMPARE} {{empty}}": "empty",
    f"{COMPARE} scop": "unknown task 'scop'; did you mean 'scope'?",
    f"{COMPARE} scope --model minilmm": "did you mean 'minilm'?",
    f"{COMPARE} scope --strategies naive,graftin": "unknown strategy 'graftin': did you mean "
    "'grafting'?",
    f"{COMPARE} scope --localizer learned_mas": "unknown localizer 'learned_mas'",
    f"{COMPARE} scope --density 0": "density: must be in (0, 1], got 0.0",
    f"{COMPARE} scope --density 0.1 --bytes-per-task 10kB": "leave --density out",
    f"{COMPARE} scope --density 1.5": "density: must be in (0, 1], got 1.5",
    f"{COMPARE} scope --model {{there}}/no_model": "holds no transformer",
    "verify {bank} --model {there}/other_base": "belongs to another model",
    "verify {there}/cut": "cut short",
    "inspect {there}/cut.safetensors": "bytes are left",
    "inspect {there}/foreign.safetensors": "not a file of cl_graft",
    "verify {there}/no_model": "is not a bank",
    "add {there}/nowhere --task topic": "there is no folder",
    "run {there}/stream.yaml --out {out} --strategy naive --seed 0 --steps 3": "holds a run with "
    "another config (",
    f"{COMPARE} scope,topic --shots 9 --out {{out}}": "holds a comparison with another config "
    "(stream.shots 8 there, 9 here)",
    f"{COMPARE} scope --out {{there}}": "is not empty and holds no comparison",
    f"{COMPARE} scope --device abacus": "no device 'abacus' here",
    f"{COMPARE} scope --set grafting.modules=*.bias": "put quotes around a text that begins with *",
    "compare --resume {out} --out {there}/other": "give no others",
    "run --resume {out} --out {there}/other": "give no others",
    "add {bank} --task {rows} --text wrong": "'wrong'",
    "add {bank} --task topic --data {there}": "give the new task another name",
}
"""Commands, and what each is answered with."""


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def good_rows(count: int = 60) -> list[dict[str, str]]:
    return [{"text": f"text {n}", "label": ["bad", "good"][n % 2]} for n in range(count)]


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
    write_rows(empty, [*good_rows(), {"text": " ", "label": "good"}])
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
    stored = StoredGraft(learned.entries[0].owned, learned.base, "scope")
    save_graft(stored, there / "cut.safetensors")
    whole = (there / "cut.safetensors").read_bytes()
    (there / "cut.safetensors").write_bytes(whole[:-20])
    (there / "foreign.safetensors").write_bytes(b"something else")

    config = f"stream: {{tasks: [scope]}}\nmodel: {{name: {tiny_bert}}}\n"
    (there / "stream.yaml").write_text(config)
    places = {"there": there, "out": out, "bank": bank, "model": tiny_bert, "rows": rows}
    places |= {"labels": labels, "empty": empty, "settings": shlex.join(settings)}
    commands = [shlex.split(case.format(**places)) for case in CASES]
    return dict(zip(CASES, cl_graft_each(commands), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_told_in_one_sentence_at_once(told, case):
    answer: Told = told[case]
    assert answer.code == 2, answer
    assert CASES[case] in answer.err
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
