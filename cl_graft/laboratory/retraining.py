"""Graft re-training: a region trained alone from the base, without a stream around it.

The "graft re-training" of Panigrahi et al., 2023, Table 1 (https://arxiv.org/abs/2302.06600), and,
on the region of all biases, BitFit. In a stream `GraftingPlugin` does it; here is the same for a
single task: SGD or AdamW on the region's vector and the head, the best point on dev kept.
"""

from __future__ import annotations

from contextlib import ExitStack

from torch import Tensor, nn, optim

from cl_graft.graft import Graft, extract, snapshot, write_
from cl_graft.keeping import holding, only_training
from cl_graft.learning import TaskProblem
from cl_graft.randomness import derive, seeded
from cl_graft.region import Parameters, Region
from cl_graft.sparse import RegionParameters
from cl_graft.training import FineTuning, backpropagate, beats, freeze_statistics

__all__ = ["retrain"]


def retrain(
    task: TaskProblem,
    region: Region,
    settings: FineTuning,
    *,
    head: Parameters,
    seed: int,
    decay: bool = True,
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region and the head of a task on a model at its base, which is put back there.

    Args:
        task: The task.
        region: What trains beside the head.
        settings: Steps, batch size, optimiser, learning rate, weight decay, clipping and looks at
            dev.
        head: The head's first values.
        seed: Every random choice is a function of it.
        decay: Whether the learning rate falls linearly to 0.

    Returns:
        The region's values and the head's.
    """
    own = derive(seed, task.content, "re-training")
    loss = task.training_loss(settings, seed=own)
    every = max(1, settings.steps // settings.evaluations) if settings.evaluations else 0
    best: tuple[float, Graft, dict[str, Tensor]] | None = None
    base = extract(task.model, region)
    with ExitStack() as after:
        after.callback(task.model.eval)
        after.callback(write_, task.model, base)
        after.enter_context(holding(task.head, head))
        after.enter_context(only_training(task.model, task.head.values()))
        live = after.enter_context(RegionParameters(task.model, region))
        trained = [live.vector, *task.head.values()]
        kind = optim.AdamW if settings.optimizer == "adamw" else optim.SGD
        optimizer = kind(trained, lr=settings.lr, weight_decay=settings.weight_decay)
        for step in range(settings.steps):
            if decay:
                optimizer.param_groups[0]["lr"] = settings.lr * (1 - step / settings.steps)
            task.model.train()
            freeze_statistics(task.model)
            optimizer.zero_grad()
            with seeded(own, "dropout", step):
                backpropagate(loss(step))
            if settings.clip:
                nn.utils.clip_grad_norm_(trained, settings.clip)
            optimizer.step()
            live.write_()
            done = step + 1
            if done == settings.steps or (every and done % every == 0):
                task.model.eval()
                score = task.dev_score() if every else 0.0
                if best is None or beats(score, best[0]):
                    best = score, live.graft(), snapshot(task.head)
    if best is None:
        raise ValueError("no step was taken")
    return best[1], best[2]
