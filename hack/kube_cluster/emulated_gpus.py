"""The emulated GPUs of a worker: the daemon, what it needs, and the CDI file that names them as nvidia-ctk would."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_emulator.control import Control
from gpu_emulator.device import make_uuid
from gpu_emulator.emulator import HOME as EMULATOR_HOME
from gpu_emulator.emulator import build_libraries

from kube_cluster.layout import DRIVER_LIBRARIES, NODE_GPUS, NodeFolder

# Where NVIDIA's own images look for the driver's libraries.
_CONTAINER_LIBRARIES = "/usr/local/nvidia/lib64"
_CONTAINER_DEVICES = "/dev"


@dataclass(frozen=True)
class EmulatedGpus:
    """``count`` GPUs with ``memory`` bytes each. The same ``seed`` gives the same UUIDs."""

    node: NodeFolder
    count: int
    memory: int
    seed: str

    @property
    def socket(self) -> Path:
        return self.node.gpus / "run/socket"

    @property
    def trace(self) -> Path:
        """What has happened to the GPUs since they are there, a JSON object a line (gpu_emulator.trace)."""
        return self.node.gpus / "trace.jsonl"

    @property
    def control(self) -> Control:
        """For tests: faults, snapshots and health."""
        return Control(self.socket)

    @property
    def uuids(self) -> list[str]:
        return gpu_uuids(self.seed, self.count)

    def install(self) -> None:
        """Libraries and commands into the node's folder, and the CDI file into its /etc/cdi."""
        libraries = build_libraries()
        self.node.gpus.mkdir(parents=True, exist_ok=True)
        shutil.copytree(libraries, self.node.gpus / "driver" / DRIVER_LIBRARIES, dirs_exist_ok=True)
        for name in ("dev", "run"):
            (self.node.gpus / name).mkdir(exist_ok=True)
        (self.node.etc / "cdi").mkdir(parents=True, exist_ok=True)
        (self.node.etc / "cdi/nvidia.json").write_text(json.dumps(cdi_file(self.uuids), indent=1))

    @property
    def environment(self) -> dict[str, str]:
        """Of the daemon."""
        return {"PYTHONPATH": str(EMULATOR_HOME)}

    def command(self) -> list[str]:
        """The daemon. It runs in the machine's own pid namespace, by whose pids it knows the processes of all pods."""
        options = {
            "--socket": self.socket,
            "--gpus": self.count,
            "--memory": self.memory,
            "--uuid-seed": self.seed,
            "--dev-root": self.node.gpus / "dev",
            "--trace": self.trace,
        }
        flat = [str(part) for option in options.items() for part in option]
        return [sys.executable, "-m", "gpu_emulator", *flat]


def gpu_uuids(seed: str, count: int) -> list[str]:
    """As the driver's tools print them."""
    return [f"GPU-{make_uuid(seed, index)}" for index in range(count)]


def cdi_file(uuids: list[str]) -> dict[str, Any]:
    """nvidia.com/gpu with a device for each index and UUID, and ``all``."""
    one = [_device(name, [index]) for index, uuid in enumerate(uuids) for name in (str(index), uuid)]
    return {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [*one, _device("all", list(range(len(uuids))))],
        "containerEdits": {
            "env": [
                "NVIDIA_VISIBLE_DEVICES=void",
                f"LD_LIBRARY_PATH={_CONTAINER_LIBRARIES}",
                f"GPU_EMULATOR_SOCKET={NODE_GPUS}/run/socket",
                f"GPU_EMULATOR_DEV_ROOT={_CONTAINER_DEVICES}",
            ],
            "mounts": [
                _mount(NODE_GPUS / "driver" / DRIVER_LIBRARIES, _CONTAINER_LIBRARIES, "ro"),
                _mount(NODE_GPUS / "run", f"{NODE_GPUS}/run", "ro"),
                _mount(NODE_GPUS / "dev/nvidiactl", f"{_CONTAINER_DEVICES}/nvidiactl", "rw"),
            ],
        },
    }


def _device(name: str, indexes: list[int]) -> dict[str, Any]:
    mounts = [
        _mount(NODE_GPUS / f"dev/nvidia{index}", f"{_CONTAINER_DEVICES}/nvidia{index}", "rw") for index in indexes
    ]
    return {"name": name, "containerEdits": {"mounts": mounts}}


def _mount(host: Path, container: str, access: str) -> dict[str, Any]:
    options = [access, "nosuid", "nodev", "rbind", "rprivate"]
    return {"hostPath": str(host), "containerPath": container, "options": options, "type": "bind"}
