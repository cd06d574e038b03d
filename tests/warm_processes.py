"""Programs in processes of their own that begin with the package imported.

Importing torch, transformers and Avalanche takes seconds, and a small command less than one. A
server imports all once for all workers of a test run, and forks a process for each program, with
arguments, variables and streams of its own. All share the server's seed of string hashes, which is
another than this process's. A test of what happens at import (time, warnings, variables that are
read then) starts Python itself.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

ROOT = Path(__file__).parents[1]
OPTIONAL = "cl_graft.integrations"
"""The part of the package that needs libraries which may be missing."""

LAZY = (
    "matplotlib.backends.backend_agg",
    "torch.utils.tensorboard",
    "transformers.models.bert.modeling_bert",
)
"""What most commands import while they run."""

_SERVERS: dict[str, TextIO] = {}
"""Connections to servers, by what these have imported."""

_STARTED: list[subprocess.Popen[bytes]] = []
"""Servers that this process started; they end when nobody is connected any more."""

_PATIENCE_SECONDS = 1.0


def run_warm(
    arguments: Sequence[str], *, stdin: str = "", env: Mapping[str, str], imported: str = "cl_graft"
) -> subprocess.CompletedProcess[str]:
    """Run what ``python ARGUMENTS`` would run, and return its exit code and output.

    It begins with ``"cl_graft"``, which is all of the package, or ``"torch"`` imported, and has no
    environment variables but those of `env`.
    """
    if imported not in _SERVERS:
        _SERVERS[imported] = _connect(imported)
        atexit.register(_SERVERS[imported].close)
    server = _SERVERS[imported]
    with tempfile.TemporaryDirectory() as streams:
        names = [os.path.join(streams, name) for name in ("in", "out", "err")]
        for name, text in zip(names, (stdin, "", ""), strict=True):
            Path(name).write_text(text, encoding="utf-8")
        request = {
            "arguments": list(arguments),
            "streams": names,
            "env": dict(env),
            "folder": os.getcwd(),
        }
        server.write(json.dumps(request) + "\n")
        server.flush()
        code = server.readline()
        assert code, "the server of warm processes ended; its error stands above"
        out, err = (Path(name).read_text(encoding="utf-8") for name in names[1:])
    return subprocess.CompletedProcess(list(arguments), int(code), out, err)


def printed_by(
    code: str, *arguments: str, imported: str = "cl_graft", env: Mapping[str, str] | None = None
) -> str:
    """Run code as `run_warm` does, with variables beside this process's, and return its output."""
    done = run_warm(["-c", code, *arguments], env={**os.environ, **(env or {})}, imported=imported)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _connect(imported: str) -> TextIO:
    """Connect to the server of this test run, and start it if no worker has yet."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")[:12] or str(os.getpid())
    address = os.path.join(tempfile.gettempdir(), f"warm-{imported}-{run}")
    with socket.socket(socket.AF_UNIX) as connection, _locked(address):
        try:
            connection.connect(address)
        except OSError:
            _start_server(imported, address)
            connection.connect(address)
        return connection.makefile("rw", encoding="utf-8")


def _start_server(imported: str, address: str) -> None:
    """Start a server and wait until it can be connected to, which is before it imports."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__)), imported, address],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    _STARTED.append(server)
    assert server.stdout is not None
    with server.stdout as told:
        assert told.readline(), "the server of warm processes did not start"


@contextmanager
def _locked(address: str) -> Iterator[None]:
    """Keep others from connecting to, starting or ending the server of an address."""
    with open(f"{address}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _serve(imported: str, address: str) -> None:
    """Answer each connection in a process of its own, until none is left."""
    with socket.socket(socket.AF_UNIX) as listener:
        Path(address).unlink(missing_ok=True)
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)  # noqa: T201
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on
        _import(imported)
        gc.freeze()  # a collection in a forked process would copy all of it
        answering: set[int] = set()
        while True:
            if _is_asked(listener, _PATIENCE_SECONDS):
                connection, _ = listener.accept()
                child = os.fork()
                if child == 0:
                    _answer(connection)
                answering.add(child)
                connection.close()
            answering = {child for child in answering if not os.waitpid(child, os.WNOHANG)[0]}
            if not answering:
                with _locked(address):
                    if not _is_asked(listener, 0):
                        Path(address).unlink()
                        Path(f"{address}.lock").unlink()
                        return


def _import(imported: str) -> None:
    root = import_module(imported)
    if imported == "cl_graft":
        for module in pkgutil.walk_packages(root.__path__, "cl_graft."):
            if not module.name.startswith(OPTIONAL) and not module.name.endswith("__main__"):
                import_module(module.name)
        for name in LAZY:
            import_module(name)


def _is_asked(listener: socket.socket, seconds: float) -> bool:
    """Return whether somebody connects, waiting for so long."""
    return bool(select.select([listener], [], [], seconds)[0])


def _answer(connection: socket.socket) -> NoReturn:
    """Fork a process for each request of a connection; in that process, run what it asks for."""
    with connection, connection.makefile("rw", encoding="utf-8") as requests:
        for line in requests:
            child = os.fork()
            if child == 0:
                _end(_code_of(json.loads(line)))
            _, status = os.waitpid(child, 0)
            requests.write(f"{os.waitstatus_to_exitcode(status)}\n")
            requests.flush()
    os._exit(0)


def _code_of(request: dict[str, Any]) -> int:
    """Run what a request asks for, and return the exit code that Python would end with."""
    try:
        _run(**request)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """End the process, without taking apart what it has imported, which takes long."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(arguments: list[str], streams: list[str], env: dict[str, str], folder: str) -> None:
    """Take over the streams, variables, folder and program that a request names."""
    for number, name in enumerate(streams):
        opened = os.open(name, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    encoding, _, errors = env.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdout.reconfigure(encoding=encoding, errors=errors or "strict")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    kind, *rest = arguments
    is_file = kind not in ("-c", "-m")
    sys.path[0] = str(Path(kind).parent) if is_file else ""
    own = env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in own if folder and folder not in sys.path]
    sys.argv = arguments
    if is_file:
        runpy.run_path(kind, run_name="__main__")
        return
    program = rest.pop(0)
    sys.argv = [kind, *rest]
    if kind == "-c":
        exec(program, {"__name__": "__main__"})
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
