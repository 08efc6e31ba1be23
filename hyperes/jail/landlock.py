"""Wall 2, Landlock: writes reach the program's own folder only, reads the interpreter and the system's libraries."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from hyperes.jail import system

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_LOOK = _EXECUTE | _READ | _LIST
_ALL = (1 << 15) - 1  # every right of version 3: reading, writing, making, removing, linking, truncating
_SCOPES = 3  # from version 6 on: no signal and no abstract socket reaches outside
READABLE = (
    *("/usr", "/lib", "/lib64", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/localtime", "/dev/zero", "/dev/urandom"),
)


def restrict(folder: str) -> None:
    """Bind this process, for good. Needs Landlock's version 3 (kernel 6.2): before, any file could be emptied."""
    version = system.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 3:
        raise OSError(f"Landlock is version {version}; 3 is needed")
    attributes = struct.pack("=Q", _ALL) if version < 6 else struct.pack("=QQQ", _ALL, 0, _SCOPES)
    rules = system.syscall(_CREATE_RULESET, ctypes.create_string_buffer(attributes), len(attributes), 0)
    _allow(rules, folder, _ALL)
    _allow(rules, "/dev/null", _READ | _WRITE)
    for path in {sys.base_prefix, sys.base_exec_prefix, *READABLE}:
        if os.path.exists(path):
            _allow(rules, path, _LOOK if os.path.isdir(path) else _READ)
    system.prctl(system.NO_NEW_PRIVILEGES, 1)
    system.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
    system.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
    os.close(place)
