"""Cases of a parametrized test that only the slow suite runs."""

import pytest


def slow(*cases):
    """Mark cases as slow: `parametrize("family", ["bert", *slow("gpt2", "t5")])`.

    A case is the value of one parameter, a tuple of those of several ones, or a `pytest.param`.
    """
    return [_marked(case) for case in cases]


def slow_but(fast, cases):
    """Mark all cases as slow but the fast ones: `parametrize("name", slow_but(FEW, ALL))`."""
    return [case if case in fast else _marked(case) for case in cases]


def _marked(case):
    if hasattr(case, "marks"):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
