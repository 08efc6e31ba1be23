"""Linux calls that Python has no name for. Each raises OSError."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

SIGNAL_ON_PARENTS_DEATH, DUMPABLE, SECCOMP, CHILD_SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 22, 36, 38  # linux/prctl.h


def prctl(option: int, *values: int) -> None:
    padded = [*values, 0, 0, 0, 0][:4]
    _check(_libc.prctl(option, *map(ctypes.c_ulong, padded)), f"prctl {option}")


def syscall(number: int, *arguments: int | bytes | ctypes.Array | None) -> int:
    """A system call by number; integers are passed as longs, buffers by address."""
    longs = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *longs), f"system call {number}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    texts = [text.encode() for text in (source, target, kind)]
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def drop_capabilities() -> None:
    """Give up every privilege of root; with NO_NEW_PRIVILEGES set no later exec brings one back."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result
