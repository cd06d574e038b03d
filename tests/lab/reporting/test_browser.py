"""The page in a real browser: sorting, widths, keyboard, accessibility, no requests.

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


def test_nothing_is_wider_than_the_screen_and_wide_things_scroll_by_themselves(opened):
    widths = opened.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]
    for scroll in opened.locator(".scroll").all():
        assert scroll.get_attribute("tabindex") == "0"


def test_unpicked_strategies_leave_tables_and_figures_by_keyboard(opened):
    opened.locator("#filter summary").focus()
    opened.keyboard.press("Enter")
    boxes = opened.locator("#filter input[name=strategy]")
    labels = opened.locator("#filter label:has(input[name=strategy])").all_text_contents()
    names, count = [label.strip() for label in labels], boxes.count()
    boxes.first.focus()
    opened.keyboard.press("Space")
    own = opened.locator('main [data-strategy="0"]')
    assert own.count() > 10
    assert not any(part.is_visible() for part in own.all())
    heads = opened.locator("#comparison table.sortable").first.locator("tbody th").all()
    rows = [one for one in heads if one.is_visible()]
    assert {row.inner_text() for row in rows} == set(names[1:])
    assert f"{count - 1} of {count} strategies" in opened.locator("#told").inner_text()
    opened.locator("#filter button[value=none]").press("Enter")
    assert not opened.locator("#comparison tbody th").first.is_visible()
    opened.locator("#filter button[value=all]").press("Enter")
    assert opened.locator('#comparison tr[data-strategy="0"]').first.is_visible()


def test_without_its_script_the_page_shows_everything(browser, shown):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((shown / "report.html").as_uri())
    assert not page.locator("#filter").is_visible()
    for part in ("tr[data-strategy]", "figure[data-strategy]"):
        found = page.locator(f"main section {part}:not(details *)")
        assert found.count() > 3
        assert all(one.is_visible() for one in found.all())
    context.close()


def test_axe_finds_nothing_wrong(opened, browser, shown):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    # The page's own policy lets no other script in.
    scheme = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    context = browser.new_context(
        bypass_csp=True, viewport=opened.viewport_size, color_scheme="dark" if scheme else "light"
    )
    page = context.new_page()
    page.goto((shown / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.Axe().run(page).response["violations"]
    context.close()
    assert [(fault["id"], fault["impact"], fault["nodes"][0]["html"]) for fault in found] == []
