"""Questions of a new user are answered two clicks from the front page, where its own links lead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.pages import DOCS, pages, prose

INDEX = DOCS / "index.md"

FAQ = "getting_started/faq.md"
QUESTIONS = {
    "How do I install it?": ("index.md", "Install", ["pip install"]),
    "How do I compare with LoRA?": (FAQ, True, ["--strategies grafting,naive,lora"]),
    "Can I use my own model?": (FAQ, True, ["--model", "nn.Module"]),
    "Can I use my own data?": ("guides/data.md", "Local files", ["csv", "jsonl"]),
    "What does forgetting 0 mean exactly?": (FAQ, True, ["exactly 0.0", "bits"]),
    "How do I resume a run?": ("guides/resume_a_run.md", None, ["cl-graft run --resume"]),
    "How do I cite it?": ("project/citation.md", None, ["@inproceedings", "@software"]),
    "How do I add it to Avalanche?": ("guides/avalanche.md", None, ["plugins=[grafting]"]),
    "Does it need to know the task of a text?": (FAQ, True, ["router"]),
    "How many tasks fit?": (FAQ, True, ["cl-graft inspect"]),
    "What does a task cost?": (FAQ, True, ["kB", "dense run"]),
    "Does it use a GPU, or several?": (FAQ, True, ["--device", "--gpus-per-run"]),
    "Can the model be quantized?": (FAQ, True, ["GGUF", "bitsandbytes"]),
    "How do I choose density and learning rate?": (
        FAQ, True, ["--tune", "--bytes-per-task", "grafting.density"],
    ),
    "What is its licence?": (FAQ, True, ["Apache-2.0"]),
    "How do I watch a run?": ("guides/tensorboard.md", None, ["tensorboard --logdir"]),
}  # fmt: skip
"""By question: the page that answers it, the heading (True: the question itself, None: the
page's own), words that it says."""

TERMS = ("catastrophic forgetting", "LoRA", "resume", "cluster", "TensorBoard", "images", "cite")
"""Words that people search for; search puts titles and headings first."""


def links(page: Path) -> set[Path]:
    """The pages that the text of a page links to: tables of contents and fenced blocks are none."""
    targets = re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)\s]*)?\)", prose(page))
    return {(page.parent / target).resolve() for target in targets}


def section(page: Path, heading: str | None) -> str:
    """The text under a heading, up to the next of its level; the whole page without one."""
    text = page.read_text(encoding="utf-8")
    if heading is None:
        return text
    found = re.search(rf"^(#+) {re.escape(heading)}$(.*?)(?=^\1 |\Z)", text, re.MULTILINE | re.S)
    assert found is not None, f"{page.name} has no heading {heading!r}"
    return found[2]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_in_two_clicks(question):
    name, heading, words = QUESTIONS[question]
    first = links(INDEX)
    near = {INDEX, *first, *(target for page in first for target in links(page))}
    assert DOCS / name in near
    said = section(DOCS / name, question if heading is True else heading)
    assert [word for word in words if word not in said] == []


def test_headings_are_found_by_the_words_that_people_search_for():
    heads = "\n".join(
        line for page in pages() for line in prose(page).splitlines() if line.startswith("#")
    )
    for term in TERMS:
        assert term.lower() in heads.lower(), term
