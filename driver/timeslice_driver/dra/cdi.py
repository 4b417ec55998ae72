"""CDI specs: what the container runtime puts into the containers of a claim. Pure, but for `CdiFolder`.

Format: github.com/cncf-tags/container-device-interface, SPEC.md. Version 0.5.0 is the lowest that knows `hostPath`; old
runtimes refuse newer ones than they know.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from timeslice_api import names
from timeslice_api.bounded_files import content_of
from timeslice_api.kinds.decoding import Lenient
from timeslice_api.shapes import json_of

from timeslice_driver.dra.records import ClaimRecord, HeldDevice
from timeslice_driver.dra.vendor_cdi import KIND as VENDOR_KIND
from timeslice_driver.whole_files import replace_file

log = logging.getLogger(__name__)

KIND: Final = "timeslice.dev/claim"
_VERSION: Final = "0.5.0"
_PREFIX: Final = "timeslice.dev-claim_"
_LARGEST: Final = 1 << 20  # bytes
CONTAINER_FOLDER: Final = "/run/timeslice"
CONTAINER_SOCKET: Final = f"{CONTAINER_FOLDER}/agent.sock"
CONTAINER_CA: Final = f"{CONTAINER_FOLDER}/ca.crt"
CONTAINER_TOKEN: Final = f"{CONTAINER_FOLDER}/token"


class _Edits(Lenient):
    env: tuple[str, ...] = ()
    device_nodes: tuple[Any, ...] = ()


class _Device(Lenient):
    name: str
    container_edits: _Edits = _Edits()


class _Spec(Lenient):
    """A spec, as far as it is read again."""

    devices: tuple[_Device, ...] = ()
    container_edits: _Edits = _Edits()


@dataclass(frozen=True)
class Wiring:
    """What the containers of all claims of a node have in common.

    Attributes:
        orchestrator: its address for pods; empty: jobs run without one.
        sockets: the host's folder with a folder per claim, in which its pods find the node's socket and their token.
        with_ca: the orchestrator's authorities are there too.
    """

    orchestrator: str
    sockets: Path
    with_ca: bool = False


def device_name(uid: str, device: HeldDevice) -> str:
    """Of our CDI device of a claim's share. Never used twice with other content: runtimes may serve a cached one."""
    return "-".join(part for part in (uid, device.request, device.device, device.share_id) if part)


def device_ids(claim: ClaimRecord, device: HeldDevice) -> tuple[str, ...]:
    """The CDI ids of a share of the claim: NVIDIA's own where there is one, and ours."""
    ours = f"{KIND}={device_name(claim.uid, device)}"
    return (device.vendor_id, ours) if device.vendor_id else (ours,)


def spec(claim: ClaimRecord, wiring: Wiring, nodes: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """The spec of a claim.

    Args:
        claim: what is prepared.
        wiring: of the node.
        nodes: device files by UUID, for GPUs that have no CDI device of NVIDIA's own. Their numbers are left to the
            runtime, which reads them when the container starts: they may differ after a reboot.
    """
    return {
        "cdiVersion": _VERSION,
        "kind": KIND,
        "devices": [_device(claim.uid, device, nodes.get(device.uuid, ())) for device in claim.devices],
        "containerEdits": {"env": _environment(claim, wiring), "mounts": [_mount(claim, wiring)]},
    }


def _device(uid: str, device: HeldDevice, nodes: Sequence[Path]) -> dict[str, Any]:
    number = device.device.split("-")[1]
    edits: dict[str, Any] = {"env": [f"TIMESLICE_GPU_{number}={device.uuid}"]}
    if nodes:
        edits["deviceNodes"] = [{"path": f"/dev/{node.name}", "hostPath": str(node)} for node in nodes]
    return {"name": device_name(uid, device), "containerEdits": edits}


def _environment(claim: ClaimRecord, wiring: Wiring) -> list[str]:
    """Images say NVIDIA_VISIBLE_DEVICES=all, by which NVIDIA's older runtime would add every GPU."""
    values = {
        names.ENV_ORCHESTRATOR: wiring.orchestrator,
        names.ENV_JOB_ID: claim.job,
        names.ENV_GROUP_ID: claim.group,
        names.ENV_NODE_SOCKET: CONTAINER_SOCKET,
        names.ENV_TLS_CA: CONTAINER_CA if wiring.with_ca else "",
        names.ENV_TOKEN_FILE: CONTAINER_TOKEN if wiring.orchestrator else "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    return [f"{name}={value}" for name, value in values.items() if value]


def _mount(claim: ClaimRecord, wiring: Wiring) -> dict[str, Any]:
    """The folder, not the socket in it: a node that starts anew makes a new socket."""
    options = ["ro", "nosuid", "nodev", "noexec", "bind"]
    return {"hostPath": str(wiring.sockets / claim.uid), "containerPath": CONTAINER_FOLDER, "options": options}


def assignment_in(content: Mapping[str, Any]) -> tuple[str, str]:
    """Job and group that a spec of ours gives its containers.

    Raises:
        LookupError: it gives none.
    """
    pairs = (each.partition("=") for each in content.get("containerEdits", {}).get("env", ()))
    values = {name: value for name, _, value in pairs}
    return values[names.ENV_JOB_ID], values[names.ENV_GROUP_ID]


def vendor_ids_in(content: Mapping[str, Any], claim: ClaimRecord) -> dict[str, str]:
    """NVIDIA's CDI ids by UUID, of the claim's GPUs for which its spec has no device files."""
    with_files = {
        device["name"] for device in content.get("devices", ()) if device.get("containerEdits", {}).get("deviceNodes")
    }
    bare = (device.uuid for device in claim.devices if device_name(claim.uid, device) not in with_files)
    return {uuid: f"{VENDOR_KIND}={uuid}" for uuid in bare}


class CdiFolder:
    """Our specs in the folder where the runtime looks for those that come and go (/var/run/cdi). Its methods block.

    Nothing is synced to a disk: no spec is of use after the end of the machine.

    Raises (all of them):
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, uid: str) -> Path:
        """Of a claim's spec."""
        return self._folder / f"{_PREFIX}{uid}.json"

    def write(self, uid: str, content: Mapping[str, Any]) -> bool:
        """Puts a claim's spec there, at once and whole; False when it was there already, just so."""
        data = json.dumps(content, indent=1).encode() + b"\n"
        path = self.path(uid)
        try:
            if content_of(path, _LARGEST) == data:
                return False
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
        except ValueError as error:
            log.warning("a CDI spec of ours is replaced: %s", error)
        replace_file(path, data, mode=0o644, durable=False)
        return True

    def read(self, uid: str) -> dict[str, Any]:
        """A claim's spec; empty when it has none that can be read."""
        try:
            data = content_of(self.path(uid), _LARGEST)
            _Spec.model_validate_json(data)
            content = json_of(data)
        except (FileNotFoundError, ValueError):
            return {}
        return dict(content)

    def remove(self, uid: str) -> None:
        """Takes a claim's spec away. None is fine."""
        self.path(uid).unlink(missing_ok=True)

    def uids(self) -> frozenset[str]:
        """Claims that have a spec."""
        return frozenset(path.stem.removeprefix(_PREFIX) for path in self._folder.glob(f"{_PREFIX}*.json"))
