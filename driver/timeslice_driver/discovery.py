"""Which processes belong to a part, and what they have on its devices.

A part that was registered has its roots and their descendants; one of prepared claims has the containers of its pods
that were given a claim of its job, which their environment shows, and whoever else in the pods has a device.

On the devices two sources are joined, since each misses some: NVML's lists (no entry for memory made by the
virtual-memory functions alone) and the device files that processes of the part have open (also open in processes that
only ask for names).
Whoever is found is then asked about by the backend's probe, which decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from timeslice_api.names import ENV_GROUP_ID, ENV_JOB_ID

from timeslice_driver.faults import Fault
from timeslice_driver.inventory import Device, DeviceProcess, Nvml
from timeslice_driver.job_files import JobFiles
from timeslice_driver.marks import Marks
from timeslice_driver.parts import Member
from timeslice_driver.pods import Pods
from timeslice_driver.processes import ProcessId, ProcFs

_NOT_KNOWN: Final = -1


@dataclass(frozen=True)
class Scope:
    """What to look for: a part's registered processes and its pods, the processes already known, and its devices.

    `sole` is False when the job has further parts on this node, so that an open device file alone does not tell whose
    it is. `thorough` has every process of the part asked about: one that is parked shows in neither source.
    """

    member: Member
    device_ids: tuple[str, ...]
    roots: frozenset[ProcessId]
    family: frozenset[ProcessId]
    pods: frozenset[str] = frozenset()
    sole: bool = True
    thorough: bool = False


@dataclass(frozen=True)
class Candidate:
    """A process that may have accelerator state. `sizes` by device id (bytes), -1 where it is not known."""

    process: ProcessId
    sizes: Mapping[str, int]
    job_file: str = ""


@dataclass(frozen=True)
class Found:
    """What a scan saw of one part."""

    family: frozenset[ProcessId] = frozenset()
    candidates: tuple[Candidate, ...] = ()
    strays: Mapping[ProcessId, tuple[str, ...]] = field(default_factory=dict)  # devices outside the part that they use


class ScrambledListError(Exception):
    """NVML's process list makes no sense: a driver 535 whose structures differ from the library's (pynvml issue 48)."""


class Discovery:
    """Blocking scans, for the inventory's thread.

    Args:
        nvml: process lists.
        procfs: everything else.
        pods: the processes of pods.
        dev_root: where the device files are, such as "/dev". In containers they are in /dev.
        own_pids: processes of the node itself, which are clients of the driver too.
        marks: a process that is in no known family, but is marked with the job, is of the job too. None where claims
            tell it.
    """

    def __init__(
        self,
        nvml: Nvml,
        procfs: ProcFs,
        pods: Pods,
        *,
        dev_root: str,
        own_pids: Callable[[], frozenset[int]],
        marks: Marks | None = None,
    ) -> None:
        self._nvml = nvml
        self._procfs = procfs
        self._job_files = JobFiles(procfs)
        self._pods = pods
        self._dev_root = dev_root.rstrip("/")
        self._own_pids = own_pids
        self._marks = marks

    def scan(self, scopes: Sequence[Scope], devices: Sequence[Device], *, quick: bool = False) -> dict[Member, Found]:
        """Looks for the processes of several parts at once.

        `quick` spares NVML when no process of the parts has any device file open: without one there is no CUDA context.
        A process that has left its family, which only NVML's list can show, then waits for the next full scan.

        Raises:
            InventoryError: NVML does not answer.
            ScrambledListError: its answer makes no sense.
        """
        roots = (self._dev_root, "/dev")
        by_path = {f"{root}/nvidia{each.minor}": each.device_id for root in roots for each in devices}
        if quick and self._idle(scopes, by_path):
            return {scope.member: Found(self._known(scope)) for scope in scopes}
        listed = self._listed(mig=any(device.mig for device in devices))
        return {scope.member: self._scan_one(scope, listed, by_path) for scope in scopes}

    def survivors(self, scope: Scope) -> frozenset[ProcessId]:
        """Living processes of a part, looked for in the whole machine: also those whose parents died before they were
        seen."""
        known = self._known(scope)
        if scope.pods:
            return known
        others = (self._procfs.identity(pid) for pid in self._procfs.pids() if pid not in self._own_pids())
        adopted = {process for process in others if process and self._belongs(process.pid, scope, known)}
        return self._procfs.family(known | adopted)

    def _idle(self, scopes: Sequence[Scope], by_path: Mapping[str, str]) -> bool:
        """Whether device files prove that nothing is on the devices; not when they cannot be seen from here."""
        if not all(Path(path).exists() for path in by_path if path.startswith(f"{self._dev_root}/nvidia")):
            return False
        for scope in scopes:
            for process in self._others(self._known(scope)):
                opened = self._procfs.open_files(process.pid)
                if opened is None or not opened.isdisjoint(by_path):
                    return False
        return True

    def _known(self, scope: Scope) -> frozenset[ProcessId]:
        """Those that need no list of NVML to be found."""
        if not scope.pods:
            return self._procfs.family(scope.roots | scope.family)
        still = frozenset(process for process in scope.family if self._procfs.alive(process))
        return self._procfs.family(scope.roots) | still | self._of_pods(scope, known=still)

    def _of_pods(self, scope: Scope, *, known: frozenset[ProcessId]) -> frozenset[ProcessId]:
        """The containers that were given a claim of the job; of others, such as sidecars, who has a device open."""
        found: set[int] = set()
        for container in self._containers(scope):
            if any(self._procfs.environ(pid, ENV_JOB_ID).get(ENV_JOB_ID) == scope.member.job_id for pid in container):
                found.update(container)
            else:
                found.update(filter(self._has_device_open, container))
        identities = map(self._procfs.identity, found - self._own_pids() - {process.pid for process in known})
        return frozenset(identity for identity in identities if identity)

    def _containers(self, scope: Scope) -> Iterator[tuple[int, ...]]:
        return itertools.chain.from_iterable(map(self._pods.containers, sorted(scope.pods)))

    def _has_device_open(self, pid: int) -> bool:
        prefixes = (f"{self._dev_root}/nvidia", "/dev/nvidia")
        return any(path.startswith(prefixes) for path in self._procfs.open_files(pid) or ())

    def _listed(self, *, mig: bool) -> dict[int, list[DeviceProcess]]:
        by_pid: dict[int, list[DeviceProcess]] = {}
        for entry in self._nvml.processes():
            if entry.instance is not None and not mig:
                raise ScrambledListError(f"process {entry.pid} is listed in a MIG instance, and MIG is off")
            by_pid.setdefault(entry.pid, []).append(entry)
        if by_pid and not any(self._procfs.stat(pid) for pid in by_pid):
            raise ScrambledListError(f"none of the listed processes exists, such as {min(by_pid)}")
        return by_pid

    def _scan_one(self, scope: Scope, listed: Mapping[int, list[DeviceProcess]], by_path: Mapping[str, str]) -> Found:
        family = self._known(scope)
        known = {process.pid for process in family}
        strangers = listed.keys() - known - self._own_pids()
        adopted = map(self._procfs.identity, self._adoptable(strangers, scope, family))
        family |= {process for process in adopted if process}
        own, candidates, strays = set(scope.device_ids), [], {}
        for process in self._others(family):
            entries = listed.get(process.pid, [])
            used = {entry.device_id for entry in entries}
            if used & own and (outside := used - own):
                strays[process] = tuple(sorted(outside))
            if mine := (used or self._unlisted(process.pid, scope, by_path)) & own:
                candidates.append(self._candidate(process, entries, mine))
        return Found(family, tuple(candidates), strays)

    def _others(self, family: frozenset[ProcessId]) -> list[ProcessId]:
        """Without the node and its helpers, which may run below a job's process and must never be parked."""
        own_pids = self._own_pids()
        return sorted(process for process in family if process.pid not in own_pids)

    def _unlisted(self, pid: int, scope: Scope, by_path: Mapping[str, str]) -> set[str]:
        if scope.thorough and (scope.sole or self._is_named(pid, scope.member)):
            return set(scope.device_ids)
        found = {by_path[path] for path in self._procfs.open_files(pid) or () if path in by_path}
        return found if scope.sole or found <= set(scope.device_ids) else set()

    def _candidate(self, process: ProcessId, entries: Sequence[DeviceProcess], mine: set[str]) -> Candidate:
        listed = {entry.device_id: entry.used_bytes for entry in entries}
        told = {device_id: listed.get(device_id) for device_id in sorted(mine)}
        sizes = {device_id: _NOT_KNOWN if size is None else size for device_id, size in told.items()}
        return Candidate(process, sizes, self._job_files.key(process.pid))

    def _adoptable(self, strangers: Collection[int], scope: Scope, family: frozenset[ProcessId]) -> Collection[int]:
        """Those that NVML lists and that were not known."""
        if scope.pods and strangers:
            return {pid for container in self._containers(scope) for pid in container}.intersection(strangers)
        return [pid for pid in strangers if self._belongs(pid, scope, family)]

    def _belongs(self, pid: int, scope: Scope, family: frozenset[ProcessId]) -> bool:
        return self._descends(pid, scope, family) or self._is_marked(pid, scope.member)

    def _descends(self, pid: int, scope: Scope, family: frozenset[ProcessId]) -> bool:
        """An ancestor is of the family, or a registered process leads its session (which outlives that process)."""
        roots = {root.pid: root for root in scope.roots}
        known = {process.pid for process in family}
        stat = self._procfs.stat(pid)
        if stat and stat.session in roots and stat.identity.start_time >= roots[stat.session].start_time:
            return True
        while stat and stat.parent > 1:
            if stat.parent in known:
                return True
            stat = self._procfs.stat(stat.parent)
        return False

    def _is_marked(self, pid: int, member: Member) -> bool:
        mark = self._marks.of(pid) if self._marks else None
        return mark is not None and mark.fits(member)

    def _is_named(self, pid: int, member: Member) -> bool:
        named = {ENV_JOB_ID: member.job_id, ENV_GROUP_ID: member.group_id}
        return self._procfs.environ(pid, *named) == named


def stray_fault(member: Member, strays: Mapping[ProcessId, Sequence[str]], groups: Mapping[str, str]) -> Fault | None:
    """A process that also uses devices which its part does not cover would be parked there too, without a turn.

    Args:
        groups: the group of each device id, for those that are in one.
    """
    for process, device_ids in strays.items():
        others = sorted({groups[device_id] for device_id in device_ids if device_id in groups} - {member.group_id})
        if others:
            return Fault(
                "ProcessInTwoGroups",
                f"{process} of {member} also uses {', '.join(device_ids)} of group {', '.join(others)}",
                "give each group's work a process of its own, or put the devices into one group",
            )
        return Fault(
            "ProcessOutsidePart",
            f"{process} of {member} also uses {', '.join(device_ids)}, which is not among its registered devices",
            "register the job with all devices that it uses, or limit it with CUDA_VISIBLE_DEVICES",
        )
    return None
