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
          if (!frame.width) return [];  // of a seed that is not picked
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
    head = '[data-seed=""] table.sortable tbody th'
    rows = [one for one in opened.locator(f"#comparison {head}").all() if one.is_visible()]
    assert {row.inner_text() for row in rows} == set(names[1:])
    assert f"{count - 1} of {count} strategies" in opened.locator("#told").inner_text()
    opened.locator("#filter button[value=none]").press("Enter")
    assert not opened.locator("#comparison [data-seed=''] tbody th").first.is_visible()
    opened.locator("#filter button[value=all]").press("Enter")
    assert opened.locator('#comparison tr[data-strategy="0"]').first.is_visible()


def test_a_picked_seed_stands_in_place_of_all(opened):
    opened.locator("#filter summary").click()
    opened.locator("#filter input[name=seed]").first.focus()
    opened.keyboard.press("ArrowRight")
    seed = opened.locator("#filter input[name=seed]:checked").get_attribute("value")
    views = opened.locator("#comparison [data-seed]")
    seen = [view.get_attribute("data-seed") for view in views.all() if view.is_visible()]
    assert seen == [seed]
    assert opened.locator(f"#stream [data-seed='{seed}'] svg").first.is_visible()
    assert f"seed {seed}" in opened.locator("#filter summary").inner_text()


def test_pointing_at_a_curve_tells_the_strategy_the_task_and_the_value(opened):
    svg = opened.locator("#stream svg").first
    svg.scroll_into_view_if_needed()
    found = svg.evaluate(
        """(svg) => {
          const use = svg.querySelector('[id$="part0-mark"] use').getBoundingClientRect();
          return [use.x + use.width / 2, use.y + use.height / 2];
        }"""
    )
    opened.mouse.move(*found)
    said = opened.locator("#tip").inner_text()
    name = opened.locator("#filter label").first.text_content().strip()
    first = opened.locator("#stream table tbody tr").first.locator("td").first.text_content()
    task = opened.locator("#stream table thead th").nth(1).text_content()
    assert said.startswith(f"{name}, after {task.rstrip('↕').strip()}: {first}")
    opened.mouse.move(1, 1)
    assert not opened.locator("#tip").is_visible()


def test_without_its_script_the_page_shows_everything(browser, shown):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((shown / "report.html").as_uri())
    assert not page.locator("#filter").is_visible()
    for part in ("tr[data-strategy]", "figure[data-strategy]", "[data-seed]"):
        found = page.locator(f"main section {part}:not(details *)")
        assert found.count() > 3
        assert all(one.is_visible() for one in found.all())
    assert page.locator("#stream svg title").count() > 3
    context.close()


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
