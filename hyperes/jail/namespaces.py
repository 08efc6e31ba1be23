"""Wall 1, namespaces: no other process in reach, no network, and nothing writable but one small folder in memory."""

from __future__ import annotations

import ctypes
import os
import struct

from hyperes.jail import system

_USER, _MOUNT, _PROCESSES, _NETWORK, _IPC = 0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000
_RECURSIVE, _PRIVATE, _BIND = 0x4000, 0x40000, 0x1000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_READ_ONLY, _NO_SETUID, _NO_DEVICES = 1, 2, 4


def enter(folder: str, size: int) -> None:
    """Move this process into its own namespaces; its next child is their first process, and they end with it.

    Everything is mounted read-only, with no device but /dev/null, and ``folder`` becomes an empty file system of
    ``size`` bytes in memory, which vanishes with them. Needs a kernel from 5.12 on that grants user namespaces, to root
    or to everybody.
    """
    user, group = os.getuid(), os.getgid()
    system.unshare(_USER | _MOUNT | _PROCESSES | _NETWORK | _IPC)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as stream:
            stream.write(text)
    system.mount("none", "/", "", _RECURSIVE | _PRIVATE)
    system.mount("/dev/null", "/dev/null", "", _BIND)
    _set("/", _AT_RECURSIVE, _READ_ONLY | _NO_SETUID | _NO_DEVICES, 0)
    _set("/dev/null", 0, 0, _NO_DEVICES)
    system.mount("tmpfs", folder, "tmpfs", _NO_SETUID | _NO_DEVICES, f"size={size},nr_inodes=1024,mode=700")


def _set(path: str, flags: int, on: int, off: int) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", on, off, 0, 0))
    system.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, 32)
