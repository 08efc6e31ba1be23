"""The one exception a user is meant to see, and how a command shows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """A mistake the user can mend: bad input, a missing file, an impossible combination.

    Its message is one clear line that names the file, key or line at fault and says what to do.
    ``python -m hyperes`` prints it without a traceback and exits with status 2.
    """


def command(work: Callable[[], None]) -> int:
    """A command's exit status: a UserError becomes one line on stderr and 2, a closed pipe (``| head``) is no error."""
    try:
        work()
        sys.stdout.flush()
    except UserError as error:
        print(f"hyperes: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
    return 0


def first_line(error: BaseException) -> str:
    """The first line of a library's error, for a message of one line; its type's name where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
