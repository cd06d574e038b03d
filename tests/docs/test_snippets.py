"""What the pages and the README tell a reader to type works.

Python blocks of a page run in order, in one namespace, in an empty folder that holds tiny
checkpoints as `checkpoints/bert`, `checkpoints/roberta` and `checkpoints/gpt2`. The model `minilm`
is the tiny BERT, too: the page on transformers trains the real one, in a test of its own.
"""

import re
import shlex
import shutil
from pydoc import locate
from typing import Any

import pytest
import torch
import typer
import yaml
from docs.pages import ROOT, blocks, name_of, pages, prose, typed_commands
from slow_cases import slow

from cl_graft.cli.app import app
from cl_graft.runtime.settings import list_fields
from cl_graft.settings import config_from
from cl_graft.settings.parts import PARTS

PAGES = pages()
ELSEWHERE = {"docs/guides/transformers.md"}
"""Pages whose snippets a test of their own runs, in an environment of their own."""
WITH_PYTHON = [p for p in PAGES if blocks(p, "python") and name_of(p) not in ELSEWHERE]
LONG = {"docs/guides/plan.md", "README.md"}
"""Pages whose snippets take long: one plans all phases, one trains on whole tasks."""
CONFIGS = [(name_of(page), b.text) for page in PAGES for b in blocks(page, "yaml")]
COMMANDS = [(name_of(page), line) for page in PAGES for line in typed_commands(page)]
GROUP: Any = typer.main.get_command(app)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))


@pytest.fixture
def reader(
    tmp_path, monkeypatch, own_registries, blank_figures, tiny_bert, tiny_roberta, tiny_gpt2
):
    """An empty folder with tiny checkpoints, as the reader's working directory."""
    folders = {"bert": tiny_bert, "roberta": tiny_roberta, "gpt2": tiny_gpt2}
    for name, folder in folders.items():
        shutil.copytree(folder, tmp_path / "checkpoints" / name)
    monkeypatch.setattr("cl_graft.models.load.find_minilm", lambda: tiny_bert)
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        yield tmp_path


@pytest.mark.parametrize(
    "page", [slow(page)[0] if name_of(page) in LONG else page for page in WITH_PYTHON], ids=name_of
)
def test_the_snippets_of_a_page_run_in_order(page, reader):
    namespace: dict[str, object] = {"__name__": "snippet"}
    for block in blocks(page, "python"):
        padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's line
        exec(compile(padded, str(page), "exec"), namespace)


def test_a_page_imports_the_package_before_avalanche():
    for page in WITH_PYTHON:
        text = "\n".join(block.text for block in blocks(page, "python"))
        imports = re.findall(r"^(?:import|from) (avalanche|cl_graft)\b", text, re.MULTILINE)
        assert imports[:1] != ["avalanche"], name_of(page)


def test_the_main_pages_have_snippets():
    names = {name_of(page) for page in WITH_PYTHON}
    started = {f"docs/getting_started/{name}.md" for name in ("avalanche_experiments", "concepts")}
    assert started | {"docs/guides/use_a_bank.md", "docs/guides/data.md"} <= names


def test_configs_on_a_page_are_valid():
    assert CONFIGS
    for page, text in CONFIGS:
        assert config_from(yaml.safe_load(text), source=page).stream.tasks, page


def found_in_text(pattern: str, pages=PAGES) -> set[Any]:
    """What a pattern finds in the text of pages."""
    return {found for page in pages for found in re.findall(pattern, prose(page))}


def arguments_of(line: str) -> list[str] | None:
    """What follows `cl-graft` on a line, or None."""
    words = shlex.split(line, comments=True)
    if words[:3] == ["python", "-m", "cl_graft.cli"]:
        return words[3:]
    return words[1:] if words[:1] == ["cl-graft"] else None


def test_a_command_on_a_page_parses_or_is_a_target_of_make():
    assert COMMANDS
    for page, line in COMMANDS:
        words = shlex.split(line, comments=True)
        arguments = arguments_of(line)
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= TARGETS, f"{page}: {line}"
        elif arguments is None:
            known = {".", "cd", "cp", "curl", "git", "mkdir", "pip", "python", "tensorboard"}
            assert words[0] in known, f"{page}: {line}"
        else:
            name, *rest = arguments
            assert GROUP.commands[name].make_context(name, rest, resilient_parsing=False).params


def test_commands_named_in_the_text_of_a_page_exist():
    for span in found_in_text(r"`(cl-graft [^`]*)`"):
        name, *rest = arguments_of(span) or [""]
        if name.startswith("-"):
            assert name in {"--help", "-h", "--version", "--install-completion"}, span
            continue
        command = GROUP.commands[name]
        known = {option for parameter in command.params for option in parameter.opts}
        known |= {"--help", "-h"}
        assert {word.split("=")[0] for word in rest if word.startswith("-")} <= known, span
        if not rest[-1:] or not rest[-1].startswith("-"):  # else a value of the option is left out
            left = command.make_context(name, list(rest), resilient_parsing=True).args
            assert not left, f"{span}: {left} is no argument"


def test_settings_that_a_page_sets_on_the_command_line_exist():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if "decisions" in page.parts:  # they quote scripts, which have settings of their own
            continue
        for part, field in re.findall(r"--set[ \n]+(\w+)\.?(\w*)[\w.]*=", text):
            if (part, field) != ("part", "field"):  # the general form
                assert part in PARTS, f"{name_of(page)}: --set {part}"
                assert field in list_fields(PARTS[part]), f"{name_of(page)}: --set {part}.{field}"


def test_targets_of_make_named_in_the_text_of_a_page_exist():
    assert found_in_text(r"`make ([a-z0-9-]+)[^`]*`") <= TARGETS


def test_names_of_the_package_in_the_text_of_a_page_exist():
    pages = [page for page in PAGES if page.stem != "changelog"]
    for name in found_in_text(r"`(cl_graft(?:\.\w+)+)`", pages):
        assert locate(name) is not None, name


def test_tests_named_on_a_page_exist():
    for file, name in found_in_text(r"`(tests/[\w/]+\.py)::(test_\w+)`"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {name}(" in text, f"{file}::{name}"
