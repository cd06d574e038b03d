"""Pictures of a report in a real browser, as wide as a desktop and as a phone, light and dark.

    python benchmarks/screenshots.py runs/baselines --out docs/pictures

makes the report of a run or a comparison and takes ``report-desktop-light.png``, ``-dark``,
``report-phone-light.png`` and ``-dark``: three parts of the page (SECTIONS), side by side, as a
reader sees them who scrolls there, and points at a curve. Needs
``pip install 'cl-graft[browser]'`` and a Chromium: that of playwright, or the one that the
environment variable CL_GRAFT_CHROMIUM names.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from cl_graft.lab.reporting.page import make_report

VIEWS = {"desktop": (1280, 860), "phone": (390, 844)}
SECTIONS = {
    "desktop": ("verdict", "stream", "errors"),
    "phone": ("verdict", "matrices", "errors"),
}
COLOURS = 128
"""Of the stored pictures: nothing that one sees is lost, and three quarters of the bytes."""


def main() -> None:
    """Make the report, and take the pictures."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="runs, or outputs of comparisons")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        page = make_report(arguments.runs, out=Path(place) / "report").page
        program = os.environ.get("CL_GRAFT_CHROMIUM") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for view in VIEWS:
            for scheme in ("light", "dark"):
                taken = take(browser, page, view, scheme)
                path = arguments.out / f"report-{view}-{scheme}.png"
                taken.quantize(COLOURS).save(path, optimize=True)
                sys.stdout.write(f"{path}: {taken.width} x {taken.height}\n")
        browser.close()


def take(browser: Browser, page: Path, view: str, scheme: str) -> Image.Image:
    """Take one screen for each section, and put them side by side."""
    width, height = VIEWS[view]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    opened = context.new_page()
    opened.goto(page.resolve().as_uri())
    screens: list[Image.Image] = []
    for name in SECTIONS[view]:
        opened.locator(f"#{name}").evaluate("one => one.scrollIntoView()")
        if name == "stream":  # point at the second task of the first curve
            opened.locator("#stream svg [id$=part0-mark] use").nth(1).hover(force=True)
        screens.append(Image.open(io.BytesIO(opened.screenshot())).convert("RGB"))
    context.close()
    joined = Image.new("RGB", (len(screens) * width, height))
    for place, screen in enumerate(screens):
        joined.paste(screen, (place * width, 0))
    return joined


if __name__ == "__main__":
    main()
