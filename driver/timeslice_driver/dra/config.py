"""What the kubelet plugin is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

DEFAULT_RESERVE: Final = 4 << 30


@dataclass(frozen=True)
class PluginConfig:
    """The plugin's configuration.

    Attributes:
        node_name: of the Node object; also the name of the pool.
        orchestrator: address for the containers of claims; empty: none.
        state_dir: for what the plugin remembers; the two instances of a rolling update share it.
        sockets: the host's folder with a folder per claim, in which its containers find the node's socket.
        ca: file of the authorities that the orchestrator's certificate must be of, for those containers; None: none.
        mode: `auto` publishes lanes where they work, else slots.
        host_memory: for snapshots, on the whole node (bytes); None: what the node may allocate, less the reserve.
        host_memory_reserve: bytes of allocatable memory that are for no snapshot.
        pod_uid: of the plugin's own pod, which tells the two instances of a rolling update apart; empty: there is one.
        registry_dir, data_dir: the kubelet's folders for plugins; None: its defaults.
        cdi_dir: where CDI specs that come and go are; ours too.
        cdi_static_dir: where those of the machine are.
        dev_root, proc_root, sys_root: where device files, procfs and sysfs are.
        boot_id_file: names this boot of the machine; None for the kernel's own, below proc_root.
        libnvml: the driver's library; empty leaves the search to the dynamic linker.
        look_interval_s: between looks at the GPUs (seconds); the kubelet forgets their health after 30.
        clean_interval_s: between looks for claims whose object is gone (seconds).
    """

    node_name: str
    orchestrator: str = ""
    state_dir: Path = Path("/var/lib/timeslice/dra")
    sockets: Path = Path("/run/timeslice/claims")
    ca: Path | None = None
    mode: Literal["auto", "lanes", "slots"] = "auto"
    host_memory: int | None = None
    host_memory_reserve: int = DEFAULT_RESERVE
    pod_uid: str = ""
    registry_dir: Path | None = None
    data_dir: Path | None = None
    cdi_dir: Path = Path("/var/run/cdi")
    cdi_static_dir: Path = Path("/etc/cdi")
    dev_root: Path = Path("/dev")
    proc_root: Path = Path("/proc")
    sys_root: Path = Path("/sys")
    boot_id_file: Path | None = None
    libnvml: str = ""
    look_interval_s: float = 10.0
    clean_interval_s: float = 600.0
