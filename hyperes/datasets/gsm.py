"""The grade-school family: GSM8K, GSM8K-Aug, SVAMP, MultiArith, GSM-Hard. One number answers each."""

from __future__ import annotations

from hyperes.datasets.rows import Entry, Row


def gsm8k(row: Row) -> Entry:
    """openai/gsm8k and grade-school-math: the answer ends in ``#### NUMBER``; each ``<<…>>`` in it is one hop."""
    question, (chain, answer) = row.text("question"), _split(row, row.text("answer"))
    return Entry(question, answer, "numeric", chain.count("<<"))


def gsm8k_aug(row: Row) -> Entry:
    """A text line ``QUESTION||<<…>> <<…>> #### NUMBER``, or the hub's columns question, steps (or cot) and answer.

    The chain is that of da03/Internalize_CoT_Step_by_Step, where some problems have none (0 hops); the hub's
    whynlp/gsm8k-aug gives its steps as a list, zen-E/GSM8k-Aug as one text.
    """
    if isinstance(row.value, str):
        question, bars, rest = row.value.rpartition("||")
        if not bars or not question.strip():
            raise row.error("expected QUESTION||STEPS #### NUMBER")
        chain, answer = _split(row, rest)
        return Entry(question.strip(), answer, "numeric", chain.count("<<"))
    column = next((name for name in ("steps", "cot") if row.has(name)), None)
    steps = row.value[column] if column else None
    if isinstance(steps, str):
        hops = steps.count("<<")
    elif isinstance(steps, list):
        hops = len(steps)
    else:
        raise row.error("expected an object with a list or a text in 'steps' or 'cot'")
    return Entry(row.text("question"), row.number_in(row.value.get("answer")), "numeric", hops)


def svamp(row: Row) -> Entry:
    """arkilpatel/SVAMP and ChilleD/SVAMP: what is told and what is asked stand in two fields."""
    question = f"{row.text('Body')} {row.text('Question')}"
    return Entry(question, row.number_in(row.value.get("Answer")), "numeric")


def multiarith(row: Row) -> Entry:
    """MAWPS as in zero_shot_cot (sQuestion, lSolutions of one number), or ChilleD/MultiArith (question, final_ans)."""
    question = row.text("sQuestion", "question")
    solutions = row.value.get("lSolutions", [row.value.get("final_ans")])
    if not isinstance(solutions, list) or len(solutions) != 1:
        raise row.error(f"expected one number in 'lSolutions', not {solutions!r}")
    return Entry(question, row.number_in(solutions[0]), "numeric")


def gsm_hard(row: Row) -> Entry:
    """reasoning-machines/gsm-hard: input and target, which is a double and need not be whole or positive."""
    return Entry(row.text("input"), row.number_in(row.value.get("target")), "numeric")


def _split(row: Row, text: str) -> tuple[str, str]:
    """The chain before the last ``####``, and the number after it."""
    chain, mark, answer = text.rpartition("####")
    if not mark or not answer.strip():
        raise row.error("'answer' does not end in '#### <number>'")
    return chain, row.number_in(answer)
