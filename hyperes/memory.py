"""How much main memory there is, for work that is refused rather than killed halfway."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def available(meminfo: Path = Path("/proc/meminfo"), group: Path = _GROUP) -> int | None:
    """Bytes that can be taken now: what the machine has left, or this container's limit; None where nobody tells."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        found.append(int(line.split()[1]) * 1024)
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            found.append(int((group / limit).read_text()) - int((group / used).read_text()))
    return max(0, min(found)) if found else None
