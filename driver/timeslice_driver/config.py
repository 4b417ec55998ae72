"""What a node is told at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import gethostname
from typing import Literal

from timeslice_api.names import DEFAULT_GROUP
from timeslice_api.tls import TlsFiles

from timeslice_driver.backends.cuda import Limits
from timeslice_driver.groups import ALL
from timeslice_driver.preflight import Margins


@dataclass(frozen=True)
class NodeConfig:
    """A node's configuration.

    Attributes:
        state_dir: the journal's folder; made when it is missing, only for its owner.
        socket: path of the unix socket that jobs register on (at most 107 bytes).
        name: of the node, the same at every start; the host's by default.
        orchestrator: address to dial, `unix:///path` or `host:port`; empty when nobody drives the node but its socket.
        token_file: with the token that says to the orchestrator which node this is; empty when it needs none.
        tls: files for the way to the orchestrator; see timeslice_api.tls.
        groups: device ids of each group that the node declares, or "all"; an orchestrator's groups file wins over it.
        socket_mode: permissions of the socket; whoever may write to it may register processes.
        dev_root, proc_root, cgroup_root: where device files, procfs and cgroupfs are.
        boot_id_file: names this boot of the machine; None for the kernel's own, below proc_root.
        libcuda, libnvml: the driver's libraries; an empty `libnvml` leaves the search to the dynamic linker.
        cuda_checkpoint: the vendor's command, for drivers before 570.
        backend: `auto` takes the driver's functions where it has them, else the command.
        lock_timeout_s: for commands that bring none (seconds).
        look_interval_s: between looks for accelerator state that nobody announced (seconds).
        limits: of calls to the driver.
        margins: of host and device memory.
        require_persistence: refuse to park on a device without persistence mode.
    """

    state_dir: Path
    socket: Path
    name: str = field(default_factory=gethostname)
    orchestrator: str = ""
    token_file: str = ""
    tls: TlsFiles = field(default_factory=TlsFiles)
    groups: Mapping[str, Sequence[str] | str] = field(default_factory=lambda: {DEFAULT_GROUP: ALL})
    socket_mode: int = 0o600
    dev_root: Path = Path("/dev")
    proc_root: Path = Path("/proc")
    cgroup_root: Path = Path("/sys/fs/cgroup")
    boot_id_file: Path | None = None
    libcuda: str = "libcuda.so.1"
    libnvml: str = ""
    cuda_checkpoint: str = "cuda-checkpoint"
    backend: Literal["auto", "cuda", "cuda-checkpoint"] = "auto"
    lock_timeout_s: float = 30.0
    look_interval_s: float = 2.0
    limits: Limits = field(default_factory=Limits)
    margins: Margins = field(default_factory=Margins)
    require_persistence: bool = True
