"""The supply chain: what is installed along, its licences, known holes in it, and secrets.

Known holes are asked of the service that `pip-audit` asks, if it is installed and the service
answers; otherwise the row says that nobody has asked, and what was checked in its place: that the
installed files are those that the packages list, and that no two packages contradict each other.

    python tests/stress/torture_supply.py
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from dependency_licences import PAGE, ROOT, Dependency, missing_and_installed, render
from torture_report import Row, end_part, options

_SECRETS = {
    "a private key": r"-----BEGIN (?:[A-Z ]+ )?PRIVATE KEY",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{22,})\b",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "a Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}|\bAIza[0-9A-Za-z_-]{35}\b",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.",
    "a password in an address": r"\b[a-z][a-z+]+://[^\s/:@\"'{}]+:[^\s/:@\"'{}]+@",
    "a secret given a value": (
        r"(?i)\b(?:password|passwd|secret|api_?key|access_?token|auth_?token)\b"
        r"\s*[:=]\s*[\"'][^\"'\s]{8,}[\"']"
    ),
}

_KNOWN_HOLE = "jinja2==2.4.1"
"""What a service that is there must know something of (CVE-2016-10745 and others)."""

_GENERAL = {"cvxopt": "GPL-3.0", "ecos": "GPL-3.0", "quadprog": "GPL-2.0"}
"""Packages under the GPL that dependencies may ask for; where they are not installed, nobody else
would say so."""

_EXECUTABLE = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib", ".npy", ".so", ".exe", ".whl")
"""Files that carry code, or may when they are loaded."""


def licences(installed: list[Dependency], missing: dict[str, str]) -> Iterator[Row]:
    """Look for the GPL among the runtime dependencies, and for packages that say nothing."""
    general = [f"{one.name} {one.version}: {one.licence}" for one in installed if one.general]
    lesser = [f"{one.name} ({one.licence})" for one in installed if one.lesser]
    stated = f"none under the GPL or AGPL; under the LGPL: {', '.join(lesser) or 'none'}"
    yield _row("licences of the runtime dependencies", len(installed), general, stated)
    silent = [f"{one.name} {one.version}" for one in installed if one.licence == "not stated"]
    yield _row("they state a licence", len(installed), silent, "all do")
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == render(installed)
    stale = [] if current else ["run python tests/stress/dependency_licences.py"]
    yield _row("docs/project/licences.md lists them", 1, stale, "as they are installed here")
    asked = [f"{name} (for {by})" for name, by in sorted(missing.items())]
    not_seen = f"{', '.join(asked)}: not looked at" if asked else "nothing"
    hidden = [f"{name}: {_GENERAL[name]}" for name in sorted(missing) if name in _GENERAL]
    yield _row("asked for, but not installed here", max(1, len(asked)), hidden, not_seen)


def holes(installed: list[Dependency]) -> Row:
    """Ask for known holes in the runtime dependencies, if there is anybody to ask."""
    what = "known vulnerabilities (pip-audit)"
    if importlib.util.find_spec("pip_audit") is None:
        return Row(what, 0, 0, "NOT CHECKED: pip-audit is not installed")
    pins = "\n".join(f"{one.name}=={one.version.split('+')[0]}" for one in installed)
    if not (known := _ask(_KNOWN_HOLE)) or not known[0].get("vulns"):
        why = f"no service answers that knows of the holes in {_KNOWN_HOLE}"
        return Row(what, 0, 0, f"NOT CHECKED: {why}")
    audited = _ask(pins) or []
    found = [
        f"{one['name']} {one['version']}: {hole['id']} (fixed in "
        f"{', '.join(hole['fix_versions']) or 'no version'})"
        for one in audited
        for hole in one.get("vulns", [])
    ]
    skipped = [one["name"] for one in audited if "skip_reason" in one]
    unknown = f"; not known to the service: {', '.join(skipped)}" if skipped else ""
    return _row(what, len(audited), found, f"none is known{unknown}")


def _ask(pins: str) -> list[dict[str, Any]] | None:
    """Return what the service says of pinned packages; None if it does not answer."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--format", "json"]
    answer = subprocess.run(
        [*command, "--progress-spinner", "off", "-r", "/dev/stdin"],
        input=pins,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return json.loads(answer.stdout)["dependencies"]
    except (ValueError, KeyError):
        return None


def untouched(installed: list[Dependency]) -> Row:
    """Compare every installed file with the hash that its package lists."""
    changed: list[str] = []
    count = 0
    for one in installed:
        for file in distribution(one.name).files or []:
            if file.hash is None or file.hash.mode != "sha256":
                continue
            count += 1
            path = Path(str(file.locate()))
            if not path.is_file() or _listed_hash(path) != file.hash.value:
                changed.append(f"{one.name}: {file}")
    return _row("installed files have the hashes of their packages", count, changed, "unaltered")


def consistent() -> Row:
    """Ask pip whether what is installed fits together."""
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    said = answer.stdout.strip().splitlines()
    return Row("pip check", 1, 1, "; ".join(said) or "nothing broken")


def secrets(every: int) -> Iterator[Row]:
    """Look for files that may hold code in what the project tracks, and for secrets in some.

    Args:
        every: Look for secrets in every so many files.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    found: list[str] = []
    for name in names[::every]:
        text = (ROOT / name).read_bytes().decode("utf-8", errors="replace")
        for what, pattern in _SECRETS.items():
            for hit in re.finditer(pattern, text):
                line = text.count("\n", 0, hit.start()) + 1
                found.append(f"{name}:{line} looks like {what}")
    yield _row(
        "tracked files without secrets", len(names[::every]), found, "none found, by pattern"
    )
    code = [name for name in names if name.endswith(_EXECUTABLE)]
    yield _row("tracked files without pickles or binaries", len(names), code, "none")


def _listed_hash(path: Path) -> str:
    """Return a file's SHA-256 in the form of a package's list."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _row(what: str, cases: int, wrong: Iterable[str], right: str) -> Row:
    found = tuple(wrong)
    return Row(what, cases, cases - len(found), f"{len(found)} found" if found else right, found)


def main() -> None:
    """Look at everything."""
    given = options(__doc__ or "").parse_args()
    started = time.monotonic()
    missing, installed = missing_and_installed()
    rows = [*licences(installed, missing), *secrets(1 if given.scale == "full" else 20)]
    rows.append(consistent())
    if given.scale == "full":
        rows += [holes(installed), untouched(installed)]
    seconds = time.monotonic() - started
    checked = all(row.ok for row in rows if row.cases)  # what was not checked says so
    more = {"missing": missing, "installed": len(installed)}
    end_part(given.out, "supply", rows, seconds, ok=checked, **more)


if __name__ == "__main__":
    main()
