"""A sidebar that opens the branch of the page alone.

The theme lists every page in the sidebar of every page. With hundreds of pages that takes half of
the time of a build, and most of the bytes of a page.
"""

from __future__ import annotations

from functools import partial
from typing import Any


def setup(app: Any) -> dict[str, object]:
    """Register with Sphinx: replace the function by which the theme lists pages."""

    def collapse(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        del app, page, template, doctree
        if "toctree" in context:
            context["toctree"] = partial(_list_collapsed, context["toctree"])

    app.connect("html-page-context", collapse, priority=400)  # before the theme's
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _list_collapsed(toctree: Any, **options: Any) -> str:
    return toctree(**{**options, "collapse": True})
