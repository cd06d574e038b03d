"""Grafts are taken apart by groups of rows, and own parts compared with random ones."""

import pytest
from papers.measurements import Measurement
from papers.sub_skills import INTENTS, SENTENCES, _find_groups, lead_of_own_parts, leads_over_chance
from papers.table import EXPERIMENTS
from smoke_benches import smoke_bench

from cl_graft.data.synthetic.sentiment import find_sentiment_kind
from cl_graft.errors import InputError


def test_the_lead_is_that_of_own_parts_over_the_others_of_a_column():
    shares = [[0.9, 0.1, None], [0.3, 0.5, None], [0.1, 0.1, None]]
    assert lead_of_own_parts(shares) == pytest.approx(((0.9 - 0.2) + (0.5 - 0.1)) / 2)
    assert lead_of_own_parts([[0.4, 0.4], [0.4, 0.4]]) == pytest.approx(0.0)
    assert lead_of_own_parts([[None, None], [None, None]]) is None


def cell(own, chance):
    return [
        Measurement("sentiment", method, "own part above others, loss", value)
        for method, value in (("split by gain", own), ("random splits", chance))
    ]


def test_leads_are_compared_with_those_of_random_splits_of_the_same_cell():
    found = {
        m.method: m.value
        for m in leads_over_chance([cell(0.5, 0.1), cell(0.4, -0.1), cell(0.7, 0.1)], [])
    }
    assert found["above random"] == pytest.approx(0.5)  # of 0.4, 0.5 and 0.6
    assert found["above random, 95 % from"] == pytest.approx(0.5 - 4.303 * 0.1 / 3**0.5, abs=1e-3)
    assert found["above random, p"] == pytest.approx(0.0131, abs=2e-3)
    assert list(leads_over_chance([cell(0.5, 0.1), [], cell(0.7, 0.1)], [])) == []


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
