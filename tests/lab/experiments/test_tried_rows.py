"""Rows on which prompts are tried before anything is computed."""

import json

import pytest
from configs import config_with

from cl_graft.errors import InputError
from cl_graft.models import load_model
from cl_graft.settings.tasks import check_tasks, load_tasks


def write_splits(folder, **splits):
    folder.mkdir()
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_an_instruction_that_does_not_fit_is_found_wherever_it_stands(tiny_gpt2, tmp_path):
    rows = [{"instruction": "Say.", "input": f"rain {n}", "target": "oil"} for n in range(20)]
    long = [*rows[:17], {**rows[17], "instruction": "the film " * 60}, *rows[18:]]
    write_splits(tmp_path / "asked", train=rows, dev=rows, test=long)
    config = config_with({"data": str(tmp_path), "max_length": 48}, tasks="asked")
    loaded = load_model(str(tiny_gpt2), family="causal_lm")
    tasks = load_tasks(config.stream, seed=0)
    with pytest.raises(InputError, match=r"task 'asked': .*no room.*test\.jsonl:18\)"):
        check_tasks(tasks, loaded, config.stream)


def test_numbers_may_be_equal_in_the_rows_that_are_tried(tiny_bert, tmp_path):
    rows = [{"text": f"rain {n}", "label": 0.5 + (n >= 15)} for n in range(20)]
    write_splits(tmp_path / "rated", train=rows, dev=rows, test=rows)
    settings = {"data": str(tmp_path), "task_settings": {"rated": {"kind": "regression"}}}
    config = config_with({**settings, "max_length": 24}, tasks="rated")
    tasks = load_tasks(config.stream, seed=0)
    assert len({row.label for row in tasks[0].test[:4]}) == 1
    check_tasks(tasks, load_model(str(tiny_bert)), config.stream)
