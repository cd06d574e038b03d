"""Peers train parts of their own on a copy of the model; what is trained is trained once."""

import pytest
import torch
from papers import EXPERIMENTS
from papers.peers import PEERS, choose_size, measure_share, train_peer
from papers.retraining import peer_plans
from smoke_benches import smoke_bench

from cl_graft.grafts.graft import snapshot
from cl_graft.training.fine_tuning import fine_tune


def test_peers_train_their_parts_alone_on_a_copy_of_the_model(tiny_bert, tmp_path):
    bench = smoke_bench("table6", tiny_bert, tmp_path)
    own = bench.task(0)
    before = snapshot(dict(bench.model.named_parameters()))
    untrained = bench.answers(0)
    (plan,) = peer_plans(bench, (2e-3,))
    for name, peer in PEERS.items():
        size = choose_size(bench, peer, share=0.02)
        near = {
            n: abs(measure_share(bench, peer, n) - 0.02) for n in range(max(1, size - 1), size + 2)
        }
        assert min(near, key=near.__getitem__) == size, name
        with train_peer(bench, 0, peer, size=size, plan=plan) as other:
            assert not torch.equal(other.answers(0).logits, untrained.logits), name
            held = dict(other.model.named_parameters())
            parts = {id(part) for part in peer.parts(other.model.task_model).values()}
            rest = [n for n, p in held.items() if id(p) not in parts and n in before]
            trunk = [n for n in rest if "heads" not in n]
            assert all(torch.equal(held[n], before[n]) for n in trunk), name
        after = dict(bench.model.named_parameters())
        assert after.keys() == before.keys()
        assert all(torch.equal(value, after[n]) for n, value in before.items()), name
    assert bench.task(0) is own


def test_rows_that_are_left_out_are_left_out_of_dense_runs_and_of_models_with_parts(
    tiny_bert, tmp_path
):
    bench = smoke_bench("sam_table2", tiny_bert, tmp_path)
    whole, rows = bench.dense(0), len(bench.task(0).train)
    with bench.fewer_rows(0, range(2, rows)):
        fewer = bench.dense(0)
        other = bench.with_parts(lambda model: PEERS["Pfeiffer"].insert(model, 2, 0))
        for asked in (bench, other):
            assert len(asked.task(0).train) == rows - 2
    assert len(bench.task(0).train) == rows
    assert any(not torch.equal(whole.tuned[name], fewer.tuned[name]) for name in whole.tuned)
    again = bench.dense(0)
    assert all(torch.equal(whole.tuned[name], again.tuned[name]) for name in whole.tuned)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table6", "fig8"])
def test_joint_models_and_peers_are_trained_once(name, tiny_bert, tmp_path, monkeypatch):
    module = {"fig8": "papers.multitask", "table6": "cl_graft.training.learnable_task"}[name]
    trained = []

    def counted(model, *given, phase="dense fine-tuning", **more):
        if name == "fig8" or phase == "training":  # peers' phase
            trained.append(model)
        return fine_tune(model, *given, phase=phase, **more)

    monkeypatch.setattr(f"{module}.fine_tune", counted)
    benches = [smoke_bench(name, tiny_bert, tmp_path) for _ in range(2)]
    first = list(EXPERIMENTS[name].run(benches[0]))
    count = len(trained)
    assert count == {"fig8": 1, "table6": 11 + 3}[name]  # the smallest of three at two rates
    assert list(EXPERIMENTS[name].run(benches[1])) == first
    assert len(trained) == count
