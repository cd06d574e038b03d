"""Whoever takes a path takes it as a string, too."""

import importlib
import inspect

from docs.test_reference import load_extension

extension = load_extension("documented_modules")
MODULES = extension.MODULES


def _functions():
    """Every documented function and method that does not make a record of what was written."""
    for module in (name for names in MODULES.values() for name in names):
        for name in extension.names_of_module(module):
            thing = getattr(importlib.import_module(module), name)
            methods = vars(thing).items() if inspect.isclass(thing) else ()
            found = [(name, thing)] if inspect.isfunction(thing) else []
            found += [
                (f"{name}.{method}", getattr(own, "__func__", own))
                for method, own in methods
                if not method.startswith("_")
            ]
            yield from ((f"{module}.{full}", one) for full, one in found if inspect.isfunction(one))


FUNCTIONS = dict(_functions())


def test_a_path_may_be_a_string() -> None:
    for name, function in FUNCTIONS.items():
        parameters = inspect.signature(function).parameters.values()
        kinds = {p.name: str(p.annotation) for p in parameters if "Path" in str(p.annotation)}
        assert [one for one, kind in kinds.items() if "str" not in kind] == [], name


def test_the_functions_of_paths_are_among_them() -> None:
    assert "cl_graft.data.load.load_task" in FUNCTIONS
    assert len(FUNCTIONS) > 150
