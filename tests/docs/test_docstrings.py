"""Every public name is documented, and the examples in docstrings do what they say."""

import dataclasses
import doctest
import importlib
import inspect
import re
from types import ModuleType

import pytest
from docs.test_reference import load_extension

import cl_graft
from cl_graft.runtime.settings import list_fields

MODULES = [
    name for names in load_extension("documented_modules").MODULES.values() for name in names
]
USED = load_extension("documented_modules").pages_that_use()


def public_things(module: ModuleType):
    """Public names of a module that are classes or functions, as (name, thing)."""
    for name in load_extension("documented_modules").names_of_module(module.__name__):
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield f"{module.__name__}.{name}", thing


def members(name, thing):
    """What a public class defines itself and shows: methods and properties."""
    fields = getattr(thing, "__dataclass_fields__", {})  # a default may be a function
    for attribute, value in vars(thing).items():
        if attribute.startswith("_") or attribute in fields:
            continue
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value) or isinstance(value, property):
            yield f"{name}.{attribute}", value


def undocumented(module: ModuleType) -> list[str]:
    missing = []
    for name, thing in public_things(module):
        said = thing.__doc__ or ""
        if not said.strip() or said.startswith(f"{thing.__name__}("):  # a dataclass's own
            missing.append(name)
        if not inspect.isclass(thing):
            continue
        missing += [of for of, value in members(name, thing) if not (value.__doc__ or "").strip()]
        if dataclasses.is_dataclass(thing):
            # Settings of a method say in their metadata what they are.
            fields = [field.name for field in dataclasses.fields(thing) if not field.metadata]
            public = [field for field in fields if not field.startswith("_")]
            if "Attributes:" in said:
                missing += [f"{name}.{field}" for field in public if f"{field}:" not in said]
    return missing


def public_things_of_all_modules():
    """The public things of every module of the reference, as (full name, thing)."""
    for name in MODULES:
        yield from public_things(importlib.import_module(name))


def test_every_public_name_of_a_module_is_documented():
    for name in MODULES:
        module = importlib.import_module(name)
        assert (module.__doc__ or "").strip(), name
        assert undocumented(module) == []


def test_the_arguments_that_a_docstring_lists_are_those_of_the_function_or_class():
    for full, thing in public_things_of_all_modules():
        said = inspect.getdoc(thing) or ""
        if "\nArgs:\n" not in said or (inspect.isclass(thing) and not list_fields(thing)):
            assert not list_fields(thing), full
            continue
        listed = said.split("\nArgs:\n")[1].split("\n\n")[0]
        for argument in inspect.signature(thing).parameters:
            assert re.search(rf"^ +\**{argument}: ", listed, re.MULTILINE), f"{full}: {argument}"


def with_examples():
    """Every documented class or function whose docstring holds examples, by its full name."""
    for full, thing in public_things_of_all_modules():
        if ">>>" in (thing.__doc__ or ""):
            yield full, thing


EXAMPLES = dict(with_examples())


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_examples_of_a_docstring_do_what_they_say(name, own_registries):
    thing = EXAMPLES[name]
    scope = dict(vars(importlib.import_module(thing.__module__)))
    found = doctest.DocTestFinder(recurse=False).find(thing, name, globs=scope)
    examples = [test for test in found if test.examples]
    assert examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    said: list[str] = []
    for test in examples:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_every_name_of_the_package_itself_has_an_example():
    with_docstring = {name.rpartition(".")[2] for name in EXAMPLES}
    assert set(cl_graft.__all__) - with_docstring - set(USED) == set()
