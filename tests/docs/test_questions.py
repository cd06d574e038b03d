"""Questions of a new user are answered two clicks from the front page, where its own links lead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.pages import DOCS, pages, prose

INDEX = DOCS / "index.md"

QUESTIONS = {
    "How do I install it?": ("index.md", "Install", ["pip install"]),
    "How do I compare with LoRA?": (
        "getting_started/faq.md",
        "How do I compare with LoRA?",
        ["--strategies grafting,naive,lora"],
    ),
    "Can I use my own model?": (
        "getting_started/faq.md",
        "Can I use my own model?",
        ["--model", "nn.Module"],
    ),
    "Can I use my own data?": ("guides/data.md", "Local files", ["csv", "jsonl"]),
    "What does forgetting 0 mean exactly?": (
        "getting_started/faq.md",
        "What does forgetting 0 mean exactly?",
        ["exactly 0.0", "bits"],
    ),
    "How do I resume a run?": ("guides/resume_a_run.md", None, ["cl-graft run --resume"]),
    "How do I cite it?": ("project/citation.md", None, ["@inproceedings", "@software"]),
    "How do I add grafting to my Avalanche experiment?": (
        "guides/avalanche.md",
        None,
        ["plugins=[grafting]"],
    ),
    "Does it need to know the task of a text?": (
        "getting_started/faq.md",
        "Does it need to know the task of a text?",
        ["router"],
    ),
    "How many tasks fit into a model?": (
        "getting_started/faq.md",
        "How many tasks fit?",
        ["cl-graft inspect"],
    ),
    "What does a task cost in bytes and time?": (
        "getting_started/faq.md",
        "What does a task cost?",
        ["kB", "dense run"],
    ),
    "Does it use a GPU, or several?": (
        "getting_started/faq.md",
        "Does it use a GPU, or several?",
        ["--device", "--gpus-per-run"],
    ),
    "Can the model be quantized?": (
        "getting_started/faq.md",
        "Can the model be quantized?",
        ["GGUF", "bitsandbytes"],
    ),
    "How do I choose density and learning rate?": (
        "getting_started/faq.md",
        "How do I choose density and learning rate?",
        ["--tune", "--density auto", "grafting.density"],
    ),
    "What is its licence?": ("getting_started/faq.md", "What is its licence?", ["Apache-2.0"]),
    "How do I watch a run in TensorBoard?": (
        "guides/tensorboard.md",
        None,
        ["tensorboard --logdir"],
    ),
}
"""By question: the page that answers it, the heading (None: the page's own), words that it says."""

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
    said = section(DOCS / name, heading)
    for word in words:
        assert word in said, word


def test_headings_are_found_by_the_words_that_people_search_for():
    heads = "\n".join(
        line for page in pages() for line in prose(page).splitlines() if line.startswith("#")
    )
    for term in TERMS:
        assert term.lower() in heads.lower(), term


def test_there_are_ten_questions_and_more():
    assert len(QUESTIONS) >= 10
