"""Expressions in which a claim names its number: arithmetic on quantities, and nothing else.

`value("grafting") / value("fine-tuning")` is one. They look like Python, but only what stands here
is computed: an expression cannot do anything but compare stored numbers.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from inspect import isfunction
from typing import Any

from papers.claims import quantities
from papers.claims.view import View

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
QUANTITIES = {
    name: function
    for name, function in vars(quantities).items()
    if isfunction(function) and function.__module__ == quantities.__name__ and name[0] != "_"
}
"""What `papers.claims.quantities` computes, by name."""

_PLAIN: Mapping[str, Callable[..., Any]] = {"abs": abs, "max": max, "min": min}


def compute_number(expression: str, view: View) -> float:
    """Compute an expression on the numbers of a view.

    Args:
        expression: Numbers and strings, ``learned`` (the localizer of the results), the functions
            of `quantities`, ``abs``, ``max``, ``min``, and + − × ÷.
        view: The numbers.

    Raises:
        ValueError: If there is anything else in it.
        MissingMeasurement: If the view lacks a number.
    """
    return float(_compute(ast.parse(expression, mode="eval").body, view))


def _compute(node: ast.expr, view: View) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="learned"):
            return view.learned
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand, view)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_compute(left, view), _compute(right, view))
        case ast.Subscript(value=value, slice=ast.Constant(value=int(place))):
            return _compute(value, view)[place]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            given = [_compute(argument, view) for argument in args]
            named = {str(word.arg): _compute(word.value, view) for word in keywords}
            if name in QUANTITIES:
                return QUANTITIES[name](view, *given, **named)
            if name in _PLAIN:
                return _PLAIN[name](*given, **named)
    raise ValueError(f"a claim cannot compute {ast.unparse(node)}")
