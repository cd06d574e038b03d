"""Grafts are taken apart by groups of rows, and own parts compared with random ones."""

import pytest
from papers.measurements import Measurement
from papers.sub_skills import INTENTS, SENTENCES, _find_groups, conclude, lead_of_own_parts
from papers.table import EXPERIMENTS
from smoke_benches import smoke_bench

from cl_graft.data.synthetic.sentiment import find_sentiment_kind
from cl_graft.errors import InputError


def test_the_lead_is_that_of_own_parts_over_the_others_of_a_column():
    shares = [[0.9, 0.1, None], [0.3, 0.5, None], [0.1, 0.1, None]]
    assert lead_of_own_parts(shares) == pytest.approx(((0.9 - 0.2) + (0.5 - 0.1)) / 2)
    assert lead_of_own_parts([[0.4, 0.4], [0.4, 0.4]]) == pytest.approx(0.0)
    assert lead_of_own_parts([[None, None], [None, None]]) is None


def cell(own, chance, *, parts=(0.6, 0.2), others=(0.1, 0.3), at_random=(0.3, 0.5)):
    """A cell of two groups, as the experiment measures it."""
    leads = (("split by gain", own), ("random splits", chance))
    groups = ("plain", "negation")
    yield from (Measurement("sentiment", m, "own part above others, loss", v) for m, v in leads)
    for place, (group, other) in enumerate(zip(groups, reversed(groups), strict=True)):
        values = {
            f"part for {group}": parts[place],
            f"part for {other}": others[place],
            "random part": at_random[place],
        }
        for method, value in values.items():
            yield Measurement(f"sentiment: {group}", method, "relative gain, loss", value)


def test_parts_are_compared_with_random_ones_of_the_same_cell():
    cells = [
        list(cell(0.5, 0.1)),
        list(cell(0.4, -0.1, parts=(0.7, 0.2))),
        list(cell(0.7, 0.1, parts=(0.8, 0.2))),
    ]
    found = {}
    for m in conclude(cells, []):
        assert (m.task, m.measure) == ("sentiment", "mean relative gain, loss")
        found.setdefault(m.method, []).append(m.value)
    assert found["own parts"] == pytest.approx([0.4, 0.45, 0.5])
    assert found["other parts"] == pytest.approx([0.2] * 3)
    assert found["random parts"] == pytest.approx([0.4] * 3)
    assert found["own above others"] == pytest.approx([0.5])  # of 0.4, 0.5 and 0.6
    half = 4.303 * 0.1 / 3**0.5
    assert found["own above others, 95 % from"] == pytest.approx([0.5 - half], abs=1e-3)
    assert found["own above others, p"] == pytest.approx([0.0131], abs=2e-3)
    assert found["own above random"] == pytest.approx([0.05])
    assert list(conclude([*cells, []], [])) == list(conclude(cells, []))
    two = {m.method for m in conclude(cells[:2], [])}  # which have no interval
    assert two == {
        "own parts",
        "other parts",
        "random parts",
        "own above others",
        "own above random",
    }


def test_groups_are_rows_of_one_kind_in_training_and_test(tiny_bert, tmp_path):
    bench = smoke_bench("sub_skills", tiny_bert, tmp_path)
    encoded = bench.stream.tasks[0]
    groups = _find_groups(bench, 0)
    assert [group.name for group in groups] == list(SENTENCES)
    for group in groups:
        for split, rows, places in (
            ("train", encoded.task.train, group.train),
            ("test", encoded.task.test, group.test.tolist()),
        ):
            texts = [rows[int(encoded.rows[split][place])].text for place in places]
            assert {find_sentiment_kind(text) for text in texts} == {group.name}


def test_intents_are_grouped_by_label_and_other_tasks_are_refused(tmp_path, tiny_bert):
    folder = tmp_path / "data" / "clinc150"
    folder.mkdir(parents=True)
    lines = [
        f'{{"text": "what is {intent} number {n}", "label": "{intent}", "domain": "work"}}'
        for n in range(8)
        for intents in INTENTS.values()
        for intent in intents
    ]
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text("\n".join(lines).replace("what", split) + "\n")
    own = EXPERIMENTS["sub_skills"].cpu["stream.task_settings"]
    sets = ["stream.tasks=[clinc150_work]", f"stream.task_settings={own}", "stream.max_test=120"]
    bench = smoke_bench("sub_skills", tiny_bert, tmp_path, *sets, data=folder.parent)
    encoded = bench.stream.tasks[0]
    for group in _find_groups(bench, 0):
        names = {encoded.task.label_names[int(encoded.splits["test"][1][n])] for n in group.test}
        assert names == set(INTENTS[group.name])
    bench = smoke_bench("sub_skills", tiny_bert, tmp_path, "stream.tasks=[urgency]")
    with pytest.raises(InputError, match="no sub-skills are known of urgency"):
        _find_groups(bench, 0)
