"""Wall 3, a filter of system calls (seccomp): one process, one thread, no socket, no hand on other processes.

Refused is what a process without privileges could do to others of its user; what takes privileges is refused by the
kernel once they are dropped.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from hyperes.jail import system

# The system's number for x86-64, then arm64; None where that machine has no such call (asm/unistd_64.h and
# asm-generic/unistd.h).
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # processes and threads
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execve": (59, 221),
    "execveat": (322, 281),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "unshare": (272, 97),
    "setns": (308, 268),
    # the network
    "socket": (41, 198),
    "io_uring_setup": (425, 425),  # it would open sockets past this filter
    # other processes
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    # modes, owners, times and locks of files, which Landlock leaves open
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "flock": (73, 32),
    # what outlives a process or escapes its memory limit
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # doors that have let many an attacker into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}

# Refused only where an argument, by its index, has one of these values ...
REFUSED_WITH: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, (8, 15)),  # F_SETOWN, F_SETOWN_EX: a signal to another process, by a detour
    "ioctl": ((16, 29), 1, (0x8901, 0x8902)),  # FIOSETOWN, SIOCSPGRP: the same
    "prctl": ((157, 167), 0, (system.SIGNAL_ON_PARENTS_DEATH,)),
}
# ... or has any other than this one.
REFUSED_UNLESS: dict[str, tuple[tuple[int, int], int, int]] = {
    "prlimit64": ((302, 261), 0, 0),  # limits of another process
}

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above; linux/audit.h
_NEWER = 450  # calls added to Linux after these lists were drawn up do not exist in here
_X32 = 0x40000000  # the second set of numbers of x86-64

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_REFUSE = _ERROR | errno.EPERM


def restrict() -> None:
    """Put the filter on this process, for good. Raises OSError on a machine whose numbers are not known."""
    machine = os.uname().machine
    if machine not in MACHINES or struct.calcsize("P") != 8:
        raise OSError(f"no system call numbers for {machine}")
    code = b"".join(struct.pack("=HBBI", *step) for step in program(*MACHINES[machine]))
    steps = ctypes.create_string_buffer(code)
    head = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(steps)))
    system.prctl(system.NO_NEW_PRIVILEGES, 1)
    system.prctl(system.SECCOMP, 2, ctypes.addressof(head))


def program(column: int, architecture: int) -> list[tuple[int, int, int, int]]:
    """The filter: (operation, steps skipped if true, if false, operand) of each step."""
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        (_AT_LEAST, 0, 1, _NEWER),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    for pair, index, values in REFUSED_WITH.values():
        steps += [(_EQUAL, 0, 2 + 2 * len(values), pair[column]), (_LOAD, 0, 0, _ARGUMENTS + 8 * index)]
        for value in values:
            steps += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _REFUSE)]
        steps += [(_RETURN, 0, 0, _ALLOW)]
    for pair, index, value in REFUSED_UNLESS.values():
        steps += [(_EQUAL, 0, 4, pair[column]), (_LOAD, 0, 0, _ARGUMENTS + 8 * index)]
        steps += [(_EQUAL, 1, 0, value), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
