"""Tasks over processes: the same results in the same order, few under way, clean ends."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from multiprocessing.context import SpawnProcess

import pytest

from kutta.data import workers
from kutta.data.workers import cores, in_order
from kutta.errors import InputError

POWER = partial(partial, pow, 2)  # a worker knows nothing of this file, so all is built in


def test_a_process_that_cannot_be_started_is_told(monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(SpawnProcess, "start", refuse)
    with pytest.raises(
        InputError, match=r"Cannot start a process .* temporarily unavailable; free"
    ):
        list(in_order(POWER, range(100), 2))


def made(code: str):
    """What makes the function written in `code`."""
    return partial(eval, code)


@pytest.fixture(autouse=True)
def processes_at_once(monkeypatch):
    monkeypatch.setattr(workers, "FEW", 0)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("few", [0, 3, 99])
def test_results_come_in_order(monkeypatch, few, processes):
    monkeypatch.setattr(workers, "FEW", few)
    assert list(in_order(POWER, range(20), processes)) == [2**n for n in range(20)]


TOGETHER = """
import os, time
from functools import partial
def make(folder, processes):
    return partial(work, folder, processes)
def work(folder, processes, task):
    (folder / str(os.getpid())).touch()
    while len([*folder.iterdir()]) < processes: time.sleep(0.01)
    return os.getpid()
"""


@pytest.fixture
def together(tmp_path, monkeypatch):
    """What makes a function that ends when so many processes have called it; it gives its own."""
    (tmp_path / "together.py").write_text(TOGETHER)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pids").mkdir()
    return partial(partial, import_module("together").make, tmp_path / "pids")


def test_work_is_really_done_by_as_many_processes_as_asked(together):
    pids = set(in_order(together(3), range(9), 3))
    assert len(pids) == 3
    assert os.getpid() not in pids


def test_little_work_starts_no_process(monkeypatch):
    monkeypatch.setattr(workers, "FEW", 5)
    monkeypatch.setattr(workers, "ProcessPoolExecutor", None)
    assert len(list(in_order(POWER, range(5), 2))) == 5
    with pytest.raises(TypeError):
        list(in_order(POWER, range(6), 2))


def test_few_tasks_are_under_way(monkeypatch):
    monkeypatch.setattr(workers, "FEW", 4)
    left = iter(range(100))
    for received, _ in enumerate(in_order(POWER, left, 2), start=1):
        assert 100 - left.__length_hint__() <= received + 3


def test_large_tasks_and_results_do_not_stop_each_other():
    """Each is many times what a pipe holds."""
    tasks = [bytes([n]) * 3_000_000 for n in range(5)]
    assert list(in_order(made("lambda task: task * 2"), tasks, 2)) == [p * 2 for p in tasks]


def test_a_worker_has_not_loaded_torch_and_nothing_from_the_current_folder(tmp_path, monkeypatch):
    import torch  # noqa: F401

    (tmp_path / "pickle.py").write_text("raise SystemExit('taken from the current folder')")
    monkeypatch.chdir(tmp_path)
    loaded = made("lambda name: name in __import__('sys').modules")
    assert list(in_order(loaded, ["torch", "pyarrow", "pickle"], 1 + 1)) == [False, False, True]


@pytest.mark.parametrize("code", ["__import__('signal').raise_signal", "__import__('os')._exit"])
def test_a_worker_that_ends_early_is_told(code):
    with pytest.raises(InputError, match="ended unexpectedly"):
        list(in_order(made(code), [signal.SIGKILL] * 3, 2))


def test_the_failure_of_a_task_comes_after_the_results_before_it():
    make = made(
        "lambda n: n if n != 3 else (_ for _ in ()).throw("
        "__import__('kutta.errors').errors.InputError('task 3'))"
    )

    def tasks():
        yield from range(5)
        raise InputError("no sixth task")

    for processes in (1, 2, 4):
        results = in_order(make, tasks(), processes)
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(InputError, match="task 3"):
            next(results)


def test_a_failure_to_read_comes_after_all_results():
    def tasks():
        yield from range(5)
        raise InputError("no sixth task")

    for processes in (1, 2, 9):
        results = in_order(POWER, tasks(), processes)
        assert [next(results) for _ in range(5)] == [1, 2, 4, 8, 16]
        with pytest.raises(InputError, match="no sixth task"):
            next(results)


def test_workers_end_when_nobody_listens_any_more(tmp_path, together):
    results = in_order(together(2), range(9), 2)
    next(results)
    pids = [int(file.name) for file in (tmp_path / "pids").iterdir()]
    results.close()
    assert len(pids) == 2
    assert not any(map(alive, pids))


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = (
        "from functools import partial\n"
        "from kutta.data import workers\n"
        "workers.FEW = 0\n"
        "make = partial(eval, 'lambda task: __import__(\"os\").getpid()')\n"
        "for pid in workers.in_order(make, range(10**9), 2): print(pid, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        pids = {int(parent.stdout.readline()) for _ in range(1000)}
        parent.kill()
        parent.communicate(timeout=20)  # ends when nobody holds the pipe any more
    gone = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < gone:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_starting_processes_leaves_no_trace():
    before = os.environ.copy(), sys.modules["__main__"], signal.pthread_sigmask(0, ())
    list(in_order(POWER, range(9), 2))
    assert before == (os.environ, sys.modules["__main__"], signal.pthread_sigmask(0, ()))


def test_cores_are_those_that_may_be_used():
    assert 1 <= cores() <= os.cpu_count()
    if sys.platform == "linux":
        narrow = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        code = narrow + "from kutta.data.workers import cores; print(cores())"
        assert subprocess.check_output([sys.executable, "-c", code]) == b"1\n"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
