"""TensorBoard files, read back, hold one point a metric and step."""

import copy
from collections import Counter

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.models import SimpleMLP
from slow_cases import slow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_streams import learner, vector_stream

from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger


def read(folder):
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()


@pytest.mark.parametrize("mode", ["epoch", *slow("iteration")])
def test_a_stream_evaluated_at_every_turn_has_one_point_a_step(tmp_path, mode):
    logger = OncePerStepTensorboardLogger(tmp_path)
    torch.manual_seed(0)
    run = learner(
        SimpleMLP(num_classes=2, input_size=12, hidden_size=16),
        vector_stream(labels=[0, 1, 2]),
        train_epochs=2,
        eval_every=1,
        peval_mode=mode,
        metrics=[
            loss_metrics(minibatch=True, epoch=True, experience=True, stream=True),
            accuracy_metrics(experience=True, stream=True),
            StreamScores(),
        ],
        loggers=[logger],
    ).learn()
    logger.writer.flush()
    events = read(tmp_path)
    tags = events.Tags()["scalars"]
    for tag in tags:
        steps = [point.step for point in events.Scalars(tag)]
        assert max(Counter(steps).values()) == 1, tag
        assert steps == sorted(steps), tag
    assert "Loss_MB/train_phase/train_stream/Task000" in tags
    name = "Score/eval_phase/test_stream/Task000/Exp000"
    last = events.Scalars(name)[-1]
    assert last.value == pytest.approx(run.scores.R(3)[2][0])
    assert last.step == run.strategy.clock.train_iterations


def test_a_copied_logger_draws_no_doubles_either(tmp_path):
    logger = OncePerStepTensorboardLogger(tmp_path)
    logger.log_single_metric("loss", 1.0, 0)
    logger.writer.flush()
    other = copy.deepcopy(logger)
    other.log_single_metric("loss", 1.0, 0)
    other.log_single_metric("loss", 2.0, 1)
    other.writer.flush()
    values = []
    for file in tmp_path.iterdir():
        events = read(file)
        if "loss" in events.Tags()["scalars"]:
            values += [point.value for point in events.Scalars("loss")]
    assert sorted(values) == [1.0, 2.0]
