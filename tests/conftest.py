"""What every test shares: the way to torchvision, and a count of the tests on real data.

Tests on real data find it through the environment variables CL_GRAFT_DATA and CL_GRAFT_MODELS
only. They use the fixtures `real_data` and `real_models`, or a `skipif` whose reason names the
variable; the last lines of a test run say how many of them ran.
"""

import os
from pathlib import Path

import pytest

from cl_graft.torchvision_ops import declare_missing_operators

declare_missing_operators()

_VARIABLES = ("CL_GRAFT_DATA", "CL_GRAFT_MODELS")
_FIXTURES = {"real_data", "real_models"}


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with one sub-folder a real task."""
    return _folder("CL_GRAFT_DATA")


@pytest.fixture(scope="session")
def real_models() -> Path:
    """Folder with one sub-folder a real checkpoint."""
    return _folder("CL_GRAFT_MODELS")


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reasons = [str(mark.kwargs.get("reason", "")) for mark in item.iter_markers("skipif")]
        named = any(variable in reason for variable in _VARIABLES for reason in reasons)
        if named or _FIXTURES & set(getattr(item, "fixturenames", ())):
            item.user_properties.append(("real_data", True))


def pytest_terminal_summary(terminalreporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport)
    ]
    skipped = {
        report.nodeid
        for report in reports
        if report.skipped and any(name in str(report.longrepr) for name in _VARIABLES)
    }
    ran = {
        report.nodeid
        for report in reports
        if ("real_data", True) in map(tuple, report.user_properties)
    } - {report.nodeid for report in reports if report.skipped}
    because = "" if not skipped else " (CL_GRAFT_DATA or CL_GRAFT_MODELS is not set)"
    terminalreporter.write_line(f"real data: {len(ran)} tests ran, {len(skipped)} skipped{because}")
