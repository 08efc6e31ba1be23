"""The one prompt of the paper (Appendix B), for rollouts, fitness and tests alike."""

from __future__ import annotations

SYSTEM_PROMPT = 'Let\'s think step by step and output the final answer after "####".'


def messages(question: str) -> list[dict[str, str]]:
    """Chat turns of one question: the paper's system prompt, then the question as the user."""
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
