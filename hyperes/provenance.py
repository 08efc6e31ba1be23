"""Where a result came from: recorded beside it, never part of its identity."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import hyperes

LIBRARIES = "torch transformers peft trl datasets nevergrad cma numpy safetensors math-verify lm-eval ray vllm"


@cache
def provenance() -> dict[str, Any]:
    """Versions of Python and of the libraries, read without importing them, and the checkout's git commit."""
    versions = {"hyperes": hyperes.__version__, "python": platform.python_version()}
    for name in LIBRARIES.split():
        try:
            versions[name] = installed_version(name)
        except PackageNotFoundError:
            continue
    return {"versions": versions, "commit": _commit()}


def _commit() -> str | None:
    """The commit of the checkout that hyperes runs from, "-dirty" where files differ from it; None outside of one."""
    checkout = Path(__file__).resolve().parents[1]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
