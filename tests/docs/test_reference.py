"""The parts of the documentation that are read off the package are there and complete."""

import importlib
import re
import sys
from types import ModuleType

import pytest
from docs.pages import DOCS, name_of, pages

from cl_graft.runtime.settings import list_fields
from cl_graft.settings.parts import PARTS


def load_extension(name: str) -> ModuleType:
    """A Sphinx extension of the documentation, which is no part of the package."""
    sys.path.insert(0, str(DOCS / "extensions"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


commands = load_extension("command_help")
extension = load_extension("from_the_package")
ASKED = {
    name: page
    for page in pages()
    for name in extension.MARKER.findall(page.read_text(encoding="utf-8"))
}


def test_pages_ask_for_every_section_and_for_no_other():
    assert set(ASKED) == set(extension.SECTIONS)


@pytest.mark.parametrize("name", extension.SECTIONS)
def test_a_section_has_text_and_no_marker(name):
    text = extension.SECTIONS[name]()
    assert text.strip()
    assert not extension.MARKER.search(text)


def test_every_row_of_a_table_has_as_many_cells_as_its_head():
    for name, section in extension.SECTIONS.items():
        previous = 0
        for line in section().splitlines():
            cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            assert not (cells and previous) or cells == previous, f"{name}: {line}"
            previous = cells


@pytest.mark.parametrize("part", PARTS)
def test_every_field_of_the_config_is_described_and_listed(part):
    listed = extension.config()
    assert f"## `{part}`" in listed
    for name, field in list_fields(PARTS[part]).items():
        assert field.description, name
        assert (f"| `{name}` |" in listed) or field.exclude


def test_a_page_names_every_public_name_of_its_modules_once_and_says_what_it_is():
    documented = load_extension("documented_modules")
    for modules in documented.MODULES.values():
        for module in modules:
            text = documented.document_modules(f"<!-- module: {module} -->")
            members = re.findall(r"^   :members: (.*)$", text, re.MULTILINE)
            full = members[0].split(", ") if members else []
            told = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
            assert sorted([*full, *told]) == sorted(documented.names_of_module(module))
            assert all(told.values()), module


def test_the_page_of_a_topic_lists_its_pages_and_the_names_in_full():
    documented = load_extension("documented_modules")
    in_full = documented.names_in_full()
    for index in (DOCS / "reference" / "api").glob("*/index.md"):
        listed = documented.list_pages(index.read_text(encoding="utf-8"))
        for page in index.parent.glob("*.md"):
            if page != index:
                assert f"(/reference/api/{index.parent.name}/{page.stem}.md)" in listed
                modules = documented.MODULES[page.relative_to(DOCS).with_suffix("").as_posix()]
                names = {n for module in modules for n in documented.names_of_module(module)}
                assert all(f"`{name}`" in listed for name in names & in_full)


def test_the_help_of_every_command_is_on_its_page():
    texts = commands.help_texts()
    assert set(texts) >= {f"cl-graft {name}" for name in ("demo", "run", "compare", "add")}
    for name, text in texts.items():
        assert text.startswith(f"Usage: {name}")
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 100


def test_every_command_has_a_page_with_its_help():
    pages = (DOCS / "reference" / "commands").glob("*.md")
    asked = [commands.HELP.findall(page.read_text(encoding="utf-8")) for page in pages]
    assert sorted(asked) == sorted([name] for name in set(commands.help_texts()) - {"cl-graft"})
    shown = commands.show_help("# A\n\n<!-- help: cl-graft doctor -->\n")
    assert shown.startswith("# A\n\n```text\nUsage: cl-graft doctor")


def test_no_page_names_a_path_of_a_machine():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(root|work|tmp|home)/", text), name_of(page)


def test_a_module_stands_on_one_page_of_the_reference():
    named = [
        name
        for path in sorted((DOCS / "reference" / "api").rglob("*.md"))
        for name in re.findall(r"<!-- module: (\S+) -->", path.read_text(encoding="utf-8"))
    ]
    assert len(named) > 100
    assert sorted(named) == sorted(set(named))
