"""The scripts of the documentation run, as notebooks too, and each is shown whole on a page."""

import json
import re
import runpy
import sys
import threading
from http.server import ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from docs.pages import DOCS, pages
from docs.test_reference import load_extension

from cl_graft import open_bank

notebooks = load_extension("example_notebooks")
SCRIPTS = sorted(path.name for path in (DOCS / "examples").glob("*.py"))

OPTIONS = {
    "mixed_tasks.py": ["--shots", "4", "--steps", "2"],
    "naive_and_grafting.py": ["--shots", "4", "--rows", "8", "--epochs", "1", "--steps", "2"],
    "own_localizer.py": ["--shots", "4", "--steps", "2"],
    "split_digits.py": ["--epochs", "1"],
    "trainer_skill.py": ["--shots", "8", "--rows", "8", "--steps", "2"],
}
"""Options under which a script takes seconds on a tiny model."""


@pytest.fixture
def printed(tiny_bert, tmp_path, monkeypatch, capsys, own_registries):
    """What a script prints on a tiny model."""

    def run(name: str, *more: str) -> str:
        script = DOCS / "examples" / name
        model = [] if name == "split_digits.py" else ["--model", str(tiny_bert)]
        options = [*model, *OPTIONS.get(name, []), *more]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(script), *options])
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_every_script_is_run_here_and_shown_on_a_page():
    assert {*OPTIONS, "chat_two_skills.py", "serve_skills.py"} == set(SCRIPTS)
    text = "".join(page.read_text(encoding="utf-8") for page in pages())
    shown = set(re.findall(r"\{literalinclude\} [\w./]*?(\w+\.py)", text))
    assert shown == set(SCRIPTS)


def test_a_chat_model_learns_two_skills_and_keeps_one(tiny_chat, tmp_path, monkeypatch, capsys):
    script = DOCS / "examples" / "chat_two_skills.py"
    options = ["--model", str(tiny_chat), "--out", str(tmp_path / "skills"), "--steps", "2"]
    monkeypatch.setattr(sys, "argv", [str(script), *options])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "support answers as before commands was learned: True" in said
    assert said.count("(right: ") == 10
    served = runpy.run_path(str(DOCS / "examples" / "serve_skills.py"))["Skills"]
    served.bank = open_bank(tmp_path / "skills" / "bank")
    chat = [{"role": "user", "content": "Where is my rug?"}]
    with ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            answer = _ask(server, {"task": "support", "messages": chat})
            assert answer == (200, {"answer": served.bank.predict(chat, task="support").label})
            code, body = _ask(server, {"task": "sport", "messages": chat})
            assert code == 400
            assert "support" in body["error"]
            assert _ask(server, {"task": "support"})[0] == 400
        finally:
            server.shutdown()


def _ask(server: ThreadingHTTPServer, content: object) -> tuple[int, dict[str, str]]:
    url = "http://{}:{}".format(*server.server_address[:2])
    try:
        with urlopen(Request(url, json.dumps(content).encode()), timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_grafting_forgets_nothing_beside_naive_fine_tuning(printed, tmp_path):
    said = printed("naive_and_grafting.py", "--out", str(tmp_path / "curves"))
    assert re.search(r"forgotten of topic: naive -?[\d.]+ points, grafting 0\.0$", said.strip())
    for name in ("naive", "grafting"):
        assert list((tmp_path / "curves" / name).glob("events.out.tfevents.*"))


def test_the_plugin_keeps_five_tasks_of_digits(printed):
    said = printed("split_digits.py")
    scores = [float(one) for one in re.findall(r"([\d.]+)%", said.split("grafting: ")[1])]
    assert len(scores) == 5
    assert min(scores) > 75
    assert "0.0 points forgotten" in said.split("grafting: ")[1]


def test_a_trainer_leaves_a_skill(printed):
    said = printed("trainer_skill.py")
    assert re.search(r"base with [\d,]+ fine-tuned weights and the head: [\d.]+%", said)
    assert "that is 1.0% of the blocks' weights" in said


def test_a_bank_answers_mixed_tasks_as_one_by_one(printed):
    said = printed("mixed_tasks.py")
    assert "forgotten 0.0" in said
    assert "the same answers as one by one: True" in said


def test_a_localizer_from_outside_stands_beside_others(printed):
    said = printed("own_localizer.py", "--rows", "20")
    names = [line.split(":")[0] for line in said.splitlines()]
    assert names == ["relative_movement", "movement", "learned_mask"]
    assert len(set(re.findall(r"with ([\d,]+) weights", said))) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mixed_tasks", "the same answers as one by one: True"),
        ("naive_and_grafting", "points, grafting 0.0"),
        ("own_localizer", "learned_mask: "),
        ("split_digits", "0.0 points forgotten"),
        ("trainer_skill", "that is 1.0% of the blocks' weights"),
    ],
)
def test_the_cells_of_a_notebook_run_in_order(tiny_bert, tmp_path, monkeypatch, capsys, name, said):
    monkeypatch.chdir(tmp_path)
    model = [] if name == "split_digits" else ["--model", str(tiny_bert)]
    options = [*OPTIONS[f"{name}.py"], *model]
    namespace: dict[str, object] = {"__name__": "__main__"}
    *cells, _ = notebooks.example_notebook(notebooks.pages_of_scripts(DOCS)[name]).cells
    for cell in cells:
        if cell.cell_type == "code":
            exec(cell.source.replace(".parse_args([])", f".parse_args({options})"), namespace)
    assert said in capsys.readouterr().out


def test_every_script_is_offered_as_a_notebook():
    assert {f"{name}.py" for name in notebooks.pages_of_scripts(DOCS)} == set(SCRIPTS)
