"""What is checked before a process is touched: a refusal costs nothing, a failure later may cost the job.

Host memory: the driver copies device memory into memory of the process that owns it, so the process's cgroup pays, and
    when it
cannot, the kernel kills it without an error code. Device memory: a restore that runs out of it spoils the process
(cuda-checkpoint issue 44). Freezers and stop signals: the driver waits for a thread of the process (criu issue 2775).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from timeslice_driver.cgroup import CgroupFs, HeadRoom
from timeslice_driver.faults import Fault, amount
from timeslice_driver.inventory import Device, DeviceProcess, Memory
from timeslice_driver.parts import Held, Member, Part
from timeslice_driver.processes import ProcFs

_MIB = 1 << 20


@dataclass(frozen=True)
class Margins:
    """What must stay free beyond the bytes that move (bytes).

    Attributes:
        cgroup: in every cgroup with a limit.
        node: of the machine's memory; None for 5 % of it, at most 1 GiB.
        device: on every device that others are on too; what a part came from, it fits into all the same.
    """

    cgroup: int = 64 * _MIB
    node: int | None = None
    device: int = 512 * _MIB


class Preflight:
    """The checks. They read procfs and cgroupfs and so block for a moment."""

    def __init__(
        self, procfs: ProcFs, cgroups: CgroupFs, *, margins: Margins = Margins(), require_persistence: bool = True
    ) -> None:
        self._procfs = procfs
        self._cgroups = cgroups
        self._margins = margins
        self._require_persistence = require_persistence

    def before_park(
        self, parts: Sequence[Part], devices: Sequence[Device], *, mps_clients: Collection[int] = ()
    ) -> dict[Member, Fault]:
        """Refusals to lock and checkpoint these parts, all together. `mps_clients` are pids."""
        refused: dict[Member, Fault] = {}
        moving = {part.member: [held for held in part.held.values() if held.resident] for part in parts}
        for part in parts:
            own = (device for device in devices if device.device_id in part.device_ids)
            fault = (
                self._of_devices(tuple(own))
                or _of_mps(moving[part.member], mps_clients)
                or self._of_processes(moving[part.member], "park")
            )
            if fault:
                refused[part.member] = fault
        copied = [held for part in parts for held in moving[part.member]]
        if shortage := self._of_host_memory(copied):
            refused |= {member: shortage for member, held in moving.items() if held and member not in refused}
        return refused

    def before_restore(
        self, parts: Sequence[Part], memory: Mapping[str, Memory], processes: Callable[[], Sequence[DeviceProcess]]
    ) -> dict[Member, Fault]:
        """Refusals to restore these parts. `memory` is that of their devices, `processes` tells who is on them."""
        refused = {}
        for part in parts:
            coming = [held for held in part.held.values() if not held.resident]
            fault = self._of_processes(coming, "restore") or self._of_device_memory(
                part, coming, memory=memory, processes=processes
            )
            if fault:
                refused[part.member] = fault
        return refused

    def _of_devices(self, devices: Sequence[Device]) -> Fault | None:
        for device in devices:
            if device.mig:
                hint = f"`nvidia-smi -i {device.device_id} -mig 0`"
                return Fault("MigEnabled", f"{device.device_id} is in MIG mode, from which nothing can be parked", hint)
            if self._require_persistence and not device.persistent:
                message = f"persistence mode of {device.device_id} is off, so a park may be refused halfway"
                return Fault("PersistenceOff", message, "`nvidia-smi -pm 1`, or start nvidia-persistenced")
        return None

    def _of_processes(self, held: Sequence[Held], verb: str) -> Fault | None:
        for entry in held:
            pid = entry.process.pid
            if folder := self._cgroups.frozen(self._procfs.cgroup(pid)):
                message = (
                    f"cannot {verb} process {pid}: its cgroup {folder} is frozen; the driver needs one of its threads"
                )
                return Fault("FrozenCgroup", message, "thaw it (`docker unpause`, cgroup.freeze)", retryable=True)
            stat = self._procfs.stat(pid)
            if stat and stat.stopped:
                message = f"cannot {verb} process {pid}: it is stopped, and the driver needs one of its threads"
                return Fault("ProcessStopped", message, f"`kill -CONT {pid}`, or detach the debugger", retryable=True)
        return None

    def _of_host_memory(self, held: Sequence[Held]) -> Fault | None:
        needs: dict[str, int] = {}
        rooms: dict[str, HeadRoom] = {}
        for entry in held:
            for room in self._cgroups.head_rooms(self._procfs.cgroup(entry.process.pid)):
                rooms[room.path] = room
                needs[room.path] = needs.get(room.path, 0) + entry.size
        for path, need in needs.items():
            if need and rooms[path].free < need + self._margins.cgroup:
                return _cgroup_shortage(rooms[path], need, self._margins.cgroup)
        total = sum(entry.size for entry in held)
        available, margin = self._procfs.available_memory(), self._node_margin()
        if total and available < total + margin:
            wanted = f"{amount(total)} of host memory and {amount(margin)} to spare"
            message = f"parking needs {wanted}; the node has {amount(available)}"
            return Fault("HostMemory", message, "put fewer jobs on the node, or more memory into it", retryable=True)
        return None

    def _node_margin(self) -> int:
        if self._margins.node is not None:
            return self._margins.node
        return min(1 << 30, self._procfs.total_memory() // 20)

    def _of_device_memory(
        self,
        part: Part,
        coming: Sequence[Held],
        *,
        memory: Mapping[str, Memory],
        processes: Callable[[], Sequence[DeviceProcess]],
    ) -> Fault | None:
        own = {held.process.pid for held in part.held.values()}
        for device_id in part.device_ids:
            sizes = [held.sizes[device_id] for held in coming if device_id in held.sizes]
            if not sizes:
                continue
            need, free = sum(max(0, size) for size in sizes), memory[device_id].free
            wanted = min(need + self._margins.device, part.room.get(device_id, need + self._margins.device))
            if free >= wanted and min(sizes) >= 0:
                continue
            others = [entry for entry in processes() if entry.device_id == device_id and entry.pid not in own]
            # Alone on the device, it needs no margin: nobody else will take from what it came from.
            if others or free < need:
                return _device_shortage(device_id, need, memory[device_id], others)
        return None


def _of_mps(held: Sequence[Held], clients: Collection[int]) -> Fault | None:
    for entry in held:
        if entry.process.pid in clients:
            message = f"process {entry.process.pid} is a client of MPS, which cannot be parked"
            return Fault("MpsClient", message, "start the job without MPS")
    return None


def _cgroup_shortage(room: HeadRoom, need: int, margin: int) -> Fault:
    message = (
        f"parking needs {amount(need)} of host memory and {amount(margin)} to spare; "
        f"cgroup {room.path} has {amount(room.free)} free of its limit of {amount(room.limit)}"
    )
    return Fault("HostMemory", message, "raise the memory limit to the working set plus all device memory of the job")


def _device_shortage(device_id: str, need: int, memory: Memory, others: Sequence[DeviceProcess]) -> Fault:
    free = f"{amount(memory.free)} of {amount(memory.total)}"
    message = f"the restore needs {amount(need)} on {device_id}, where {free} are free"
    if others:
        message += f"; on it: {', '.join(_holders(others))}"
    return Fault("DeviceMemory", message, "end or park what else is on the device", retryable=True)


def _holders(processes: Sequence[DeviceProcess]) -> Iterator[str]:
    for entry in processes:
        used = "unknown" if entry.used_bytes is None else amount(entry.used_bytes)
        yield f"process {entry.pid} with {used}"
