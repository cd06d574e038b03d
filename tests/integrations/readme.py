"""Following the README of an export, as its reader would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import Tensor


def run_readme(folder: Path) -> dict[str, Any]:
    """Run the lines of an export's README, and return what they define."""
    code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert code
    namespace: dict[str, Any] = {}
    exec(code[1].replace('Path(".")', f"Path({str(folder)!r})"), namespace)
    return namespace


def answered(folder: Path, text: str, pair: str | None = None) -> Tensor:
    """Let the lines of an export's README answer."""
    return run_readme(folder)["answer"](text, pair)
