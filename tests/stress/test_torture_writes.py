"""The calls that change files are counted, and a command is killed at them."""

import json
import os
from pathlib import Path

import pytest
from benchmark_scripts import run_script


def test_every_kind_of_call_below_the_folder_is_counted_and_kills(tmp_path):
    program = """
import os, signal, sys
from pathlib import Path
from write_points import trap

def change():
    Path("folder").mkdir()
    with open("file.tmp", "xb") as file:
        file.write(b"12345678")
        file.flush()
        os.fsync(file.fileno())
    os.replace("file.tmp", "file")
    Path("other").write_bytes(b"1")
    os.link("other", "twin")
    os.truncate("twin", 0)
    Path("file").unlink()
    Path("folder").rmdir()
    open("/dev/null", "wb").close()
    open("twin", "rb").close()

def child(at, calls):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    trap(Path.cwd(), at=at, tell=calls)
    change()
    os._exit(0)

here = Path.cwd()
log = os.open("../calls", os.O_WRONLY | os.O_CREAT)
assert child(None, lambda call: os.write(log, f"{call}\\n".encode())) == 0
calls = Path("../calls").read_text().splitlines()
for left in here.iterdir():
    left.unlink()
for at in range(len(calls)):
    assert child(at, None) == -signal.SIGKILL, at
    if calls[at] == "half of a write file.tmp":
        assert Path("file.tmp").read_bytes() == b"1234"
    for left in here.iterdir():
        left.rmdir() if left.is_dir() else left.unlink()
assert child(len(calls), None) == 0
print("\\n".join(calls))
"""
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "program.py").write_text(program)
    told = run_script(
        str(tmp_path / "program.py"),
        folder=place,
        PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    )
    assert told.stdout.splitlines() == [
        "os.mkdir folder",
        "open file.tmp",
        "write file.tmp",
        "half of a write file.tmp",
        "fsync file.tmp",
        "os.rename file.tmp",
        "open other",
        "write other",
        "half of a write other",
        "os.link other",
        "os.truncate twin",
        "os.remove file",
        "os.rmdir folder",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["forget", "add", "export --format hf"])
def test_a_command_is_killed_and_ends_in_the_old_state_or_the_new(command, tmp_path):
    run_script(
        "torture_writes.py", "--scale", "smoke", "--commands", command, "--out", tmp_path,
        folder=tmp_path,
    )  # fmt: skip
    (row,) = json.loads((tmp_path / "writes.json").read_text())["rows"]
    assert row["cases"] == row["survived"] > 10
