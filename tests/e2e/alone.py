"""The example's RL job, as a pod, and what comes of the same job when it runs alone and without Kubernetes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import manifests
from gpu_emulator import Emulator
from reading import Object

ROOT = Path(__file__).resolve().parents[2]
_ALONE_S = 180.0
_MEMORY_MIB = 96
_GPU_BYTES = 512 << 20  # more than any of the jobs takes
_ROOM = "128Mi"  # of host memory, for the snapshot of it
_LIMIT = "640Mi"  # what the program needs besides


@dataclass(frozen=True)
class Training:
    """A recipe of hack/demo_app; the same recipe gives the same weights, to the last bit."""

    task: str
    seed: int
    steps: int = 3

    @property
    def arguments(self) -> list[str]:
        """Of its command line. It takes as much memory on every GPU, whatever its size."""
        options = {"task": self.task, "seed": self.seed, "steps": self.steps, "memory-mib": _MEMORY_MIB}
        return [f"--{name}={value}" for name, value in options.items()]

    def manifests(self, name: str, *, group: str, job: str = "", node: str = "") -> list[Object]:
        """Template and pod, as in examples/kubernetes, of a job (default: of the pod's name)."""
        made = manifests.pod(name, claim_template=name, node=node, memory=_LIMIT)
        (container,) = made["spec"]["containers"]
        container |= {"image": manifests.JOB_IMAGE, "args": self.arguments}
        return [manifests.template(name, job=job or name, group=group, host_memory=_ROOM), made]

    def alone(self) -> dict[str, str]:
        """See `alone`."""
        return alone(self.arguments)

    def ranks_alone(self, count: int) -> list[dict[str, str]]:
        """The same of each of its ranks."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with ThreadPoolExecutor(count) as together:
            return list(together.map(lambda rank: alone(self.arguments, RANK=str(rank), **place), range(count)))


def alone(arguments: Sequence[str], **environment: str) -> dict[str, str]:
    """Fingerprints of a run on an emulated GPU of its own, on this machine, that takes no turns."""
    off = {"PYTHONPATH": str(ROOT / "hack/demo_app"), "TIMESLICE_MODE": "off"}
    with Emulator(memory=_GPU_BYTES) as emulator, tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, "-m", "grpo", *arguments],
            env={**emulator.env, **off, **environment},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=_ALONE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return fingerprints(done.stdout)


def fingerprints(said: str) -> dict[str, str]:
    """SHA-256 of the final weights and of all device memory, from the last line that the job prints."""
    told = json.loads(said.splitlines()[-1])
    assert told["event"] == "done", said
    return {name: told[name] for name in ("weights_sha256", "device_sha256")}
