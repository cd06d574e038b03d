"""A text of somebody else stays text wherever it is written."""

from __future__ import annotations

import pytest

from cl_graft.runtime import escaping
from cl_graft.runtime.escaping import control_in, for_latex, for_markdown, for_markdown_code

ACTING = ["\0", "\x1b", "\x7f", "\x9b", "\u200b", "\u200e", "\u2028", "\u202e", "\u2066", "\ufeff"]


@pytest.mark.parametrize("character", ACTING)
def test_a_character_that_acts_reaches_no_target(character):
    text = f"a{character}b"
    for target in ("terminal", "markdown", "markdown_code", "latex"):
        assert character not in getattr(escaping, f"for_{target}")(text)


@pytest.mark.parametrize("name", ["ag_news", "größe", "日本", "🙂", "می\u200cخواهم", "a b", "a/b"])
def test_a_plain_name_may_be_any_that_people_write(name):
    assert control_in(name) is None


@pytest.mark.parametrize("text", ["a\nb", "a\tb", "\x1b", "\ud800", "\u2067", "\u2029"])
def test_a_name_holds_no_control_character(text):
    assert str(control_in(text)).startswith("U+")


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
