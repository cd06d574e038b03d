"""Localizers of other packages and plain functions do what those of this package do."""

import importlib
import sys

import pytest
import torch
from localization.planted import planted_inputs
from own_registries import install_package
from small_tasks import MemoryCache, make_task, settings

from cl_graft.localization import LOCALIZERS, find_localizer, localize, register_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.run_context import RunContext
from cl_graft.strategies import grafting_methods
from cl_graft.strategies.registry import STRATEGIES

MODULE = """
from cl_graft.localization import register_localizer

@register_localizer(name="largest", source="a test", needs_gradients=False, needs_dense_run=False)
def largest(inputs, *, k, steps):
    return {name: value.float().abs() for name, value in inputs.base.items()}
"""


@pytest.fixture
def registry(monkeypatch):
    """The registry as it is before the first lookup of a process; what is added is taken away."""
    monkeypatch.setattr(LOCALIZERS, "_entries", dict(LOCALIZERS.items()))
    monkeypatch.setattr(LOCALIZERS, "_steps", [LOCALIZERS._load_entry_points])
    return LOCALIZERS


def install(folder, monkeypatch):
    """Install a package with a localizer, as in a new process."""
    group = "cl_graft.localizers"
    install_package(folder, "largest_package", MODULE, group=group, largest="largest_package")
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("largest_package", None)


def relative(inputs, *, k, steps):
    """Score by relative movement."""
    return {
        name: (inputs.tuned[name] - base).abs() / (base.abs() + 1e-3)
        for name, base in inputs.base.items()
    }


def test_a_localizer_of_an_installed_package_is_known_by_name(registry, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    inputs, _ = planted_inputs()
    found = localize(inputs, "largest", k=30).top(30)
    flat = torch.cat([value.reshape(-1).abs() for value in inputs.base.values()])
    assert sorted(found.index.tolist()) == sorted(flat.topk(30).indices.tolist())
    assert GraftingSettings(localizer="largest").localizer == "largest"
    assert "largest" in registry


def test_a_localizer_of_an_installed_package_is_an_ablation_of_comparisons(
    registry, tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch)
    # As in a new process, in which no strategy was looked up yet.
    monkeypatch.setattr(STRATEGIES, "_entries", {})
    monkeypatch.setattr(STRATEGIES, "_steps", [lambda: importlib.reload(grafting_methods)])
    assert "grafting_largest" in list(STRATEGIES)


def test_a_function_is_taken_where_a_name_is(registry):
    task, cache = make_task(), MemoryCache()
    plain = find_region(task, settings(localizer=relative), context=RunContext(cache))
    assert set(plain.passes) == {"dense", "localize"}
    assert len(plain.region) == round(0.05 * plain.region.layout.total)
    register_localizer(name="relative", source="a test")(relative)
    assert find_localizer(relative) is find_localizer("relative")
    named = find_region(task, settings(localizer="relative"), context=RunContext(cache))
    assert named.region == plain.region
    # Nothing says when code from outside changes, so its rankings are not cached.
    assert [key.split("-")[0] for key in cache.kept] == ["dense"]


def test_every_localizer_of_this_package_names_its_source():
    assert all("https://" in localizer.source for localizer in LOCALIZERS.values())
