"""The one exception a user is meant to see."""


class UserError(Exception):
    """A mistake the user can mend: bad input, a missing file, an impossible combination.

    Its message is one clear line that names the file, key or line at fault and says what to do.
    ``python -m hyperes`` prints it without a traceback and exits with status 2.
    """


def first_line(error: BaseException) -> str:
    """The first line of a library's error, for a message of one line; its type's name where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
