"""A node with emulated GPUs, the plugin on it, a kubelet that calls it, and the API server of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
from dra_kubeletplugin.apiserver import CLAIMS, NODES, PODS, SLICES
from dra_kubeletplugin.kubelet_api import dra_v1_pb2, dra_v1_pb2_grpc
from dra_samples import DRIVER, NODE, raw_claim
from fake_api_server import FakeApiServer
from gpu_emulator.emulator import Emulator
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.dra.checkpoint import Checkpoint
from timeslice_driver.dra.cluster import GROUPS
from timeslice_driver.dra.config import PluginConfig
from timeslice_driver.dra.plugin import DraPlugin
from timeslice_driver.dra.records import Records


def config_for(emulator: Emulator, folder: Path) -> PluginConfig:
    """All of a node's folders below one."""
    return PluginConfig(
        node_name=NODE,
        orchestrator="orchestrator:7070",
        state_dir=folder / "state",
        sockets=folder / "claims",
        host_memory=1 << 30,
        registry_dir=folder / "registry",
        data_dir=folder / "data",
        cdi_dir=folder / "cdi",
        cdi_static_dir=folder / "etc-cdi",
        dev_root=emulator.dev_root,
        sys_root=folder / "sys",
        boot_id_file=folder / "boot_id",
        libnvml=str(emulator.libraries / "libnvidia-ml.so.1"),
        look_interval_s=0.2,
    )


class PluginWorld:
    def __init__(self, emulator: Emulator, server: FakeApiServer, folder: Path) -> None:
        self.emulator = emulator
        self.server = server
        self.folder = folder
        self.config = config_for(emulator, folder)
        self.checkpoint = Checkpoint(self.config.state_dir)
        self._stack = AsyncExitStack()
        self.parts = ClaimParts()
        self.plugin: DraPlugin | None = None
        self.instance = ""  # which of two instances the kubelet calls, by the UID of its pod

    async def set_up(self) -> None:
        (self.folder / "boot_id").write_text("boot-1\n")
        (self.folder / "registry").mkdir()
        await self.server.put(NODES, {"metadata": {"name": NODE, "labels": {"pool": "h100"}}, "status": {}})
        await self.add_group("rl-a")
        await self.add_group("rl-b")

    async def start(self, **changes: Any) -> DraPlugin:
        self.parts = ClaimParts(ClaimSockets(self.config.sockets))
        api = await self._stack.enter_async_context(self.server.connect())
        plugin = DraPlugin(replace(self.config, **changes), api, self.parts)
        self.plugin = await self._stack.enter_async_context(plugin)
        return self.plugin

    async def stop(self) -> None:
        stack, self._stack, self.plugin = self._stack, AsyncExitStack(), None
        await stack.aclose()

    async def add_group(self, name: str, *, jobs: tuple[str, ...] = ("trainer", "evaluator"), **spec: Any) -> None:
        await self.server.put(GROUPS, {"metadata": {"name": name}, "spec": spec, "status": {"jobs": list(jobs)}})

    async def add_claim(
        self,
        name: str = "c",
        *devices: str,
        job: str = "trainer",
        memory_limit: str = "",
        owner: str = "",
        **options: Any,
    ) -> str:
        """An allocated claim with its pod; its UID."""
        pod = f"pod-of-{name}"
        resources = {"claims": [{"name": "gpu"}], "limits": {"memory": memory_limit} if memory_limit else {}}
        written = await self.server.put(
            PODS,
            {
                "metadata": {"name": pod, "namespace": "rl"},
                "spec": {
                    "containers": [{"name": "train", "resources": resources}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                },
            },
        )
        raw = raw_claim(
            "", *(devices or ("gpu-0-rl-a",)), name=name, labels={"timeslice.dev/job": job}, memory="1Mi", **options
        )
        raw["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": written["metadata"]["uid"]}]
        if owner:
            raw["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "controller": True}]
        return str((await self.server.put(CLAIMS, raw))["metadata"]["uid"])

    async def prepare(self, uid: str, name: str = "c") -> Any:
        """The kubelet's call for one claim: its entry in the answer."""
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[dra_v1_pb2.Claim(namespace="rl", name=name, uid=uid)])
        async with self._kubelet() as stub:
            return (await stub.NodePrepareResources(request, timeout=20)).claims[uid]

    async def unprepare(self, uid: str, name: str = "c") -> str:
        """The error in the answer; empty for success."""
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(
            claims=[dra_v1_pb2.Claim(namespace="rl", name=name, uid=uid)]
        )
        async with self._kubelet() as stub:
            return str((await stub.NodeUnprepareResources(request, timeout=20)).claims[uid].error)

    def _kubelet(self) -> Any:
        return _Stub(self.folder / "data" / (f"dra-{self.instance}.sock" if self.instance else "dra.sock"))

    def records(self) -> Records:
        return self.checkpoint.read()

    def devices(self) -> dict[str, Any]:
        """What the API server has of this node's devices, by name."""
        slices = [each["spec"] for each in self.server.all(SLICES) if each["spec"].get("nodeName") == NODE]
        return {device["name"]: device for each in slices for device in each.get("devices") or ()}

    async def until(self, condition: Callable[[], Any], *, seconds: float = 5.0) -> None:
        """Waits for something that is about to become true in another task or process."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    def events(self) -> Mapping[str, list[str]]:
        """Notes by reason."""
        found: dict[str, list[str]] = {}
        for place, event in self.server.store.stored.items():
            if place.plural == "events":
                found.setdefault(event["reason"], []).append(event["note"])
        return found


class _Stub:
    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}", options=(("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
        )

    async def __aenter__(self) -> Any:
        return dra_v1_pb2_grpc.DRAPluginStub(self._channel)

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


__all__ = ["DRIVER", "PluginWorld", "config_for"]
