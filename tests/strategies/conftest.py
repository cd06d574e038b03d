"""Small runs that several tests look at, each done once a session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import Runs, without_dropout


@pytest.fixture(scope="session")
def still_bert(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny BERT, without dropout."""
    return without_dropout(tiny_bert, tmp_path_factory.mktemp("still") / "bert")


@pytest.fixture(scope="session")
def small_runs(still_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of five steps a task: enough to move every weight."""
    return Runs(still_bert, tmp_path_factory.mktemp("small_runs"))


@pytest.fixture
def kept_strategy(
    small_runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Any]:
    """Run a strategy and return it, not its results.

    `before` gets the strategy before it learns.
    """
    from cl_graft.lab.experiments import run as run_module
    from cl_graft.strategies.registry import build_strategy

    runs = Runs(small_runs.model, tmp_path, drawn=small_runs.drawn)

    def learn(
        name: str,
        *,
        before: Callable[[Any], None] = lambda strategy: None,
        run_settings: dict[str, Any] | None = None,
        **own: Any,
    ) -> Any:
        kept = []

        def build(*given: Any, **settings: Any) -> Any:
            kept.append(build_strategy(*given, **settings))
            before(kept[-1])
            return kept[-1]

        monkeypatch.setattr(run_module, "build_strategy", build)
        runs(name, own=own, **(run_settings or {}))
        return kept[-1]

    return learn
