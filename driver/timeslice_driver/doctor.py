"""Looks a machine over before jobs run on it: what would keep a job from being parked, and how to mend it.

Works without a GPU, a driver, and a running node; whatever is missing is a finding.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import grpc.aio
from timeslice_api import names
from timeslice_api.errors import TokenMissing
from timeslice_api.tls import is_loopback
from timeslice_api.tokens import TokenFile
from timeslice_api.v1alpha1 import snapshot_agent_pb2, snapshot_agent_pb2_grpc

from timeslice_driver.backends.base import Capabilities
from timeslice_driver.backends.cuda_command import CommandCalls
from timeslice_driver.backends.cuda_driver import DriverCalls
from timeslice_driver.cgroup import CgroupFs
from timeslice_driver.config import NodeConfig
from timeslice_driver.faults import amount
from timeslice_driver.inventory import Device, Inventory, InventoryError, Nvml
from timeslice_driver.job_files import JobFiles
from timeslice_driver.processes import ProcFs
from timeslice_driver.settings import harmful

_DRIVER_S = 20.0
_SOCKET_S = 2.0
_CAP_SYS_PTRACE = 19


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        verdict: `ok`; `warn`, it may go wrong; `fail`, nothing can be parked.
        found: what is there.
        mend: what to do about it; empty when there is nothing to do.
    """

    name: str
    verdict: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""


async def examine(config: NodeConfig, environ: Mapping[str, str]) -> list[Check]:
    """All checks, those that the others depend on first. Takes seconds at most, and changes nothing.

    Args:
        config: of the node that is, or would be, run here.
        environ: of a job; that of the shell which asks is a good guess.
    """
    procfs, cgroups = ProcFs(config.proc_root), CgroupFs(config.cgroup_root)
    devices, found = await _inventory(config)
    checks = [*found, await _driver(config)]
    checks += _devices(devices)
    checks += [_permission(procfs), _pid_namespace(procfs), await _socket(config), _state_dir(config)]
    checks += await asyncio.to_thread(lambda: [_cgroup(procfs, cgroups, devices), *_memory(procfs, devices)])
    return checks + token(environ) + settings(environ, devices=len(devices))


def token(environ: Mapping[str, str]) -> list[Check]:
    """Whether a job in this environment can say to its orchestrator who it is."""
    address, path = environ.get(names.ENV_ORCHESTRATOR, ""), environ.get(names.ENV_TOKEN_FILE, "")
    if path:
        try:
            TokenFile(path).metadata()
        except TokenMissing as error:
            return [Check("token", "fail", error.message, error.hint)]
        return [Check("token", "ok", f"in {path}")]
    if not address or address.startswith("unix:") or is_loopback(address):
        return []
    mend = f"set {names.ENV_TOKEN_FILE} to a file with one: `timeslice token` makes it"
    return [
        Check("token", "fail", f"{names.ENV_TOKEN_FILE} is not set, and {address} answers nobody without one", mend)
    ]


def settings(environ: Mapping[str, str], *, devices: int) -> list[Check]:
    """Checks of a job's environment, for a job with that many devices."""
    broken = harmful(environ, devices=devices)
    if not broken:
        return [Check("settings", "ok", "nothing in the environment would break a park")]
    return [Check(each.name, "warn", f"{environ.get(each.name, 'not set')}: {each.harm}", each.mend) for each in broken]


async def _inventory(config: NodeConfig) -> tuple[Sequence[Device], list[Check]]:
    inventory = Inventory(Nvml(config.libnvml), timeout_s=_DRIVER_S)
    try:
        await inventory.open()
        devices, version = await inventory.devices(), await inventory.driver_version()
    except InventoryError as error:
        return (), [Check("nvml", "fail", str(error), error.hint)]
    finally:
        await inventory.close()
    names = ", ".join(f"{device.name} ({amount(device.memory_bytes)})" for device in devices)
    if not devices:
        return (), [Check("nvml", "fail", f"driver {version}, and no device", "is a GPU passed to this machine?")]
    return devices, [Check("nvml", "ok", f"driver {version}: {names}")]


async def _driver(config: NodeConfig) -> Check:
    calls = DriverCalls(config.libcuda, JobFiles(ProcFs(config.proc_root)), start_s=_DRIVER_S)
    try:
        capabilities = await calls.open()
    finally:
        await calls.close()
    if capabilities.unavailable is None:
        return Check("checkpoint functions", "ok", f"{config.libcuda}: {capabilities.detail}")
    return _command(capabilities, await CommandCalls(config.cuda_checkpoint).open())


def _command(driver: Capabilities, command: Capabilities) -> Check:
    assert driver.unavailable
    why, mend = driver.unavailable.message, driver.unavailable.hint
    if driver.unavailable.reason == "DriverTooOld" and command.unavailable is None:
        return Check(
            "checkpoint functions", "warn", f"{why}; {command.detail} stands in, seconds slower per step", mend
        )
    return Check("checkpoint functions", "fail", why, mend)


def _devices(devices: Sequence[Device]) -> list[Check]:
    checks = []
    for device in devices:
        if device.fault:
            checks.append(Check("device", "fail", f"{device.device_id}: {device.fault}"))
        if device.mig:
            mend = f"`nvidia-smi -i {device.device_id} -mig 0`"
            checks.append(Check("mig", "fail", f"{device.device_id} is in MIG mode; nothing there can be parked", mend))
    volatile = [device.device_id for device in devices if not device.persistent]
    if volatile:
        checks.append(Check("persistence mode", "fail", f"off on {', '.join(volatile)}", "`nvidia-smi -pm 1`"))
    elif devices:
        checks.append(Check("persistence mode", "ok", "on"))
    return checks


def _permission(procfs: ProcFs) -> Check:
    capable = procfs.capabilities(os.getpid()) >> _CAP_SYS_PTRACE & 1
    if capable:
        return Check("permission", "ok", "may act on processes of other users (CAP_SYS_PTRACE)")
    mend = "run the node as root, or with CAP_SYS_PTRACE"
    return Check("permission", "warn", "no CAP_SYS_PTRACE: only own processes can be parked, if any", mend)


def _pid_namespace(procfs: ProcFs) -> Check:
    if procfs.in_first_pid_namespace(os.getpid()):
        return Check("pid namespace", "ok", "the machine's own")
    mend = "run the node with `hostPID: true` (or `--pid=host`)"
    return Check("pid namespace", "warn", "not the machine's own: NVML's process numbers mean nothing here", mend)


async def _socket(config: NodeConfig) -> Check:
    if not await asyncio.to_thread(os.path.exists, config.socket):
        return Check("node", "warn", f"no socket {config.socket}", "start one: `timeslice node` or `timeslice up`")
    options = (("grpc.default_authority", "localhost"),)
    async with grpc.aio.insecure_channel(f"unix:{config.socket}", options=options) as channel:
        agent: Any = snapshot_agent_pb2_grpc.SnapshotAgentStub(channel)
        try:
            jobs = await agent.ListJobs(snapshot_agent_pb2.ListJobsRequest(), timeout=_SOCKET_S)
        except grpc.aio.AioRpcError as error:
            mend = "start it anew: `timeslice node`; it finds again what is parked"
            return Check("node", "fail", f"no answer at {config.socket}: {error.details()}", mend)
    return Check("node", "ok", f"answers at {config.socket}, {len(jobs.parts)} parts of jobs")


def _state_dir(config: NodeConfig) -> Check:
    nearest = next(folder for folder in (config.state_dir, *config.state_dir.parents) if os.path.exists(folder))
    if os.access(nearest, os.W_OK | os.X_OK):
        return Check("state directory", "ok", str(config.state_dir))
    mend = f"make {nearest} writable, or choose another"
    return Check("state directory", "fail", f"{config.state_dir} cannot be written to", mend)


def _cgroup(procfs: ProcFs, cgroups: CgroupFs, devices: Sequence[Device]) -> Check:
    rooms = cgroups.head_rooms(procfs.cgroup(os.getpid()))
    need = sum(device.memory_bytes for device in devices)
    tightest = min(rooms, key=lambda room: room.limit, default=None)
    if tightest is None:
        return Check("cgroup", "ok", f"{cgroups.version}, no memory limit here")
    found = f"{cgroups.version}, limit {amount(tightest.limit)} at {tightest.path}"
    if need and tightest.limit < 2 * need:
        mend = "give a job's cgroup its working set plus all its device memory"
        return Check("cgroup", "warn", f"{found}, device memory {amount(need)}", mend)
    return Check("cgroup", "ok", found)


def _memory(procfs: ProcFs, devices: Sequence[Device]) -> list[Check]:
    need, available = sum(device.memory_bytes for device in devices), procfs.available_memory()
    found = f"{amount(available)} available, device memory {amount(need)}"
    checks = [Check("host memory", "ok", found)]
    if available < need:
        checks = [Check("host memory", "warn", found, "park fewer or smaller jobs here, or add memory")]
    if swap := procfs.total_swap():
        mend = "`swapoff -a`, or memory.swap.max=0 for the jobs"
        checks.append(Check("swap", "warn", f"{amount(swap)}: parked state may go to disk, and come back slowly", mend))
    return checks
