"""A text of somebody else stays text wherever it is written."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_graft.runtime import escaping
from cl_graft.runtime.escaping import (
    control_in,
    for_csv,
    for_json,
    for_latex,
    for_markdown,
    for_markdown_code,
    for_python,
)

ACTING = ["\0", "\x1b", "\x7f", "\x9b", "\u200b", "\u200e", "\u2028", "\u202e", "\u2066", "\ufeff"]
TEXTS = st.text(st.characters(exclude_categories=[]))


@pytest.mark.parametrize("character", ACTING)
def test_a_character_that_acts_reaches_no_target(character):
    text = f"a{character}b"
    for target in ("terminal", "markdown", "markdown_code", "latex", "python", "json"):
        assert character not in getattr(escaping, f"for_{target}")(text)


@pytest.mark.parametrize("name", ["ag_news", "größe", "日本", "🙂", "می\u200cخواهم", "a b", "a/b"])
def test_a_plain_name_may_be_any_that_people_write(name):
    assert control_in(name) is None


@pytest.mark.parametrize("text", ["a\nb", "a\tb", "\x1b", "\ud800", "\u2067", "\u2029"])
def test_a_name_holds_no_control_character(text):
    assert str(control_in(text)).startswith("U+")


@given(TEXTS)
def test_json_is_read_back_as_the_same_value(text):
    for ascii_only in (False, True):
        assert json.loads(for_json({text: [text]}, ascii_only=ascii_only)) == {text: [text]}


@given(TEXTS)
def test_python_reads_back_the_same_text_and_nothing_else(text):
    tree = ast.parse(for_python([text, 1, 0.5]), mode="eval")
    assert ast.literal_eval(tree) == [text, 1, 0.5]


def test_python_takes_nothing_but_literals():
    with pytest.raises(TypeError, match="no literal"):
        for_python({"a": 1})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ag_news", "ag_news"),
        ("_a_", r"\_a\_"),
        ("a|b", r"a\|b"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a\n# b", "a # b"),
        ("`a` *b* $c$", r"\`a\` \*b\* \$c\$"),
    ],
)
def test_markdown_shows_a_text_and_follows_none_of_it(text, shown):
    assert for_markdown(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("```", "```` ``` ````"),
        ("a\n```\nimport os", r"````a\n```\nimport os````"),
    ],
)
def test_a_code_span_ends_where_the_text_ends(text, shown):
    assert for_markdown_code(text) == shown


def test_latex_finds_no_command_in_a_text():
    shown = for_latex(r"\input{/etc/passwd} $x$ a_b 5% ~^ #1 & <>|" + '"')
    assert shown == (
        r"\textbackslash{}input\{/etc/passwd\} \$x\$ a\_b 5\% \textasciitilde{}\textasciicircum{} "
        r"\#1 \& \textless{}\textgreater{}\textbar{}\textquotedbl{}"
    )


def test_a_cell_of_a_csv_file_is_never_a_formula():
    formulas = ("=1+1", "@SUM(1)", "+cmd|' /C calc'!A0", "-x", "\t=1", "-2+cmd|' /C'!A0", "+1,2=3")
    for text in formulas:
        assert for_csv(text) == f"'{text}"
    for text in ("-0.5 ± 0.1", "-1.5 [-2.0, 1,000.0]", "+3", "-.5", "a=b", "", "–"):
        assert for_csv(text) == text
