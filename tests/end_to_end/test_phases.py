"""What grafting's phases tell the loggers of a strategy."""

import io

from avalanche.logging import TensorboardLogger, TextLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_streams import learner, mlp, quick, vector_stream

from cl_graft import FineTuning

SETTINGS = {
    "localizer": "learned_mask",
    "density": 0.2,
    "mask_steps": 3,
    "mask_batch": 16,
    "evaluate_every": 2,
    "fine_tuning": FineTuning(steps=6, batch_size=8, lr=0.1, evaluations=2),
}


def made(*loggers, **changes):
    settings = quick(**(SETTINGS | changes))
    return learner(mlp(), vector_stream(labels=[0, 1]), settings=settings, loggers=loggers)


def test_tensorboard_shows_losses_and_dev_scores_of_every_phase_at_their_steps(tmp_path):
    run = made(TensorboardLogger(tmp_path))
    run.strategy.train(run.train_stream)
    run.strategy.evaluator.loggers[0].writer.flush()
    events = EventAccumulator(str(tmp_path)).Reload()
    for task in ("train_stream/Task000/Exp000", "train_stream/Task001/Exp001"):
        for name, steps in {
            "Loss/dense_phase": [1, 2, 3, 4, 5, 6],
            "DevScore/dense_phase": [3, 6],
            "Loss/localize_phase": [1, 2, 3],
            "DevScore/localize_phase": [3],
            "DevScore/region_phase": [2, 4],
        }.items():
            assert [event.step for event in events.Scalars(f"{name}/{task}")] == steps


def test_the_values_are_those_that_the_entry_records():
    run = made()
    run.strategy.train(run.train_stream[0])
    published = run.strategy.evaluator.get_all_metrics()
    metadata = run.plugin.bank.entries[0].metadata
    where = "train_stream/Task000/Exp000"
    assert max(published[f"DevScore/dense_phase/{where}"][1]) == metadata["dense_dev"]
    assert published[f"DevScore/localize_phase/{where}"][1] == [metadata["graft_dev"]]
    assert max(published[f"DevScore/region_phase/{where}"][1]) == metadata["trained_dev"]


def test_text_loggers_say_how_phases_end():
    file = io.StringIO()
    run = made(TextLogger(file))
    run.strategy.train(run.train_stream[0])
    lines = [line for line in file.getvalue().splitlines() if line.startswith("task0: ")]
    losses = run.strategy.evaluator.get_all_metrics()[
        "Loss/dense_phase/train_stream/Task000/Exp000"
    ]
    assert lines[0] == f"task0: dense run: step 6 of 6, loss {losses[1][-1]:.4g}"
    assert lines[1] == "task0: localization: step 3 of 3"
    assert "DevScore/region_phase/train_stream/Task000/Exp000 = " in file.getvalue()


def test_an_evaluator_that_is_switched_off_publishes_nothing():
    run = made()
    run.strategy.evaluator.active = False
    run.strategy.train(run.train_stream[0])
    assert not run.strategy.evaluator.get_all_metrics()
    assert len(run.plugin.bank) == 1
