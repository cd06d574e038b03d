"""The scores of a stream, collected inside Avalanche, are those of the plain functions."""

import json

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import MTSimpleMLP, SimpleMLP
from avalanche.training.supervised import Naive
from tiny_streams import quiet_evaluator, sgd, vector_stream
from torch.utils.data import TensorDataset

from cl_graft import load_model, load_task, text_model, text_stream
from cl_graft.errors import InputError
from cl_graft.metrics import average_accuracy, backward_transfer, ece, forgetting, score
from cl_graft.strategies.stream_scores import StreamScores


def naive(scores, *, model=None, **chosen):
    torch.manual_seed(0)
    model = model or SimpleMLP(num_classes=2, input_size=12, hidden_size=16, drop_rate=0.0)
    settings = {"train_mb_size": 8, "train_epochs": 2, "eval_mb_size": 10}
    return Naive(
        model=model, optimizer=sgd(model), evaluator=quiet_evaluator(scores), **(settings | chosen)
    )


def run(scores, benchmark=None, **chosen):
    benchmark = benchmark or vector_stream(labels=[0, 1, 2])
    strategy = naive(scores, **chosen)
    results = []
    strategy.eval(benchmark.streams["test"])
    for experience in benchmark.streams["train"]:
        strategy.train(experience, eval_streams=[benchmark.streams["test"]])
        strategy.eval(benchmark.streams["test"])
        results.append(strategy.evaluator.get_last_metrics())
    return strategy, results


def logits_of(strategy, experience):
    rows = [experience.dataset[place] for place in range(len(experience.dataset))]
    strategy.model.eval()
    with torch.no_grad():
        logits = strategy.model(torch.stack([row[0] for row in rows]))
    return logits, torch.tensor([int(row[1]) for row in rows])


def test_the_last_row_is_what_the_plain_functions_say_of_the_final_model():
    scores = StreamScores({1: "f1"})
    benchmark = vector_stream(labels=[0, 1, 2])
    strategy, _ = run(scores, benchmark)
    for j, experience in enumerate(benchmark.streams["test"]):
        logits, targets = logits_of(strategy, experience)
        kept, kept_targets = scores.predictions(j)
        assert torch.allclose(kept, logits, atol=1e-6)
        assert torch.equal(kept_targets, targets)
        metric = "f1" if j == 1 else "accuracy"
        assert scores.R(3)[2][j] == score(kept, targets, metric)
        assert scores.ece(3)[2][j] == ece(kept.double().softmax(dim=1), targets)


def test_a_task_not_yet_learned_has_no_score():
    scores = StreamScores()
    run(scores)
    R = scores.R(3)
    for i in range(3):
        assert [R[i][j] is None for j in range(3)] == [j > i for j in range(3)]
    assert scores.result() == R
    assert scores.share_routed(3) is None


def test_zero_shot_models_are_scored_on_what_they_have_not_learned():
    scores = StreamScores(zero_shot=True)
    run(scores)
    assert all(cell is not None for row in scores.R(3) for cell in row)


def test_the_scores_before_any_training_are_the_baseline_in_the_order_of_training():
    scores, fresh = StreamScores(), StreamScores()
    benchmark = vector_stream(labels=[0, 1, 2])
    strategy = naive(scores)
    strategy.eval(benchmark.streams["test"])
    before = scores.baseline(3)
    assert all(0 <= value <= 1 for value in before)
    for number in (2, 0, 1):
        strategy.train(benchmark.streams["train"][number])
    assert scores.baseline(3) == [before[2], before[0], before[1]]
    naive(fresh).train(benchmark.streams["train"][0])
    assert fresh.baseline(3) == [None] * 3


def test_summaries_are_emitted_with_every_complete_row():
    scores = StreamScores()
    _, results = run(scores)
    where = "eval_phase/test_stream"
    assert results[-1][f"AverageAccuracy/{where}"] == average_accuracy(scores.R(3))
    assert results[-1][f"BackwardTransfer/{where}"] == backward_transfer(scores.R(3))
    assert results[-1][f"Forgetting/{where}"] == forgetting(scores.R(3))
    assert f"BackwardTransfer/{where}" not in results[0]
    assert results[-1][f"Score/{where}/Task001/Exp001"] == scores.R(3)[2][1]


def test_summaries_of_several_metrics_are_each_over_the_experiences_of_one():
    scores = StreamScores({1: "f1"})
    _, results = run(scores)
    where = "eval_phase/test_stream"
    R, last = scores.R(3), results[-1]
    assert last[f"AverageAccuracy/{where}"] == (R[2][0] + R[2][2]) / 2
    assert last[f"AverageF1/{where}"] == R[2][1]
    assert last[f"BackwardTransferAccuracy/{where}"] == R[2][0] - R[0][0]
    assert last[f"ForgettingF1/{where}"] == R[1][1] - R[2][1]
    assert not {f"{name}/{where}" for name in ("BackwardTransfer", "Forgetting")} & set(last)


def test_the_average_of_one_metric_has_its_name():
    _, results = run(StreamScores(dict.fromkeys(range(3), "f1")))
    names = {name.split("/")[0] for name in results[-1]}
    assert {"AverageF1", "BackwardTransfer", "Forgetting"} <= names
    assert "AverageAccuracy" not in names


@pytest.mark.parametrize("mode", ["epoch", "iteration"])
def test_evaluating_while_an_experience_trains_changes_no_cell(mode):
    scores = StreamScores()
    _, results = run(scores, eval_every=1, peval_mode=mode)
    R = scores.R(3)
    for i in range(3):
        for j in range(i + 1):
            name = f"Score/eval_phase/test_stream/Task{j:03d}/Exp{j:03d}"
            assert R[i][j] == results[i][name]
    cells = [
        value for _, row in scores._cells["scores"].rows() for value in row if value is not None
    ]
    assert len(cells) == 3 + 6


def test_only_the_named_stream_is_measured():
    scores = StreamScores(stream="train")
    run(scores)
    with pytest.raises(KeyError, match="train stream"):
        scores.predictions(0)


@pytest.mark.parametrize("heads", [True, False])
def test_a_model_with_heads_is_measured_on_each_tasks_own_classes_and_another_on_all(heads):
    scores = StreamScores()
    labels = [0, 1, 2] if heads else None
    benchmark = vector_stream(labels=labels, classes=[(0, 1), (2, 3), (4, 5)])
    torch.manual_seed(0)
    model = MTSimpleMLP(input_size=12, hidden_size=16)
    plain = SimpleMLP(num_classes=6, input_size=12, hidden_size=16)
    run(scores, benchmark, model=model if heads else plain)
    for j in range(3):
        logits, targets = scores.predictions(j)
        assert logits.shape == (32, 2 if heads else 6)
        assert set(targets.tolist()) == ({0, 1} if heads else {2 * j, 2 * j + 1})


def test_an_interrupted_experience_fills_no_row():
    scores = StreamScores()
    benchmark = vector_stream(labels=[0, 1, 2])
    strategy = naive(scores)
    strategy.train(benchmark.streams["train"][0])
    strategy.eval(benchmark.streams["test"])
    row = scores.R(1)
    broken = strategy._criterion
    strategy._criterion = lambda logits, targets: broken(logits, targets).nothing
    with pytest.raises(AttributeError):
        strategy.train(benchmark.streams["train"][1])
    strategy._criterion = broken
    strategy.eval(benchmark.streams["test"])
    assert scores.result() == row
    strategy.train(benchmark.streams["train"][1])
    strategy.eval(benchmark.streams["test"])
    assert len(scores.result()) == 2


class PicksTasks(Naive):
    """Answers some rows as if they were another task's."""

    answered_by = None

    def forward(self):
        logits = super().forward()
        own = int(self.experience.task_label)
        self.answered_by = None if self.is_training else (torch.arange(len(logits)) + own) % 2
        return logits


def test_what_another_task_answers_is_wrong_and_counts_in_calibration():
    scores = StreamScores({1: "f1"})
    benchmark = vector_stream(labels=[0, 1])
    torch.manual_seed(0)
    model = MTSimpleMLP(input_size=12, hidden_size=16)
    strategy = PicksTasks(
        model=model, optimizer=sgd(model), eval_mb_size=10, evaluator=quiet_evaluator(scores)
    )
    for experience in benchmark.streams["train"]:
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.streams["test"])
    routed = scores.share_routed(2)
    for j, experience in enumerate(benchmark.streams["test"]):
        rows = len(experience.dataset)
        here = torch.cat(
            [(torch.arange(len(p)) + j) % 2 == j for p in torch.arange(rows).split(10)]
        )
        logits, targets = scores.predictions(j)
        assert routed[1][j] == here.double().mean()
        assert logits.shape[1] == 2 + 2
        assert torch.equal(logits.argmax(1) < 2, here)
        right = (logits.argmax(1) == targets) & here
        if j == 0:
            assert scores.R(2)[1][j] == right.double().mean()
        confidence = logits.double().softmax(1).amax(1)
        assert bool((confidence >= 0.5).all())
        assert scores.ece(2)[1][j] == ece(logits.double().softmax(1), targets)
    again = StreamScores()
    again.load_state_(scores.state())
    assert again.share_routed(2) == routed


def trained_in(order, *, scores=None, evaluate=None, labels=(0, 1, 2)):
    """Train a Naive strategy in an order; return its scores, and those taken down by hand."""
    scores = scores or StreamScores()
    benchmark = vector_stream(labels=list(labels))
    strategy = naive(scores)
    seen = []
    for number in order:
        strategy.train(benchmark.streams["train"][number], eval_streams=[])
        tests = [benchmark.streams["test"][j] for j in (evaluate or range(len(labels)))]
        strategy.eval(tests)
        by_hand = {}
        for experience in tests:
            logits, targets = logits_of(strategy, experience)
            by_hand[experience.current_experience] = score(logits, targets, "accuracy")
        summary = {value.name: value.value for value in scores.after_eval(strategy)}
        seen.append((by_hand, summary))
    return scores, seen


@pytest.mark.parametrize("order", [(1, 2, 0), (0, 2), (2,)])
def test_rows_and_columns_are_in_the_order_of_training_and_belong_to_its_experiences(order):
    scores, seen = trained_in(order)
    assert scores.order == list(order)
    R = scores.result()
    assert len(R) == len(order)
    for i, (by_hand, emitted) in enumerate(seen):
        assert R[i][: i + 1] == [by_hand[j] for j in order[: i + 1]]
        assert R[i][i + 1 :] == [None] * (len(order) - i - 1)
        rows = [row[: i + 1] for row in R[: i + 1]]
        assert emitted["AverageAccuracy/eval_phase/test_stream"] == average_accuracy(rows)
    expected = [seen[-1][0][j] - seen[i][0][j] for i, j in enumerate(order[:-1])]
    if expected:
        assert backward_transfer(R) == pytest.approx(sum(expected) / len(expected))
        assert seen[-1][1]["BackwardTransfer/eval_phase/test_stream"] == backward_transfer(R)


def test_an_experience_that_was_not_evaluated_has_no_score_and_no_measure_that_needs_it():
    scores, seen = trained_in((0, 1, 2), evaluate=[0, 2])
    R = scores.result()
    assert [row[1] for row in R] == [None] * 3
    assert average_accuracy(R) is None
    assert forgetting(R) is None
    assert seen[1][1] == {}


def test_an_experience_trained_twice_is_refused_with_a_sentence(caplog):
    scores, seen = trained_in((0, 1, 0))
    with pytest.raises(ValueError, match=r"experience 0 was trained more than once .*\[0, 1, 0\]"):
        scores.result()
    with pytest.raises(ValueError, match="more than once"):
        scores.ece(2)
    assert "experience 0 was trained before" in caplog.text
    assert "BackwardTransfer/eval_phase/test_stream" in seen[1][1]
    assert seen[2][1] == {}
    assert scores.logit_hash(0, 0) != scores.logit_hash(2, 0)


def test_a_test_experience_of_another_task_than_the_training_one_of_its_number_is_refused():
    scores = StreamScores()
    strategy = naive(scores)
    strategy.train(vector_stream(labels=[0, 1, 2]).streams["train"][1], eval_streams=[])
    with pytest.raises(ValueError, match=r"experience 1 .* task label 2, .* had 1"):
        strategy.eval(vector_stream(labels=[0, 2, 1]).streams["test"])


def test_the_state_of_scores_goes_on_in_any_order():
    scores, _ = trained_in((2, 0, 1))
    again = StreamScores()
    again.load_state_(json.loads(json.dumps(scores.state())))
    assert again.order == scores.order
    assert again.result() == scores.result()
    for i in range(3):
        assert again.logit_hash(i, i) == scores.logit_hash(i, i)
        assert again.logit_hash(2, i) == scores.logit_hash(2, i)


def test_classes_of_one_task_label_are_scored_as_avalanche_does(tiny_bert):
    task = load_task("topic", shots=8, max_test=40)
    loaded = load_model(tiny_bert, family="encoder")
    stream = text_stream([task], loaded.tokenizer, family="encoder", max_length=24)
    datasets = []
    for split in ("train", "test"):
        inputs, targets = stream.tasks[0].splits[split]
        datasets.append(TensorDataset(inputs, targets))
        datasets[-1].targets = targets.tolist()
    benchmark = nc_benchmark(*datasets, n_experiences=5, task_labels=False, seed=0)
    scores = StreamScores()
    torch.manual_seed(0)
    model = text_model(loaded, stream)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.005),
        train_mb_size=8,
        train_epochs=2,
        evaluator=quiet_evaluator(scores, accuracy_metrics(experience=True)),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
        measured = strategy.eval(benchmark.test_stream)
    R = scores.R(5)
    for j in range(5):
        own = f"Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp{j:03d}"
        assert R[4][j] == pytest.approx(measured[own])
    assert R[4][0] < R[0][0]
    assert forgetting(R) > 0
    assert scores.predictions(0)[0].shape[1] == task.num_outputs


def test_a_program_that_starts_again_goes_on_with_its_scores(tmp_path):
    benchmark, file = vector_stream(labels=[0, 1, 2]), tmp_path / "scores.json"
    whole = StreamScores()
    run(whole, benchmark)
    first = StreamScores()
    strategy = naive(first)
    strategy.eval(benchmark.streams["test"])
    for experience in list(benchmark.streams["train"])[:2]:
        strategy.train(experience)
        strategy.eval(benchmark.streams["test"])
    first.save(file)
    again = StreamScores()
    again.load_(file)
    strategy = naive(again, model=strategy.model)
    strategy.train(benchmark.streams["train"][2])
    strategy.eval(benchmark.streams["test"])
    assert again.order == [0, 1, 2]
    assert again.baseline(3) == whole.baseline(3)
    assert again.R(3)[:2] == whole.R(3)[:2]
    assert None not in again.R(3)[2]
    assert again.logit_hash(0, 0) == whole.logit_hash(0, 0)
    file.write_text("[]")
    with pytest.raises(InputError, match="no file that StreamScores"):
        again.load_(file)
