"""What a process uses, read from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Resident memory, and what of it is no file's (bytes), threads, open descriptors, processor time (seconds)."""

    rss: int
    anonymous: int
    threads: int
    descriptors: int
    cpu_s: float


def usage(pid: int) -> Usage:
    """The present usage. Raises FileNotFoundError when the process has ended."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    ticks = (proc / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Usage(
        rss=int(status["VmRSS"].split()[0]) * 1024,
        anonymous=int(status["RssAnon"].split()[0]) * 1024,
        threads=int(status["Threads"]),
        descriptors=sum(1 for _ in (proc / "fd").iterdir()),
        cpu_s=sum(map(int, ticks)) / 100,
    )
