"""How an orchestrator is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from timeslice_orchestrator.core.model import Settings


@dataclass(frozen=True)
class OrchestratorConfig:
    """What `Orchestrator` needs to know.

    Attributes:
        state_dir: where its state is kept; made when missing. One orchestrator at a time.
        listen: addresses, `unix:///path` or `host:port` (port 0: a free one). Anybody who reaches a TCP address may
            acquire, so name an interface that only the jobs and nodes reach.
        groups_file: see `discovery.groups_file`; None leaves the groups to the nodes.
        settings: time limits of the core.
    """

    state_dir: Path
    listen: tuple[str, ...]
    groups_file: Path | None = None
    settings: Settings = field(default_factory=Settings)
