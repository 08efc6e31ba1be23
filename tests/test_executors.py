"""Workers: results in order, deaths reported, nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from hyperes.config import ExecutorConfig
from hyperes.errors import UserError
from hyperes.executors import Executor


def slow_square(number: int) -> int:
    time.sleep(0.05 * (5 - number))
    return number * number


def die(number: int) -> int:
    os._exit(9)


def refuse(number: int) -> int:
    raise UserError(f"item {number} is wrong")


def where(number: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    heard: dict[int, int] = {}
    with Executor(ExecutorConfig(workers=workers, threads=1)) as executor:
        assert executor.map(slow_square, [1, 2, 3, 4], heard.__setitem__) == [1, 4, 9, 16]
    assert heard == {0: 1, 1: 4, 2: 9, 3: 16}


def test_a_dead_worker_and_a_users_mistake_are_clear_errors() -> None:
    with Executor(ExecutorConfig(workers=2, threads=1)) as executor:
        with pytest.raises(UserError, match="a worker process died"):
            executor.map(die, [1, 2])
        with pytest.raises(UserError, match="item 1 is wrong"):
            executor.map(refuse, [1])


def test_one_worker_stays_in_this_process_unless_a_child_is_asked_for() -> None:
    with Executor(ExecutorConfig(workers=1, threads=1)) as executor:
        assert executor.map(where, [1]) == [os.getpid()]
        assert executor.map(where, [1], in_child=True) != [os.getpid()]


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from hyperes.config import ExecutorConfig\n"
        "from hyperes.executors import Executor\n"
        "def work(folder):\n"
        "    open(os.path.join(folder, str(os.getpid())), 'w').close()\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        f"    Executor(ExecutorConfig(workers=2, threads=1)).map(work, [{str(tmp_path / 'pids')!r}] * 2)\n"
    )
    (tmp_path / "pids").mkdir()
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 60
    while len(pids := [int(path.name) for path in (tmp_path / "pids").iterdir()]) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
