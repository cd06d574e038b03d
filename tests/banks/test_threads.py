"""Threads of one process that use one bank at the same time."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import torch
from tiny_runs import tiny_run

from cl_graft import open_bank
from cl_graft.banks.open_bank import OpenBank
from cl_graft.grafts.graft import extract, grafted
from cl_graft.inference.task_switch import Switch
from cl_graft.models import TaskServer
from cl_graft.runtime.seeding import seeded
from cl_graft.runtime.threads import lock_model

TASKS = ("scope", "topic", "banking")
TEXTS = ("It was a delight.", "Who won the match?", "Call me today!", "Is the bank open?")


@pytest.fixture(scope="module")
def folder(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    few = {"shots": 4, "steps": 1, "max_test": 4, "mask_steps": 1}
    return tiny_run(tmp_path_factory.mktemp("threads"), tiny_bert, TASKS, **few) / "bank"


@pytest.fixture
def opened(folder: Path) -> OpenBank:
    return open_bank(folder)


def in_threads(work: Sequence[Callable[[], Any]], *, threads: int = 8) -> list[Any]:
    """Do all work in threads that begin together, and return what came, in order."""
    gate = threading.Barrier(threads)
    with ThreadPoolExecutor(threads, initializer=gate.wait) as pool:
        return [one.result() for one in [pool.submit(one) for one in work]]


def questions(count: int) -> list[tuple[Any, dict[str, Any]]]:
    """Draw requests: a text or two of a task, in a batch of one task or of several."""
    pairs = [(text, task) for text in TEXTS for task in TASKS]
    kinds: list[tuple[Any, dict[str, Any]]] = []
    for number, (text, task) in enumerate(pairs):
        kinds += [(text, {"task": task}), ([text, TEXTS[0]], {"task": task})]
        kinds.append(([pairs[number], pairs[number - 1]], {}))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)) % len(kinds)
    return [kinds[number] for number in order.tolist()]


def test_threads_that_share_an_open_bank_get_the_answers_of_one_thread(opened):
    asked, other = questions(80), open_bank(opened.folder)  # entries are read when they answer
    alone = [other.predict(texts, **task) for texts, task in asked]
    found = in_threads([lambda t=texts, k=task: opened.predict(t, **k) for texts, task in asked])
    assert found == alone


def test_two_banks_on_one_model_take_turns(opened):
    other = OpenBank(opened.folder, opened.loaded, Switch(opened.loaded.model, opened.bank))
    server = TaskServer(Switch(opened.loaded.model, opened.bank))
    inputs = [entry.recorded_batch.inputs for entry in opened.bank.entries if entry.recorded_batch]
    alone = [opened.logits(x, position) for position, x in enumerate(inputs)]
    mixed = server.answer(inputs[0][:4], [0, 1, 2, 0])
    work: list[Callable[[], Any]] = []
    for _ in range(10):
        for position, x in enumerate(inputs):
            for bank in (opened, other):
                work.append(lambda b=bank, x=x, p=position: torch.equal(b.logits(x, p), alone[p]))
        work.append(
            lambda: all(map(torch.equal, server.answer(inputs[0][:4], [0, 1, 2, 0]), mixed))
        )
    assert all(in_threads(work))


def test_a_graft_stays_in_the_model_for_the_whole_block_of_its_thread(opened):
    carried, asked = threading.Event(), threading.Event()
    graft = opened.bank.entries[0].owned

    def carry() -> bool:
        with grafted(opened.loaded.model, graft):
            carried.set()
            asked.wait(0.2)
            return extract(opened.loaded.model, graft.region).same_bits(graft)

    def ask() -> None:
        carried.wait()
        opened.predict(TEXTS[0], task=1)
        asked.set()

    assert in_threads([carry, ask], threads=2)[0]


def test_whoever_carries_an_entry_by_hand_can_keep_others_out(opened):
    moved = threading.Event()

    def ask() -> None:
        opened.predict(TEXTS[0], task=1)
        moved.set()

    with lock_model(opened.loaded.model):
        opened.carry(0)
        thread = threading.Thread(target=ask)
        thread.start()
        assert not moved.wait(0.1)
        assert opened.switch.position == 0
    thread.join()
    assert opened.switch.position == 1


@pytest.mark.slow
def test_tasks_are_added_while_other_threads_ask(folder, tmp_path):
    opened = open_bank(shutil.copytree(folder.parent, tmp_path / "run") / "bank")
    expected = {task: opened.predict([*TEXTS], task=task) for task in TASKS}
    done = threading.Event()

    def ask() -> list[bool]:
        found: list[bool] = []
        while not done.is_set():
            found += [opened.predict([*TEXTS], task=task) == expected[task] for task in TASKS]
        return found

    def add(task: str) -> int:
        return opened.add(task).position

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        added = [pool.submit(add, task) for task in ("answered", "entailment")]
        try:
            assert sorted(one.result() for one in added) == [3, 4]
        finally:
            done.set()
        assert all(all(one.result()) for one in asking)
    assert opened.verify().ok


def test_whoever_adds_a_task_while_carrying_an_entry_stops_no_other_thread(folder, tmp_path):
    opened = open_bank(shutil.copytree(folder.parent, tmp_path / "run") / "bank")
    few = {"fine_tuning": {"steps": 1}}
    carried = threading.Event()

    def carry_and_add() -> int:
        with opened.switch.carrying(0):
            carried.set()
            time.sleep(0.2)  # the other thread begins to learn
            return opened.add("answered", settings=few).position

    def add() -> int:
        carried.wait()
        return opened.add("entailment", settings=few).position

    assert sorted(in_threads([carry_and_add, add], threads=2)) == [3, 4]
    assert len(opened) == 5
    assert opened.switch.position is None


def test_a_thread_that_draws_and_one_that_carries_an_entry_do_not_wait_for_each_other(opened):
    carried, seeding, found = threading.Event(), threading.Event(), []

    def carry_and_draw() -> None:
        with opened.switch.carrying(0):
            carried.set()
            assert seeding.wait(10)
            time.sleep(0.2)  # the other thread waits for the model
            with seeded(1):
                found.append(torch.rand(4))

    def draw_and_answer() -> None:
        assert carried.wait(10)
        with seeded(2), seeded(3):
            before = torch.rand(4)
            seeding.set()
            opened.predict(TEXTS[0], task=TASKS[0])
            found.append(torch.cat([before, torch.rand(4)]))

    in_threads([carry_and_draw, draw_and_answer], threads=2)
    with seeded(1):
        first = torch.rand(4)
    with seeded(3):
        second = torch.rand(8)
    assert len(found) == 2
    assert torch.equal(found[0], first)
    assert torch.equal(found[1], second)


class Answers(BaseHTTPRequestHandler):
    """Answers a request, JSON with text and task, as a small service does."""

    bank: OpenBank

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = json.dumps(self.bank.predict(asked["text"], task=asked["task"]).logits).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("requests", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_threading_server_gives_the_answers_of_one_thread(opened, requests):
    asked = [(TEXTS[n // 3 % 4], TASKS[n % 3]) for n in range(requests)]
    alone = {pair: opened.predict(pair[0], task=pair[1]).logits for pair in set(asked)}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("", (Answers,), {"bank": opened})) as server:
        threading.Thread(target=server.serve_forever).start()
        host, port = server.server_address[:2]

        def ask(text: str, task: str) -> list[float]:
            data = json.dumps({"text": text, "task": task}).encode()
            with urlopen(Request(f"http://{host!s}:{port}", data), timeout=60) as answer:
                return json.load(answer)

        try:
            found = in_threads([lambda p=pair: ask(*p) for pair in asked])
        finally:
            server.shutdown()
    assert found == [list(alone[pair]) for pair in asked]
