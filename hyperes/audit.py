"""How the judge came to a run's scores: ``python -m hyperes.audit RUN [--suite NAME] [--model base] [--show 10]``.

RUN is a run's folder or its result.json. For every suite it prints what the answers were found by, what was cut off,
and how far other judges would disagree, and then the disagreements with their texts, for a reader to decide.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from hyperes.errors import command
from hyperes.evaluation.records import Record
from hyperes.grading.crosscheck import second_opinions
from hyperes.runs import open_run
from hyperes.scores import suite_score


def disagreements(records: Sequence[Record]) -> list[tuple[Record, str]]:
    """Completions on which another judge says otherwise, with the reason."""
    opinions = second_opinions(
        [record.completion for record in records],
        [record.answer for record in records],
        [record.kind for record in records],
    )
    found = []
    for record, opinion in zip(records, opinions, strict=True):
        reasons = []
        if record.correct and record.rule != "hash" and record.kind == "numeric":
            reasons.append("right, but without ####: a strict judge says wrong")
        if opinion is not None and opinion != record.correct:
            other = "Math-Verify" if record.kind == "numeric" else "the numeric judge"
            reasons.append(f"{'right' if record.correct else 'wrong'}; {other} says {'right' if opinion else 'wrong'}")
        if reasons:
            found.append((record, "; ".join(reasons)))
    return found


def report(title: str, records: Sequence[Record], show: int) -> Iterator[str]:
    """The audit of one evaluation as lines."""
    score = suite_score(records)
    low, high = score["interval"]
    total = len(records)
    yield f"{title}: {score['n']} problems" + (f" x {score['samples']} samples" if score["samples"] > 1 else "")
    yield f"  accuracy {100 * score['accuracy']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    rules = ", ".join(f"{rule} {count}" for rule, count in score["rules"].items()) or "none"
    yield f"  answer found by: {rules}; nothing found {score['unanswered']}; cut off by the limit {score['truncated']}"
    flexible = sum(record.correct for record in records) / total
    yield f"  strict (only after ####) {100 * score['strict']:.1f} %, flexible {100 * flexible:.1f} %"
    odd = disagreements(records)
    yield f"  another judge disagrees on {len(odd)} of {total}" + (f", the first {show}:" if len(odd) > show else "")
    for record, reason in odd[:show]:
        yield ""
        yield f"  {record.problem}" + (f" sample {record.sample}" if score["samples"] > 1 else "") + f": {reason}"
        yield _field("question", record.question)
        yield _field("gold", record.answer)
        yield _field("taken", f"{record.extracted} ({record.rule})" if record.rule else "nothing")
        yield _field("completion", record.completion + (" …" if record.truncated else ""))
    yield ""


def _field(name: str, text: str) -> str:
    lines = [line for part in text.strip().splitlines() for line in textwrap.wrap(part, 100) or [""]]
    if len(lines) > 14:
        lines = [*lines[:4], f"[{len(lines) - 12} lines]", *lines[-8:]]
    return f"    {name:<10} " + "\n               ".join(lines or [""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's folder, or its result.json")
    parser.add_argument("--suite", action="append", help="only this suite (may be repeated)")
    parser.add_argument("--model", choices=("merged", "base"), help="whose completions; default: the run's own model")
    parser.add_argument("--show", type=int, default=10, help="disagreements to print per suite (default 10)")
    parser.add_argument("--store", type=Path, help="the run's store, where it is not the one its config names")
    arguments = parser.parse_args()

    def work() -> None:
        run = open_run(arguments.run, arguments.store)
        model = arguments.model or run.model
        name = run.name if model == "merged" else "base"
        for suite in arguments.suite or run.suites(model):
            records = run.records(suite, model)
            for line in report(f"{suite}, {name} on {run.result['backbone']['name']}", records, arguments.show):
                print(line)

    return command(work)


if __name__ == "__main__":
    sys.exit(main())
