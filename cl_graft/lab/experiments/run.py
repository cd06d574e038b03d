"""A run: one strategy with one seed on one stream, evaluated after every task.

Everything is written as soon as it is known. A run that failed or was killed resumes, and ends on
the bits of a run that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_graft.data import TextTask
from cl_graft.errors import InputError
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.resume import find_checkpoint
from cl_graft.lab.experiments.run_setup import set_up
from cl_graft.lab.experiments.run_writers import draw_config
from cl_graft.lab.experiments.stream_run import StreamRun
from cl_graft.lab.results.run_results import RunResult, command
from cl_graft.runtime.devices import explain_slow_precision, pick_device
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.progress import Progress, Step, silent
from cl_graft.runtime.seeding import lock_generators
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig, make_config
from cl_graft.settings.data_report import cut_note
from cl_graft.settings.tasks import load_tasks, refuse_other_data
from cl_graft.storage import explain_write_errors, only_writer
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.checkpoint_files import FileCheckpoints
from cl_graft.strategies.registry import find_strategy
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger

run_folder = folders.run_folder


@lock_generators()
def run(
    config: ExperimentConfig | Mapping[str, Any] | Path | str,
    *,
    strategy: str | None = None,
    seed: int | None = None,
    out: Path | str,
    progress: Progress = silent,
    cache: DirectoryCache | None = None,
    tasks: Sequence[TextTask] | None = None,
    started_by: str | None = None,
    stop: Stop | None = None,
    tuning: Mapping[str, Any] | None = None,
) -> RunResult:
    """Run a strategy on the stream of a config, into ``OUT/<strategy>/seed<k>/``.

    A run of the same config that is in the folder already is resumed, or read if it is finished.
    Runs in several threads of a process wait for each other, as they share torch's generators.

    Args:
        config: The settings: a config, settings by part, or the path of a YAML file.
        strategy: The strategy's name; None means the first of the config.
        seed: Every random choice is a function of it; None means the first of the config.
        out: Folder OUT.
        progress: Called after every step of every phase.
        cache: Keeps dense runs and rankings; None means ``OUT/cache``.
        tasks: The tasks of the config, if they are loaded already.
        started_by: Command that began the run, for the results; None means this process's.
        stop: Asked after every step whether to stop.
        tuning: How values of the config were tuned, for the results.

    Raises:
        InputError: If the config asks for what a comparison does, the folder holds a run with
            another config or other data or something else, another process runs there, or model or
            data cannot be used; nothing is computed then.
        CannotWrite: If the disk is full or read-only; what was saved before is whole.
        OutOfMemory: If a phase needs more memory than there is; the phase and task are named.
        DivergedError: If a loss, a score or a weight is NaN or infinite.
        Stopped: If `stop` asked for it.
    """
    config = make_config(config)
    asked = config.comparison
    strategy = asked.strategies[0] if strategy is None else strategy
    seed = asked.seeds[0] if seed is None else seed
    if type(seed) is not int or seed < 0:
        raise InputError(f"a seed must be a whole number of at least 0, got {seed!r}")
    if asked.tune or asked.bytes_per_task is not None or asked.orders != 1 or asked.sweep:
        raise InputError(
            "tune, bytes_per_task, orders and sweep are of a comparison, and this is one run with "
            "its settings as they are: cl-graft compare takes them"
        )
    method = find_strategy(strategy)
    # Settings that a strategy fixes follow from its name, so they are not written down.
    own = config.with_values(method.fixed_config) if method.fixed_config else config
    folder, stop = run_folder(out, strategy, seed), stop or Stop()
    explained = explain_write_errors(folder, denied=False)  # also of writers such as TensorBoard's
    with only_writer(folder), folders.add_resume_hint(folder, config), explained:
        if (done := folders.find_finished(folder, config)) is not None:
            now = load_tasks(config.stream, seed=seed) if tasks is None else tasks
            refuse_other_data(done, now)
            folders.delete_leftovers(folder)
            folders.finish(folder)
            progress(Step("reused", 1, 1, "", strategy, seed))
            return done
        folders.refuse_links(folder)
        with folders.discard_empty_run(folder):
            device = pick_device(config.model.device)
            tasks = load_tasks(config.stream, seed=seed) if tasks is None else tasks
            with in_phase("loading"):
                setup = set_up(own, method, tasks, seed=seed, device=device)
            begun = folders.read_config_file(folder) or {}
            record = setup.record
            record.config = config.shared_values()
            record.command = begun.get("command") or started_by or command()
            record.processes = begun.get("processes", 0) + 1
            record.tuning = begun.get("tuning") or dict(tuning or {})
            checkpoints = FileCheckpoints(
                folder / folders.CHECKPOINTS,
                seconds=config.output.checkpoint_seconds,
                steps=config.output.checkpoint_steps,
                stop=stop,
            )
            resumed = find_checkpoint(folder, method, record, checkpoints)
            origin = {
                "strategy": method.name,
                "seed": seed,
                "command": record.command,
                "processes": record.processes,
                "tuning": record.tuning,
            }
            folders.write_config(folder, {**origin, **config.shared_values()})
            slow = explain_slow_precision(config.model.precision, device)
            if note := "; ".join(filter(None, [cut_note(record.data), slow])):
                progress(Step("note", 1, 1, "", method.name, seed, note))
            curves = OncePerStepTensorboardLogger(
                folders.curves_folder(folder), resume=resumed is not None
            )
            cache = DirectoryCache(Path(out) / folders.CACHE) if cache is None else cache
            try:
                if resumed is None:
                    draw_config(record, curves)
                learning = StreamRun(
                    own, method, setup, folder, cache, curves, progress, checkpoints, resumed
                )
                del resumed  # maybe as large as the model
                with stop.saving():
                    result = learning.learn_stream()
            finally:
                curves.writer.close()
            folders.finish(folder)
            return result
