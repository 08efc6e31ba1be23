"""Symbolic grading with the real Math-Verify: expressions, hangs, crashes, threads, forks, orphans, real answers."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import DATA, needs_data

from hyperes.grading import grade, grade_many
from hyperes.grading.numeric import plain_number
from hyperes.grading.pool import Pool, default_pool
from hyperes.grading.symbolic import as_math

RIGHT, WRONG = True, False
TOWER = r"10^{10^{10}}"  # Math-Verify would expand it: it never answers

# completion, gold answer, intended verdict, rule that finds it, reason
CASES: list[tuple[str, str, bool, str | None, str]] = [
    ("#### $q - p + 2p$", "p + q", RIGHT, "hash", "algebraically equal"),
    ("#### p - q", "p + q", WRONG, "hash", "another expression"),
    ("\\boxed{\\frac{28}{6}}", "\\frac{14}{3}", RIGHT, "boxed", "an unreduced fraction"),
    ("\\boxed{\\frac{14}{6}}", "\\frac{14}{3}", WRONG, "boxed", "another fraction"),
    ("\\boxed{\\dfrac{\\sqrt{3}}{3}}", "\\frac{1}{\\sqrt{3}}", RIGHT, "boxed", "a rationalised root"),
    ("\\boxed{\\sqrt{52}}", "2\\sqrt{13}", RIGHT, "boxed", "a root in another form"),
    ("\\boxed{-2, 1}", "1,-2", RIGHT, "boxed", "a set in another order"),
    ("The solutions are $-2$ and $1$. The answer is $1$ and $-2$.", "1,-2", RIGHT, "phrase", "a set in words"),
    ("\\boxed{\\left(3, \\tfrac{\\pi}{2}\\right)}", "( 3, \\frac{\\pi}{2} )", RIGHT, "boxed", "a pair, dressed"),
    ("\\boxed{(3, \\pi)}", "( 3, \\frac{\\pi}{2} )", WRONG, "boxed", "another pair"),
    ("\\boxed{(3,4)}", "(3,4]", WRONG, "boxed", "an open interval is not a half-open one"),
    ("\\boxed{1 + \\sqrt{19}, 1 - \\sqrt{19}}", "1 \\pm \\sqrt{19}", RIGHT, "boxed", "plus-minus written out"),
    ("\\boxed{x = 5}", "5", RIGHT, "boxed", "an assignment against its value"),
    ("\\boxed{5}", "x=5", RIGHT, "boxed", "a value against its assignment"),
    ("\\boxed{\\text{Evelyn}}", "\\text{Evelyn}", RIGHT, "boxed", "a name"),
    ("The answer is Evelyn.", "\\text{Evelyn}", RIGHT, "phrase", "a name in a sentence"),
    ("\\boxed{\\text{Carla}}", "\\text{Evelyn}", WRONG, "boxed", "another name"),
    ("#### (C)", "\\text{(C)}", RIGHT, "hash", "a choice"),
    ("#### (B)", "\\text{(C)}", WRONG, "hash", "another choice"),
    ("\\boxed{52_{8}}", "52_8", RIGHT, "boxed", "a numeral with its base in braces"),
    ("\\boxed{52_9}", "52_8", WRONG, "boxed", "the same digits in another base"),
    ("\\boxed{53_8}", "52_8", WRONG, "boxed", "other digits in the same base"),
    ("\\boxed{32,348}", "\\$32,\\!348", RIGHT, "boxed", "plain numbers, dressed: no Math-Verify"),
    ("\\boxed{18.9}", "\\$18.90", RIGHT, "boxed", "cents"),
    ("\\boxed{90}", "90^\\circ", RIGHT, "boxed", "degrees"),
    ("\\boxed{864\\text{ in}^2}", "864 \\mbox{ inches}^2", RIGHT, "boxed", "a squared unit"),
    ("\\boxed{28\\%}", "28", RIGHT, "boxed", "percent"),
    ("\\boxed{27}", "27.0", RIGHT, "boxed", "AMC's whole floats"),
    ("\\boxed{\\frac{9}{5}}", "1\\frac{4}{5}", RIGHT, "boxed", "a mixed number"),
    ("\\boxed{6.72 \\times 10^{-5}}", ".0000672", RIGHT, "boxed", "scientific notation"),
    ("\\boxed{\\begin{pmatrix}-1&0\\\\0&-1\\end{pmatrix}}", "\\begin{pmatrix} -1 & 0 \\\\ 0 & -1 \\end{pmatrix}",
     RIGHT, "boxed", "a matrix"),
    ("#### Step 2: add\nWe find $x^2+1$ at last.", "1+x^2", RIGHT, "last", "a heading is passed over"),
    ("The value is $3\\pi$.", "3\\pi", RIGHT, "last", "the last formula"),
    ("From $x = 2$ we get 7 of them", "7", RIGHT, "last", "a number after the last formula"),
    ("We get 7. \\boxed{\\frac{1}{2", "7", RIGHT, "last", "a box cut off falls through"),
    ("So \\[ \\boxed{2k+2} \\]", "2(k+1)", RIGHT, "boxed", "display math"),
    ("no idea", "2k", WRONG, None, "nothing to read"),
    ("\\boxed{" + "x+" * 3000 + "1}", "1", WRONG, "boxed", "overlong: never put to Math-Verify"),
]  # fmt: skip


@pytest.mark.parametrize(("completion", "answer", "correct", "rule", "reason"), CASES, ids=[case[4] for case in CASES])
def test_case(completion: str, answer: str, correct: bool, rule: str | None, reason: str) -> None:
    verdict = grade(completion, answer, "symbolic")
    assert (verdict.correct, verdict.rule) == (correct, rule), f"{reason}: {verdict}"


def test_rows_keep_their_order_and_kind() -> None:
    completions = ["#### 5", "\\boxed{2(k+1)}", "#### 6", "\\boxed{k}", "\\boxed{2(k+1)}"]
    answers = ["5", "2k+2", "5", "2k+2", "2k+2"]
    verdicts = grade_many(completions, answers, ["numeric", "symbolic", "numeric", "symbolic", "symbolic"])
    assert [verdict.correct for verdict in verdicts] == [True, True, False, False, True]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(size=1, time_limit=2.0)
    yield pool
    pool.close()


def worker_of(pool: Pool) -> subprocess.Popen[bytes]:
    assert pool.verify("$2k+2$", "$2(k+1)$")
    return pool._idle[0].process


def test_hang_is_wrong_logged_and_replaced(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    first = worker_of(pool)
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="hyperes.grading.pool"):
        assert not pool.verify("$5$", f"${TOWER}$")
    assert time.monotonic() - start < 4
    assert TOWER in caplog.text
    assert "no verdict after 2.0 s" in caplog.text
    assert first.poll() is not None, "the hanging process was left running"
    assert worker_of(pool).pid != first.pid


def test_crash_inside_a_case_is_wrong_and_logged(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    killer = threading.Timer(0.3, worker_of(pool).kill)
    killer.start()
    with caplog.at_level(logging.WARNING, logger="hyperes.grading.pool"):
        assert not pool.verify("$5$", f"${TOWER}$")
    killer.join()
    assert "counted as wrong" in caplog.text
    assert "no verdict" not in caplog.text


def test_worker_killed_while_idle_costs_no_case(pool: Pool) -> None:
    idle = worker_of(pool)
    idle.kill()
    idle.wait()
    assert worker_of(pool).pid != idle.pid


def test_workers_are_reused_and_light(pool: Pool) -> None:
    process = worker_of(pool)
    assert pool.verify_many([(f"$k+{n}$", f"${n}+k$") for n in range(20)]) == [True] * 20
    assert worker_of(pool).pid == process.pid
    if sys.platform == "linux":
        maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
        assert "python" in maps
        assert "torch" not in maps


def test_calls_from_many_threads_do_not_mix_verdicts() -> None:
    wrong: list[int] = []

    def ask(n: int) -> None:
        if not grade(f"\\boxed{{k+{n}}}", f"{n}+k", "symbolic").correct:
            wrong.append(n)
        if grade(f"\\boxed{{k+{n}}}", f"{n + 1}+k", "symbolic").correct:
            wrong.append(n)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_worker_that_cannot_start_is_an_error_not_a_wrong_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('broken installation')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="broken installation"):
        Pool(size=1).verify("$x$", "$x$")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_does_not_share_its_parents_workers() -> None:
    assert default_pool().verify("$2k+2$", "$2(k+1)$")
    code = (
        "import os, sys\n"
        "from hyperes.grading.pool import default_pool\n"
        "assert default_pool().verify('$2k+2$', '$2(k+1)$')\n"
        "mine = default_pool()._idle[0].process.pid\n"
        "if child := os.fork():\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "good = default_pool().verify('$2k+2$', '$2(k+1)$') and default_pool()._idle[0].process.pid != mine\n"
        "default_pool().close()\n"
        "os._exit(0 if good else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], timeout=60).returncode == 0


@pytest.mark.parametrize("case", ["idle", "hanging"])
def test_workers_do_not_outlive_a_killed_parent(case: str) -> None:
    code = (
        "import time\n"
        "from hyperes.grading.pool import Worker\n"
        "worker = Worker(1.0)\n"
        "print(worker.process.pid, flush=True)\n"
        + (f"worker.connection.send(('$5$', r'${TOWER}$'))\n" if case == "hanging" else "")
        + "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 8
    while running(worker):
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)


def running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")  # an orphan that ended may stay a zombie where no init reaps it
    return not status.exists() or status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


def math500() -> list[str]:
    return [row["answer"] for row in json.loads((DATA / "math" / "math500.json").read_text(encoding="utf-8"))]


def amc23() -> list[str]:
    lines = (DATA / "amc23" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["answer"]) for line in lines]


@needs_data
@pytest.mark.parametrize(
    "place", ["#### {}", "#### ${}$", "so $\\boxed{{{}}}$.", "Then the answer is ${}$.", "get ${}$"]
)
@pytest.mark.parametrize("answers", [math500, amc23], ids=["math500", "amc23"])
def test_gold_answers_are_correct_in_every_place(answers: Callable[[], list[str]], place: str) -> None:
    golds = answers()
    verdicts = grade_many([place.format(gold) for gold in golds], golds, ["symbolic"] * len(golds))
    assert [pair for pair in zip(golds, verdicts, strict=True) if not pair[1].correct] == []


@needs_data
def test_math_verify_itself_accepts_gold_answers() -> None:
    golds = sorted({gold for gold in math500() if plain_number(gold) is None})[::2]
    assert len(golds) > 50
    verdicts = default_pool().verify_many([(as_math(gold), as_math(gold)) for gold in golds])
    assert [gold for gold, correct in zip(golds, verdicts, strict=True) if not correct] == []


@needs_data
@pytest.mark.parametrize(("answers", "step"), [(math500, 8), (amc23, 1)], ids=["math500", "amc23"])
def test_neighbours_answers_are_wrong(answers: Callable[[], list[str]], step: int) -> None:
    golds = answers()
    rows = [(mine, other) for mine, other in zip(golds, golds[1:] + golds[:1], strict=True) if mine != other][::step]
    verdicts = grade_many(
        [f"\\boxed{{{mine}}}" for mine, _ in rows], [other for _, other in rows], ["symbolic"] * len(rows)
    )
    # MATH-500 has the neighbours 5 and x=5, which state one value.
    equal = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict.correct and row != ("5", "x=5")]
    assert equal == []
