"""A bank whose checksums fit and whose metadata nobody honest would write is refused, or is text.

The banks are saved by the package itself with its schema switched off, as if an author with a text
editor and a SHA-256 had written them.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tiny_runs import tiny_run

from cl_graft.errors import BankError, InputError
from cl_graft.grafts.bank import GraftBank
from cl_graft.integrations import export_task
from cl_graft.storage import load_bank, metadata_schema, save_bank
from cl_graft.storage.hub import save_pretrained

TEXTS = {
    "python": '128); __import__("os").system("PWNED")  #',
    "quotes": '"); __import__("os").system("PWNED"); ("',
    "backslash": '\\"); PWNED()  #',
    "fence": "```\nPWNED()\n```python",
    "link": "[PWNED](javascript:alert(1))",
    "escape": "\x1b[31mred\x1b[2J",
    "turned": "\u202egnp.exe",
}
"""Texts that would do something if they were taken for code."""


@pytest.fixture(scope="module")
def bank(tiny_roberta: Path, tmp_path_factory: pytest.TempPathFactory) -> GraftBank:
    out = tmp_path_factory.mktemp("honest")
    return load_bank(tiny_run(out, tiny_roberta, ["scope"], family="masked_lm") / "bank")


def change(bank: GraftBank, place: str, text: str) -> GraftBank:
    """Put a text somewhere into a bank."""
    (entry,) = bank.entries
    prompt: Any = entry.metadata["prompt"]
    if place == "revision":
        metadata = {**bank.base.metadata, "revision": text}
        return replace(bank, base=replace(bank.base, metadata=metadata))
    if place == "task":
        return replace(bank, entries=(replace(entry, task=text),))
    changed = {
        "label": {"label_names": [text, "b"]},
        "template": {"prompt": {**prompt, "template": f"{{text}} {text} {{mask}}"}},
        "metric": {"metric": text},
    }[place]
    return replace(bank, entries=(replace(entry, metadata={**entry.metadata, **changed}),))


def save_unchecked(bank: GraftBank, folder: Path) -> None:
    with patch.object(metadata_schema, "_check", lambda *_: None):
        save_bank(bank, folder)


def calls_in(page: str) -> set[str]:
    """Return what the Python in a page calls; it must be Python."""
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def pages_of(folder: Path, out: Path) -> list[str]:
    """Return the pages that are written of a bank for others."""
    export_task(folder, 0, format="hf", out=out / "exported")
    save_pretrained(load_bank(folder), out / "card")
    return [(out / name / "README.md").read_text("utf-8") for name in ("exported", "card")]


@pytest.mark.parametrize("place", ["task", "label", "template", "metric", "revision"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_no_text_of_a_bank_becomes_code(bank, tmp_path, place, text):
    save_unchecked(bank, tmp_path / "honest")
    save_unchecked(change(bank, place, text), tmp_path / "bank")
    try:
        pages = pages_of(tmp_path / "bank", tmp_path / "out")
    except (BankError, InputError):
        return
    honest = pages_of(tmp_path / "honest", tmp_path / "clean")
    for page, clean in zip(pages, honest, strict=True):
        assert calls_in(page) <= calls_in(clean)
        prose = re.sub(r"^(`{3,}).*?^\1", "", page, flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"(`+)[^`].*?\1", "", prose)
        assert not re.search(r"(?<!\\)\]\(javascript|<script|^# PWNED|\x1b|\u202e", prose, re.M)
