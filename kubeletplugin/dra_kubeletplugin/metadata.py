"""Files that describe a claim's devices to its containers (KEP-5304).

Each request gets one file, mounted read-only by a CDI device of its own. Layout and format:
k8s.io/dynamic-resource-allocation/api/metadata, doc.go. The file is a stream of the same object in every version,
newest first; a reader takes the first that it knows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from dra_kubeletplugin.apiserver import Object
from dra_kubeletplugin.claims import Claim, base_request
from dra_kubeletplugin.driver import PreparedDevice

_VERSIONS = ("v1beta1", "v1alpha1")
_CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


class MetadataFiles:
    """The files of a driver on a node. Its methods block for the milliseconds of a disk, and raise OSError."""

    def __init__(self, driver: str, *, data: Path, cdi: Path) -> None:
        self._driver = driver
        self._folder = data / "dra-device-metadata"
        self._cdi = cdi

    def write(self, claim: Claim, devices: Sequence[PreparedDevice]) -> list[PreparedDevice]:
        """Writes the files of a claim, again or for the first time.

        Returns:
            The devices. The first of each request has the CDI device that mounts its file.
        """
        described = [device for device in devices if device.metadata is not None]
        requests = dict.fromkeys(request for device in described for request in _requests(claim, device))
        mounts = {base_request(request): self._request(claim, request, described) for request in requests}
        return [_mounting(claim, device, mounts) for device in devices]

    def remove(self, uid: str) -> None:
        """Removes the files of a claim. None are fine."""
        for path in self._cdi.glob(f"{self._driver}_metadata_{uid}_*.json"):
            path.unlink(missing_ok=True)
        rmtree(self._folder / uid, ignore_errors=True)

    def _request(self, claim: Claim, request: str, devices: Iterable[PreparedDevice]) -> str:
        base, uid = base_request(request), claim.ref.uid
        file = self._folder / uid / base / "metadata.json"
        chosen = [device for device in devices if request in _requests(claim, device)]
        _replace(file, "".join(json.dumps(each) + "\n" for each in self._objects(claim, request, chosen)))
        name = f"{uid}_{base}"
        mount = {"hostPath": str(file), "containerPath": self._inside(claim, base), "options": ["ro", "bind"]}
        spec = {
            "cdiVersion": "0.5.0",
            "kind": f"{self._driver}/metadata",
            "devices": [{"name": name, "containerEdits": {"mounts": [mount]}}],
        }
        _replace(self._cdi / f"{self._driver}_metadata_{name}.json", json.dumps(spec))
        return f"{self._driver}/metadata={name}"

    def _objects(self, claim: Claim, request: str, devices: Iterable[PreparedDevice]) -> Iterable[Object]:
        ref, pod_claim = claim.ref, claim.annotations.get(_POD_CLAIM_NAME)
        described = [
            {"driver": self._driver, "pool": device.pool, "name": device.device, "attributes": device.metadata or {}}
            for device in devices
        ]
        for version in _VERSIONS:
            yield {
                "kind": "DeviceMetadata",
                "apiVersion": f"metadata.resource.k8s.io/{version}",
                "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid, "generation": 1},
                **({"podClaimName": pod_claim} if pod_claim else {}),
                "requests": [{"name": request, "devices": described}],
            }

    def _inside(self, claim: Claim, request: str) -> str:
        """Where a container finds it. The name of a claim made from a template is not known in a pod's manifest."""
        pod_claim = claim.annotations.get(_POD_CLAIM_NAME)
        kind, name = ("resourceclaimtemplates", pod_claim) if pod_claim else ("resourceclaims", claim.ref.name)
        return f"{_CONTAINER_FOLDER}/{kind}/{name}/{request}/{self._driver}-metadata.json"


def _requests(claim: Claim, device: PreparedDevice) -> tuple[str, ...]:
    """A device for all requests is described in the file of each."""
    return device.requests or tuple(result.request for result in claim.results)


def _mounting(claim: Claim, device: PreparedDevice, mounts: dict[str, str]) -> PreparedDevice:
    """With the mounts that no device before had: runtimes may refuse a CDI device that is named twice."""
    mine = [mounts.pop(base) for base in map(base_request, _requests(claim, device)) if base in mounts]
    return replace(device, cdi_ids=(*device.cdi_ids, *mine)) if mine else device


def _replace(path: Path, text: str) -> None:
    """Whole at once: runtimes read CDI specs as soon as they appear; the temporary name is none of a spec."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
