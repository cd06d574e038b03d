"""Registries hold what this package and installed packages register."""

import logging
import sys

import pytest

from cl_graft.errors import InputError
from cl_graft.runtime.registry import Registry


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module with an entry point of the group ``shapes``."""

    def install(module, source, *, entry_point):
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[shapes]\nsquare = {entry_point}\n")
        (tmp_path / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def test_the_first_lookup_loads_what_is_often_used_and_other_names_load_the_rest():
    registry = Registry(
        "shape",
        group="shapes",
        load_own=lambda: registry.register("circle", 0),
        load_others=lambda: registry.register("square", 4),
    )
    assert registry.find("circle") == 0
    assert "square" not in registry._entries
    assert registry.find("square") == 4
    assert list(registry) == ["circle", "square"]


def test_an_installed_package_registers_through_its_entry_point(install, monkeypatch):
    import cl_graft.runtime.registry as module

    registry = Registry("shape", group="shapes")
    monkeypatch.setattr(module, "SHAPES", registry, raising=False)
    source = "from cl_graft.runtime import registry\nregistry.SHAPES.register('square', 4)\n"
    install("shapes_of_others", source, entry_point="shapes_of_others")
    assert registry["square"] == 4


def test_a_broken_entry_point_is_named_and_takes_nothing_else_away(install, caplog):
    install("broken_shapes", "raise RuntimeError('no compass')", entry_point="broken_shapes:Square")
    registry = Registry("shape", group="shapes", load_own=lambda: registry.register("circle", 0))
    with caplog.at_level(logging.WARNING):
        assert dict(registry) == {"circle": 0}
    assert "'square' (broken_shapes:Square) of the package broken_shapes" in caplog.text
    with pytest.raises(InputError, match=r"unknown shape 'square'.*RuntimeError: no compass"):
        registry.find("square")


def test_a_load_that_was_interrupted_is_made_again_at_the_next_lookup():
    tries = iter([KeyboardInterrupt, None])

    def load_own():
        registry.register("square", 4)
        if error := next(tries):
            raise error
        registry.register("triangle", 3)

    registry = Registry("shape", group="shapes", load_own=load_own)
    registry.register("circle", 0)
    with pytest.raises(KeyboardInterrupt):
        registry.find("square")
    assert dict(registry) == {"circle": 0, "square": 4, "triangle": 3}
    for name in ("circle", "square"):
        with pytest.raises(ValueError, match=f"a shape '{name}' is registered already"):
            registry.register(name, 1)
