"""The presets hold the papers' data sets, and fit the real ones."""

import json
from pathlib import Path

import pytest

from cl_graft.data.dataset_presets import PRESETS
from cl_graft.data.load import load_task
from cl_graft.metrics import METRICS

# The grafting paper's table 2 and the SAM paper's table 1.
SINGLE = ("sst2_sent", "cr", "mr", "mpqa", "trec", "ag_news", "subj")
GRAFTING = (*SINGLE, "qnli", "snli", "mnli", "rte", "mrpc", "qqp")
SAM = ("cola", "stsb", "mrpc", "rte", "cb", "copa", "wsc")


def test_the_tasks_of_both_papers_are_there():
    assert len(GRAFTING) == 13
    assert len(SAM) == 7
    assert {*GRAFTING, *SAM, "sst2", "imdb", "yelp_polarity"} == set(PRESETS)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_consistent(name: str):
    preset = PRESETS[name]
    assert preset.name == name
    assert preset.metric in METRICS
    assert (not preset.label_names) == (preset.metric == "pearson") == (name == "stsb")
    assert len(set(preset.label_names)) == len(preset.label_names)
    assert set(preset.aliases.values()) <= set(preset.label_names)


def test_data_are_a_presets_with_its_labels_in_any_order_and_its_number_of_texts():
    snli = ("neutral", "contradiction", "entailment")
    assert PRESETS["snli"].explain_misfit(snli, pair=True) == ""
    assert PRESETS["cr"].explain_misfit(("bad", "good"), pair=False) == (
        "it has the labels negative, positive, but these data bad, good"
    )
    assert PRESETS["rte"].explain_misfit(("entailment", "not_entailment"), pair=False) == (
        "it has two texts a row, but these data one text a row"
    )


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"subj", "trec", "rte", "cb"}))
def test_real_data_loads_through_its_preset(data_dir: Path, name: str):
    task = load_task(name, data=data_dir, shots=8, max_test=50)
    preset = PRESETS[name]
    declared = json.loads((data_dir / name / "meta.json").read_text())["label_names"]
    assert list(task.label_names) == declared
    assert set(declared) == set(preset.label_names)
    assert task.pair == preset.pair
    assert (task.metric, task.max_length) == (preset.metric, preset.max_length)
    assert task.source["train_test_overlap"] == 0
    assert len(task.test) == 50
    if name != "stsb":
        assert len(task.train) == 8 * task.num_outputs
        assert task.prompt is not None
        assert set(task.prompt.words) == set(declared)
