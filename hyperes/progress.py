"""What a run shows: a bar with rate and time left on a terminal, one line per finished stage everywhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(ProgressColumn):
    """Items per second, or seconds per item where that reads better."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each")


class Bar:
    """One stage's progress."""

    def __init__(self, progress: Progress, total: int, label: str) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=total)
        self._started = time.monotonic()
        self.summary = ""

    def advance(self, done: int = 1) -> None:
        self._progress.advance(self._task, done)

    def set(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Show ``text`` behind the bar."""
        self._progress.update(self._task, note=text)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


@contextmanager
def stage(name: str, total: int) -> Iterator[Bar]:
    """A bar for a stage; when the stage is done, one line with ``bar.summary`` and the seconds it took."""
    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = Bar(progress, total, name)
        progress.update(task._task, note="")
        yield task
    print(f"{name:<11} {task.summary}  ({task.seconds:.1f} s)", flush=True)
