"""A run of the `TASKS` of a module with its `settings`, and the bank of it."""

import shutil

import pytest
from tiny_runs import tiny_run

from cl_graft.banks.open_bank import open_bank


@pytest.fixture(scope="module")
def run(request, tiny_bert, settings, tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("run"), tiny_bert, request.module.TASKS, **settings)


@pytest.fixture
def bank(run, tmp_path):
    return shutil.copytree(run / "bank", tmp_path / "bank")


@pytest.fixture(scope="module")
def opened(run):
    return open_bank(run)
