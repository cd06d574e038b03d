"""The page in a real browser: sorting, themes, widths, keyboard, accessibility, no requests.

Needs the extra `browser` and a Chromium: the one that playwright installs, or the one that
CL_GRAFT_CHROMIUM names. With CL_GRAFT_RUNS it is the page of the runs in that folder.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VIEWS = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(params=[(v, s) for v in VIEWS for s in ("light", "dark")], ids="-".join)
def opened(request: pytest.FixtureRequest, browser: Any, shown: Path) -> Iterator[Any]:
    """The page, and everything that it complains about or asks for."""
    view, scheme = request.param
    width, height = VIEWS[view]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    address = (shown / "report.html").as_uri()
    page.goto(address)
    yield page
    assert told == []
    assert {url for url in asked if not url.startswith("data:")} == {address}
    context.close()


def test_a_heading_sorts_its_table_both_ways_by_mouse_and_by_keyboard(opened):
    table = opened.locator("#comparison table.sortable").first
    head = table.locator("thead th").nth(1)
    names = table.locator("tbody th")
    before = names.all_inner_texts()
    values = "cells => cells.map(cell => Number(cell.dataset.value))"
    column = table.locator("tbody td:nth-child(2)")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = column.evaluate_all(values)
    assert down == sorted(down, reverse=True)
    head.locator("button").focus()
    opened.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    up = column.evaluate_all(values)
    assert up == sorted(up)
    assert opened.locator("#told").inner_text() == "Sorted by average accuracy, ascending"
    table.locator("thead th button").first.click()
    assert names.all_inner_texts() == sorted(before)
    assert head.get_attribute("aria-sort") is None


def test_the_theme_is_the_systems_until_it_is_chosen_and_then_stays(opened):
    def paper() -> str:
        return opened.evaluate("getComputedStyle(document.body).backgroundColor")

    button = opened.locator("#theme")
    first, pressed = paper(), button.get_attribute("aria-pressed")
    button.click()
    second = paper()
    assert second != first
    assert button.get_attribute("aria-pressed") != pressed
    opened.reload()
    assert paper() == second
    color = "getComputedStyle(document.querySelector('figure svg text')).fill"
    assert opened.evaluate(color) not in (first, second)


def test_nothing_is_wider_than_the_screen_and_wide_things_scroll_by_themselves(opened):
    widths = opened.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]
    for scroll in opened.locator(".scroll").all():
        assert scroll.get_attribute("tabindex") == "0"


def test_words_of_a_figure_are_at_least_7_pixels_high_and_inside_it(opened):
    found = opened.evaluate(
        """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
          const frame = svg.getBoundingClientRect();
          return [...svg.querySelectorAll("text")].map((text) => {
            const box = text.getBoundingClientRect();
            const scale = frame.width / svg.viewBox.baseVal.width;
            const inside = box.left >= frame.left - 2 && box.right <= frame.right + 2
              && box.top >= frame.top - 2 && box.bottom <= frame.bottom + 2;
            const size = parseFloat(getComputedStyle(text).fontSize) * scale;
            return { said: text.textContent, size, inside, svg: svg.getAttribute("aria-label") };
          });
        })"""
    )
    assert found
    assert [text for text in found if not text["inside"]] == []
    assert [text for text in found if text["size"] < 7] == []


def test_the_numbers_of_a_figure_unfold_by_keyboard(opened):
    summary = opened.locator("#matrices summary").first
    summary.focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#matrices details table").first.is_visible()


def test_axe_finds_nothing_wrong(opened, browser, shown):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    # The page's own policy lets no other script in.
    scheme = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    context = browser.new_context(
        bypass_csp=True,
        viewport=opened.viewport_size,
        color_scheme="dark" if scheme else "light",
    )
    page = context.new_page()
    page.goto((shown / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.Axe().run(page).response["violations"]
    context.close()
    assert [(fault["id"], fault["impact"], fault["nodes"][0]["html"]) for fault in found] == []
