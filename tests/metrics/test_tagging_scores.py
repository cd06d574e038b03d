"""Scores of tags are those of seqeval on their names, and of hand-made examples."""

import pytest
import torch
from seqeval.metrics import classification_report, f1_score

from cl_graft.lab.results.task_files import score_classes
from cl_graft.metrics import score, task_loss
from cl_graft.metrics.span_scores import count_spans, list_tags, write_tag

TYPES = ("a", "b", "c")
TAGS = len(list_tags(TYPES))


def logits_of(tags: torch.Tensor, count: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(tags.clamp(min=0), count).float()


def test_tags_are_numbered_so_that_a_number_tells_mark_and_type():
    assert list_tags(TYPES) == ("O", "B-a", "I-a", "B-b", "I-b", "B-c", "I-c")
    assert [write_tag(number) for number in range(4)] == ["O", "B-0", "I-0", "B-1"]


@pytest.mark.parametrize("seed", range(5))
def test_the_span_f1_is_that_of_seqeval_on_names(seed: int):
    drawn = torch.Generator().manual_seed(seed)
    right = torch.randint(TAGS, (20, 9), generator=drawn)
    found = torch.where(torch.rand(20, 9, generator=drawn) < 0.3, 0, right)
    right[torch.rand(20, 9, generator=drawn) < 0.2] = -100  # tokens within words
    right[:, 0] = -100
    names = list_tags(TYPES)
    rows = [[names[tag] for tag in row[row >= 0]] for row in right]
    own = [[names[tag] for tag in row[mask >= 0]] for row, mask in zip(found, right, strict=True)]
    value = score(logits_of(found, TAGS), right, "span_f1")
    assert 0 < value < 1
    assert value == pytest.approx(f1_score(rows, own))
    counted = count_spans(logits_of(found, TAGS), right, types=len(TYPES))
    pairs = tuple((*pair, spans) for pair, spans in sorted(counted.items()))
    report = classification_report(rows, own, output_dict=True)
    for name, scores in zip(TYPES, score_classes(pairs, classes=len(TYPES)), strict=True):
        expected = report[name]
        assert scores.rows == expected["support"]
        assert scores.precision == pytest.approx(expected["precision"])
        assert scores.recall == pytest.approx(expected["recall"])
        assert scores.f1 == pytest.approx(expected["f1-score"])


def test_a_span_is_right_if_its_type_and_both_ends_are():
    #          [CLS] New York is big in May
    right = torch.tensor([[-100, 1, 2, 0, 0, 0, 3]])
    found = torch.tensor([[1, 1, 2, 0, 0, 0, 5]])  # a right span, and one of another type
    assert score(logits_of(found, TAGS), right, "span_f1") == pytest.approx(0.5)
    short = torch.tensor([[0, 1, 0, 0, 0, 0, 3]])  # its end is wrong
    assert score(logits_of(short, TAGS), right, "span_f1") == pytest.approx(0.5)
    none = torch.zeros_like(right)
    assert score(logits_of(none, TAGS), right, "span_f1") == 0.0
    assert score(logits_of(right, TAGS), right, "span_f1") == 1.0


def test_intents_and_frames_are_shares_of_rows():
    right = torch.tensor([[7, 1, 2, -100], [8, 0, 0, 0], [7, 0, 0, 1]])
    found = torch.tensor([[7, 1, 2, 3], [7, 0, 0, 0], [7, 0, 0, 3]])
    logits = logits_of(found, 9)
    assert score(logits, right, "intent_accuracy") == pytest.approx(2 / 3)
    assert score(logits, right, "frame_accuracy") == pytest.approx(1 / 3)
    right[0, 0] = -100
    with pytest.raises(ValueError, match="use 'span_f1'"):
        score(logits, right, "intent_accuracy")


def test_scores_of_tags_refuse_logits_of_rows():
    with pytest.raises(ValueError, match=r"shape \(n, L, K\)"):
        score(torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64), "span_f1")


def test_the_loss_of_a_batch_is_the_mean_of_its_micro_batches():
    drawn = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 6, 5, generator=drawn)
    targets = torch.randint(5, (8, 6), generator=drawn)
    targets[torch.rand(8, 6, generator=drawn) < 0.5] = -100
    targets[3] = -100  # all of its words were cut off
    parts = [task_loss(logits[n : n + 2], targets[n : n + 2]) for n in range(0, 8, 2)]
    torch.testing.assert_close(torch.stack(parts).mean(), task_loss(logits, targets))


def test_the_loss_of_tags_is_the_mean_over_rows_of_the_mean_over_their_words():
    logits = torch.zeros(2, 3, 4)
    logits[0, 0, 1] = 2.0
    targets = torch.tensor([[1, -100, -100], [0, 2, -100]])
    first = torch.log(torch.tensor(3 + torch.e**2)) - 2
    expected = (first + torch.log(torch.tensor(4.0))) / 2
    torch.testing.assert_close(task_loss(logits, targets), expected)
