"""Two processes that share every batch learn what one learns, and send little more than regions."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from answer_data import answer_folder
from small_runs import without_dropout
from warm_processes import run_warm

SCRIPT = Path(__file__).with_name("two_processes.py")


def trained(kind: str, processes: int, checkpoint: Path, out: Path) -> list[dict[str, Any]]:
    """Train on so many processes; return what each found."""
    done = run_warm(
        [str(SCRIPT), kind, str(processes), str(checkpoint), str(out)], env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = [f"{kind}-{processes}-{rank}.json" for rank in range(processes)]
    return [json.loads((out / name).read_text()) for name in names]


@pytest.fixture(scope="module")
def text(tiny_bert, tmp_path_factory):
    out = tmp_path_factory.mktemp("text")
    still = without_dropout(tiny_bert, out / "bert")
    return {n: trained("text", n, still, out) for n in (1, 2)}


def test_two_processes_learn_what_one_learns(text):
    (one,), (first, _) = text[1], text[2]
    assert one["rows"] == first["rows"]
    assert first["losses"] == pytest.approx(one["losses"], rel=1e-4)
    assert first["coordinates"] == one["coordinates"]
    for values, expected in zip(first["values"], one["values"], strict=True):
        assert values == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_processes_stay_equal_to_the_bit(text):
    first, second = text[2]
    assert first["weights"] == second["weights"]
    assert first["values"] == second["values"]


def test_what_is_sent_is_as_large_as_region_and_head_and_outputs(text):
    (one,), (first, _) = text[1], text[2]
    assert set(one["bytes"]) == {0}
    sizes = set()
    for owned, labels in zip(first["owned"], (2, 5), strict=True):
        head, outputs, flags, loss = labels * (32 + 1), 7 * labels, 3, 1
        sizes.add(4 * (owned + head + outputs + flags + loss))
    assert set(first["bytes"]) == sizes
    assert max(sizes) < 4 * first["parameters"] / 50


@pytest.mark.slow
def test_two_processes_learn_free_text(tiny_gpt2, tmp_path):
    for form in ("instruction", "input"):
        answer_folder(tmp_path / form, form)
    (one,) = trained("answers", 1, tiny_gpt2, tmp_path)
    first, second = trained("answers", 2, tiny_gpt2, tmp_path)
    assert first["weights"] == second["weights"]
    assert first["losses"] == pytest.approx(one["losses"], rel=1e-4)


def test_rows_that_the_loader_has_dealt_out_already_make_one_step_together(tmp_path):
    first, second = trained("vectors", 2, Path(), tmp_path)
    assert first["weights"] == second["weights"]
    assert first["losses"] == second["losses"]
    assert set(first["rows"]) == {8}
    assert len(first["rows"]) == 4
