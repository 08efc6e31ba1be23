"""Hostile programs, for real: none harms anything, none passes, and nothing of them is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from hyperes.jail import calls
from hyperes.sandbox import Limits, run, run_many, run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

SHORT = Limits(cpu_seconds=1, seconds=2)
ALL = ("namespaces", "landlock", "calls")
FALLBACK = ("landlock", "calls")  # what a container without privileges grants


def need(walls: tuple[str, ...]) -> None:
    missing = set(walls) - set(run.walls())
    if missing:
        pytest.skip(f"this machine does not grant {', '.join(missing)}")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Programs get their folders in here; afterwards no file and no process of them is left."""
    run.walls()
    place = tmp_path / "folders"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert not survivors(place)
    assert not list(place.iterdir())


def survivors(place: Path) -> list[int]:
    """Processes that have ``place`` in their environment, as every process forked from a program has."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(place).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # ended meanwhile
            continue
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("walls", [ALL, ("namespaces",), ("landlock",), ("calls",), FALLBACK, ()])
def test_an_honest_program_passes_behind_any_wall(walls: tuple[str, ...]) -> None:
    need(walls)
    code = "import re, math, typing, collections, random, heapq\ndef f(x):\n    print(x)\n    return math.sqrt(x)\n"
    own = "import tempfile\nwith tempfile.TemporaryDirectory() as d:\n    open(d + '/x', 'w').write('y')\n"
    null = "open('/dev/null', 'w').write('x')\n"
    assert run_program([code + own + null, "assert f(4) == 2"], among=walls).passed
    wrong = run_program([code, "assert f(4) == 3, 'it is\\ntwo'"], among=walls)
    assert (wrong.passed, wrong.reason) == (False, "AssertionError: it is")


LEAVES_EARLY = {
    "sys.exit": "import sys; sys.exit(0)",
    "os._exit": "import os; os._exit(0)",
    "SystemExit": "raise SystemExit",
    "says so": """
import os
for fd in range(64):
    try: os.write(fd, b'started\\npassed\\n')
    except OSError: pass
os._exit(0)
""",
    "kills itself": "import os; os.kill(os.getpid(), 9)",
    "kills its parent": "import os, time\nos.kill(os.getppid(), 9)",
    "kills its group": "import os; os.killpg(0, 9)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "cannot be described": "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E",
    "recurses": "def f(): f()\nf()",
    "reads stdin": "input()",
    "allocates": "x = 'x' * (1 << 31)",
    "sleeps": "import time; time.sleep(60)",
    "loops": "while True: pass",
    "loops through the signal": "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
    "prints": "while True: print('x' * 1000)",
    "floods every descriptor": """
import os
for fd in range(3, 64):
    try:
        while True: os.write(fd, b'x' * 65536)
    except OSError: pass
""",
    "writes a huge file": "with open('x', 'wb') as f:\n    while True: f.write(b'x' * 65536)",
    "swallows the tests": "x = '''",
    "skips the tests": "if 0:\\",
    "replaces builtins": """
import builtins
for name in list(vars(builtins)): setattr(builtins, name, lambda *a, **k: True)
""",
    "replaces os": """
import os, sys
for name in ('read', 'write', '_exit'): setattr(os, name, lambda *a: b'passed')
sys.modules['os'] = None
""",
    "makes locked folders": """
import os
for i in range(3):
    os.makedirs(f'a{i}/b/c')
    os.mkdir(f'a{i}/d', 0)
    os.mkdir(f'a{i}/e', 0o300)
    open(f'a{i}/e/f', 'w')
""",
}


@pytest.mark.parametrize("walls", [ALL, FALLBACK])
def test_who_ends_before_the_tests_or_spoils_them_has_not_passed(walls: tuple[str, ...]) -> None:
    need(walls)
    for name, source in LEAVES_EARLY.items():
        started = time.monotonic()
        outcome = run_program([source, "assert 1 == 2"], SHORT, among=walls)
        assert not outcome.passed, name
        assert time.monotonic() - started < 10, name


def test_reasons_are_said() -> None:
    sources = [LEAVES_EARLY[name] for name in ("os._exit", "SystemExit", "crashes", "sleeps", "loops", "allocates")]
    reasons = [outcome.reason for outcome in run_many([[source] for source in sources], SHORT)]
    assert reasons == [
        "ended before its tests did",
        "SystemExit",
        "ended by SIGSEGV",
        "not finished after 2 s",
        "not finished after 1 s of CPU time",
        "MemoryError",
    ]


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(64):
            try: os.close(fd)
            except OSError: pass
        time.sleep(60)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("walls", [ALL, ("namespaces",), ("landlock",), FALLBACK, ()])
@pytest.mark.parametrize("end", ["", "os._exit(0)", "time.sleep(60)"])
def test_no_process_survives_its_program(walls: tuple[str, ...], end: str, folders: Path) -> None:
    need(walls)
    outcome = run_program([DAEMON, end], Limits(seconds=1), among=walls)
    assert outcome.passed == (not end and "calls" not in walls)
    assert not survivors(folders)


@pytest.mark.parametrize("walls", [ALL, FALLBACK])
def test_a_fork_bomb_does_not_go_off(walls: tuple[str, ...]) -> None:
    need(walls)
    bomb = (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: os.write(99, b'') if os.getpid() < 0 else None"
    )
    assert not run_program([bomb], SHORT, among=walls).passed
    assert "PermissionError" in run_program(["import os\nos.fork()"], SHORT, among=walls).reason
    assert "can't start new thread" in run_program(["import threading\nthreading.Thread().start()"], among=walls).reason


CHANGES = {
    "overwrite": "open(path, 'w').write('gone')",
    "append": "open(path, 'a').write('more')",
    "truncate": "import os; os.truncate(path, 0)",
    "remove": "import os; os.remove(path)",
    "rename": "import os; os.rename(path, path + '2')",
    "neighbour": "open(path + '3', 'w')",
    "link": "import os; os.symlink('x', path + '4')",
    "folder": "import os; os.mkdir(path + '5')",
    "remount": "import ctypes; ctypes.CDLL(None).mount(b'x', b'/', b'', 0x1020, None)\nopen(path, 'w')",
}
ATTRIBUTES = {
    "mode": "import os; os.chmod(path, 0)",
    "times": "import os; os.utime(path, (0, 0))",
    "attribute": "import os; os.setxattr(path, 'user.x', b'y')",
}


@pytest.mark.parametrize("walls", [ALL, ("namespaces",), ("landlock",), FALLBACK])
def test_files_outside_stay_as_they_are(walls: tuple[str, ...], tmp_path: Path) -> None:
    need(walls)
    victim = tmp_path / "run" / "result.json"
    victim.parent.mkdir()
    victim.write_text("kept")
    before = victim.stat(), victim.parent.stat()
    attempts = CHANGES | (ATTRIBUTES if walls != ("landlock",) else {})
    for name, attempt in attempts.items():
        outcome = run_program([f"path = {str(victim)!r}", attempt], SHORT, among=walls)
        assert not outcome.passed, name
        assert victim.read_text() == "kept", name
    after = victim.stat(), victim.parent.stat()
    assert [(s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for s in before] == [
        (s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for s in after
    ]
    if "landlock" in walls:
        assert not run_program([f"open({str(victim)!r}).read()"], among=walls).passed


def test_a_program_fills_no_disk() -> None:
    need(("namespaces",))
    fill = "import itertools\nfor i in itertools.count(): open(str(i), 'wb').write(bytes(1 << 20))"
    assert "No space left" in run_program([fill], SHORT).reason


@pytest.mark.parametrize("walls", [ALL, ("namespaces",), ("calls",)])
def test_there_is_no_network(walls: tuple[str, ...]) -> None:
    need(walls)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        port = server.getsockname()[1]
        dial = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)"
        assert not run_program([dial], SHORT, among=walls).passed
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("walls", [ALL, ("namespaces",), ("calls",)])
def test_other_processes_are_out_of_reach(walls: tuple[str, ...]) -> None:
    need(walls)
    with subprocess.Popen(["sleep", "60"]) as victim:
        by_detour = f"""
read, write = os.pipe()
fcntl.fcntl(read, fcntl.F_SETOWN, {victim.pid})
fcntl.fcntl(read, 10, 9)  # F_SETSIG
fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
os.write(write, b'x')
"""
        attempts = [
            f"os.kill({victim.pid}, 9)",
            f"os.setpriority(os.PRIO_PROCESS, {victim.pid}, 19)",
            f"resource.prlimit({victim.pid}, resource.RLIMIT_CPU, (1, 1))",
            by_detour,
            f"os.kill({os.getpid()}, 9)",
        ]
        if walls != ("calls",):  # files are landlock's
            attempts.append(f"open('/proc/{victim.pid}/mem', 'r+b')")
        try:
            for attempt in attempts:
                assert not run_program(["import os, resource, fcntl", attempt], SHORT, among=walls).passed, attempt
            assert victim.poll() is None
        finally:
            victim.kill()


@pytest.mark.parametrize("walls", [ALL, FALLBACK])
def test_the_guard_and_its_token_are_out_of_reach(walls: tuple[str, ...]) -> None:
    need(walls)
    look = "import os\nopen(f'/proc/{os.getppid() or 1}/mem', 'rb')"
    assert not run_program([look], among=walls).passed
    # What the frames, objects and descriptors of the process hold before its end is no proof of a pass.
    guess = """
import gc, os, sys
frame, seen = sys._getframe(), []
while frame: seen += [v for v in frame.f_locals.values() if type(v) in (bytes, str)]; frame = frame.f_back
seen += [o for o in gc.get_objects() if type(o) is bytes] + list(os.environ.values()) + sys.argv
for text in seen:
    data = text if type(text) is bytes else text.encode()
    for fd in range(3, 64):
        if len(data) == 16:
            try: os.write(fd, data)
            except OSError: pass
os._exit(0)
"""
    assert not run_program([guess], SHORT, among=walls).passed


@pytest.mark.parametrize("walls", [ALL, FALLBACK])
@pytest.mark.parametrize("whom", ["caller", "launcher"])
def test_nothing_outlives_a_killed_caller_or_launcher(walls: tuple[str, ...], whom: str, folders: Path) -> None:
    need(walls)
    code = (
        f"import tempfile; tempfile.tempdir = {str(folders)!r}\n"
        "from hyperes.sandbox import run_program, Limits\n"
        f"print(run_program(['while True: pass'], Limits(cpu_seconds=60, seconds=60), {walls!r}).passed)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as caller:
        wait_until(lambda: len(survivors(folders)) >= 3)
        time.sleep(0.2)
        if whom == "caller":
            caller.kill()
        else:
            os.kill(min(survivors(folders)), signal.SIGKILL)
            assert caller.communicate(timeout=10)[0] == "False\n"
        wait_until(lambda: not survivors(folders))
    for folder in folders.iterdir():  # a killed caller leaves an empty folder
        folder.rmdir()


def test_the_same_program_has_the_same_hashes_each_time() -> None:
    order = "assert list({'a', 'b', 'c', 'd', 'e'}) == ORDER"
    found = run_program(["raise ValueError(list({'a', 'b', 'c', 'd', 'e'}))"]).reason.partition(": ")[2]
    assert all(outcome.passed for outcome in run_many([[f"ORDER = {found}\n# {i}", order] for i in range(6)]))


def test_many_keep_their_order_and_equal_ones_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    real = run.run_program

    def counted(parts: tuple[str, ...], limits: Limits) -> run.Outcome:
        ran.append(parts)
        return real(parts, limits)

    monkeypatch.setattr(run, "run_program", counted)
    programs = [[f"assert {i % 6} < 3"] for i in range(18)]
    assert [outcome.passed for outcome in run_many(programs, workers=3)] == [i % 6 < 3 for i in range(18)]
    assert len(ran) == 6
    assert run_many([]) == []


def test_a_broken_sandbox_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_BOOT", "raise SystemExit('no room')")
    with pytest.raises(RuntimeError, match="did not start: no room"):
        run_program(["pass"])
    monkeypatch.setattr(run, "_BOOT", "import time; time.sleep(60)")
    monkeypatch.setattr(run, "START_LIMIT", 0.2)
    with pytest.raises(RuntimeError, match="did not start"):
        run_program(["pass"], Limits(seconds=0.1))


def test_missing_walls_are_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    real = run._launch
    refused = {"namespaces", "calls"}

    def launch(job: dict[str, object], folder: str) -> tuple[bytes, str]:
        return (b"", "unshare: not permitted") if refused & set(job["walls"]) else real(job, folder)  # type: ignore[call-overload]

    monkeypatch.setattr(run, "_launch", launch)
    run.walls.cache_clear()
    try:
        assert all(outcome.passed for outcome in run_many([["pass"], ["1"]]))
        assert run.walls() == ("landlock",)
    finally:
        run.walls.cache_clear()
    (said,) = caplog.messages
    assert "the network is not cut off, a program can start and signal processes" in said
    assert "any file" not in said


def test_run_program_may_be_called_from_threads() -> None:
    outcomes: list[bool] = []
    threads = [threading.Thread(target=lambda: outcomes.append(run_program(["pass"]).passed)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 3


def test_system_call_numbers_are_linuxs() -> None:
    headers = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h")]
    conditional = {name: rule[0] for name, rule in (calls.REFUSED_WITH | calls.REFUSED_UNLESS).items()}
    for column, header in enumerate(headers):
        if not header.is_file():
            pytest.skip(f"{header} is not installed")
        numbers = {
            name: int(value) for name, value in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
        }
        for name, pair in (calls.REFUSED | conditional).items():
            assert pair[column] == numbers.get(name), (header, name)
