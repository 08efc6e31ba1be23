"""Direction sources: each turns a subset (or nothing) into a PEFT adapter folder."""

from __future__ import annotations

import sys

STEPS_FILE = "steps.jsonl"  # beside the adapter: its history, one row a step, whatever its source


def on_wait(message: str) -> None:
    """What a child process says while another process makes the same direction; stdout is its parent's."""
    print(message, file=sys.stderr, flush=True)
