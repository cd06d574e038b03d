"""Names of tasks in any script go the whole way: files, a run, its report, its bank."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest
from tiny_runs import tiny_run

from cl_graft import open_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.forget import forget
from cl_graft.banks.inspect import inspect_bank
from cl_graft.banks.verify import verify
from cl_graft.lab.reporting.page import make_report

NAMES = ("café", "日本語", "हिन्दी")


@pytest.mark.usefixtures("blank_figures")
def test_names_of_any_script_go_from_files_to_reports_and_banks(tiny_bert: Path, tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"text": f"Text {n} is {n % 2}.", "label": ["no", "oui"][n % 2]} for n in range(60)]
    for name in NAMES:
        # as macOS stores names
        path = data / f"{normalize('NFD', name)}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run = tiny_run(tmp_path / "out", tiny_bert, NAMES[:2], data=str(data), shots=4, steps=1)
    add_task(run, str(data / f"{NAMES[2]}.jsonl"), sets=["fine_tuning.steps=1"])
    opened = open_bank(run)
    assert opened.tasks == NAMES
    for name in NAMES:
        answer = opened.predict("Text 3 is 1.", task=name)
        assert answer == opened.predict("Text 3 is 1.", task=normalize("NFD", name))
    assert all(path.name.isascii() for path in (run / "bank").rglob("*"))
    assert [entry.task for entry in inspect_bank(run).entries] == list(NAMES)
    assert verify(run).ok
    written = make_report([run], out=tmp_path / "report")
    page = written.page.read_text(encoding="utf-8")
    tables = "".join(
        table.read_text(encoding="utf-8") for table in written.page.parent.glob("tables/*")
    )
    for name in NAMES[:2]:
        assert name in page
        assert name in tables
    assert forget(run, normalize("NFD", NAMES[0]), dry_run=True).positions == (0,)
    assert forget(run, NAMES[2]).done
