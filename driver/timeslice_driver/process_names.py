"""The names by which the orchestrator is told of processes, so that what they hold or wait for ends with them."""

from __future__ import annotations

from collections.abc import Collection

from timeslice_api.names import process_name

from timeslice_driver.inventory import Inventory, InventoryError
from timeslice_driver.parts import Part
from timeslice_driver.pods import Pods
from timeslice_driver.processes import ProcessId, ProcFs


class ProcessNames:
    """Those of one node.

    Args:
        node: its name.
        pods: used in the inventory's thread only.
    """

    def __init__(self, node: str, procfs: ProcFs, pods: Pods, inventory: Inventory) -> None:
        self._node = node
        self._procfs = procfs
        self._pods = pods
        self._inventory = inventory
        self._in_pods: set[ProcessId] = set()  # those that a pod was told the name of

    def of(self, process: ProcessId) -> str:
        """The process's name."""
        return process_name(self._node, process.pid, process.start_time)

    async def inside(self, part: Part, pods: Collection[str], pid: int) -> str:
        """That of the process of the part which has this number in one of the pods (UIDs). Empty when several
        containers have one of that number, when none has, or when it cannot be seen."""

        def found() -> list[ProcessId]:
            there = {each for uid in pods for container in self._pods.containers(uid) for each in container}
            mine = (process for process in part.family if process.pid in there)
            return [process for process in mine if self._procfs.pid_inside(process.pid) == pid]

        try:
            processes = await self._inventory.run(found)
        except InventoryError:  # its thread is stuck in the driver
            return ""
        if len(processes) != 1:
            return ""
        self._in_pods.add(processes[0])
        return self.of(processes[0])

    def ended(self, process: ProcessId) -> bool:
        """Forgets a process that has ended; whether a pod was told its name."""
        known = process in self._in_pods
        self._in_pods.discard(process)
        return known
