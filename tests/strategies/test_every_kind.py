"""Every strategy learns every kind of task on every family of models that it names.

The cases are made from the registries of strategies and kinds, so that what is added there is
learned here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answer_tasks import make_numbers, make_questions, write_task
from kind_data import make_labels, tagged_records
from slow_cases import slow_but
from small_runs import Runs

from cl_graft.kinds import KINDS
from cl_graft.strategies.registry import STRATEGIES, list_available

# Models on which every strategy can learn: they have biases, and peft knows them.
MODELS = {
    "encoder": "tiny_bert",
    "masked_lm": "tiny_bert",
    "causal_lm": "tiny_gpt2",
    "seq2seq_lm": "tiny_bart",
}
TINY = {
    "shots": None,
    "steps": 2,
    "batch_size": 4,
    "evaluations": 2,
    "max_test": 4,
    "max_length": 32,
    "density": 0.05,
    "mask_steps": 2,
    "mask_batch": 4,
}


def make_classes(count: int, *, seed: int, names: tuple[str, ...], pairs: bool = False) -> Any:
    """Return records of texts with one of some labels."""
    more = {"text_pair": "a warm picture"} if pairs else {}
    return [
        {"text": f"the film number {seed + n} is slow", **more, "label": names[n % len(names)]}
        for n in range(count)
    ]


def classes(*names: str, pairs: bool = False) -> Callable[..., Any]:
    return lambda count, seed: make_classes(count, seed=seed, names=names, pairs=pairs)


def answers(least: int) -> Callable[..., Any]:
    """Return what makes records whose answers have up to four more words than the shortest."""
    return lambda count, seed: [
        {"input": f"Row {seed + n}:", "target": " ".join(["river"] * (least + n % 5))}
        for n in range(count)
    ]


# Three tasks of each kind, as unlike as tasks of the kind can be; named tasks have prompts.
DATA: dict[str, dict[str, Callable[..., Any]]] = {
    "classification": {
        "sst2": classes("negative", "positive"),
        "mnli": classes("entailment", "neutral", "contradiction", pairs=True),
        "cola": classes("unacceptable", "acceptable"),
    },
    "regression": dict.fromkeys(("numbers", "numbers2", "numbers3"), make_numbers),
    "tagging": {
        "names": tagged_records,
        "plans": lambda count, seed: tagged_records(count, intents=True, seed=seed),
        "names3": tagged_records,
    },
    "extractive_qa": dict.fromkeys(("places", "places2", "places3"), make_questions),
    "multi_label": dict.fromkeys(("complaints", "complaints2", "complaints3"), make_labels),
    "text2text": {"one": answers(1), "three": answers(3), "two": answers(2)},
}

NAMES = [*list_available(), *list_available(ablations=True)]
CASES = [
    (name, kind, family)
    for name in NAMES
    for kind, own in KINDS.items()
    for family in own.families
    if (family == "encoder" or not STRATEGIES[name].encoders_only)
    and (kind == "classification" or STRATEGIES[name].kinds != "classification")
]
FAST = [("grafting", "text2text", "causal_lm")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kinds")
    for kind, tasks in DATA.items():
        for seed, (name, make) in enumerate(tasks.items()):
            counts = {"train": 8 + seed, "dev": 4 + seed, "test": 8}
            splits = {
                split: make(count, seed=100 * seed + place)
                for place, (split, count) in enumerate(counts.items())
            }
            meta = {"label_names": []} if kind == "regression" else {}
            write_task(root / kind / name, splits, **meta)
    return root


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runs]:
    """Return the runs of a family, which share tokens and dense runs."""
    known: dict[str, Runs] = {}

    def of(family: str) -> Runs:
        if family not in known:
            model = request.getfixturevalue(MODELS[family])
            out = tmp_path_factory.mktemp(family)
            known[family] = Runs(model, out, TINY | {"family": family})
        return known[family]

    return of


@pytest.mark.parametrize(("name", "kind", "family"), slow_but(FAST, CASES))
def test_a_strategy_learns_a_kind_of_tasks_in_whole_batches_and_in_parts(
    data, runs, name, kind, family
):
    # From the third task on, some put rows of two earlier tasks into a batch.
    count = 3 if STRATEGIES[name].family == "rehearsal" else 2
    settings = {"data": str(data / kind), "tasks": list(DATA[kind])[:count]}
    if STRATEGIES[name].family == "merging" or "grafting.retrain" in STRATEGIES[name].fixed_config:
        settings["localizer"] = "movement_by_tensor"  # causal models have no dense run by default
    whole = runs(family)(name, **settings)
    parts = runs(family)(name, **settings, micro_batch=3)
    for result in (whole, parts):
        assert result.complete
        assert all(value is not None for value in result.R[-1])
    assert parts.passes == whole.passes


def test_every_kind_has_data_and_every_family_a_model():
    assert set(DATA) == set(KINDS)
    assert {family for kind in KINDS.values() for family in kind.families} == set(MODELS)
