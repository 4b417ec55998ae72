"""The node: everything put together, started and stopped in the right order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc.aio
from timeslice_api.addresses import checked_address
from timeslice_api.errors import ConfigError, Unavailable
from timeslice_api.limits import SERVER_LIMITS
from timeslice_api.names import checked_name, checked_socket_path
from timeslice_api.pings import SERVER_PINGS
from timeslice_api.tasks import cancelled
from timeslice_api.tokens import TokenFile
from timeslice_api.v1alpha1 import agent_link_pb2, snapshot_agent_pb2_grpc, types_pb2

from timeslice_driver import wire
from timeslice_driver.backends.cuda import CudaBackend
from timeslice_driver.cgroup import CgroupFs
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claim_service import ClaimAgent
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.commands import Commands
from timeslice_driver.config import NodeConfig
from timeslice_driver.converge import Workshop
from timeslice_driver.discovery import Discovery, ScrambledListError
from timeslice_driver.groups import Groups, declared
from timeslice_driver.groups_in_force import GroupsInForce
from timeslice_driver.inventory import Device, Inventory, InventoryError, Nvml
from timeslice_driver.journal import Journal, Record
from timeslice_driver.link import Link
from timeslice_driver.marks import Marks
from timeslice_driver.meter import Meter
from timeslice_driver.opening import open_backend, reserve
from timeslice_driver.parts import Member, Part, PartState
from timeslice_driver.pods import Pods
from timeslice_driver.preflight import Preflight
from timeslice_driver.process_names import ProcessNames
from timeslice_driver.processes import ProcessId, ProcFs
from timeslice_driver.recovery import Recovery
from timeslice_driver.refusals import Decoding
from timeslice_driver.registration import Registration
from timeslice_driver.service import SnapshotAgent
from timeslice_driver.sockets import listen
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table
from timeslice_driver.watch import Watch

log = logging.getLogger(__name__)

_STOP_GRACE_S = 1.0


class Node:
    """The Snapshot Agent of one machine. It lives in the event loop that starts it, and never blocks it.

    After `start`, jobs register on its socket, and it obeys its orchestrator, or, without one, whoever calls Snapshot
    and Restore on the socket. `stop` leaves everything on the devices and in host memory as it is; the next start finds
    it again.

    Args:
        claims: on Kubernetes, the prepared claims; they make the parts and the groups, and the configuration none.
        sockets: of the claims.
        meter: told what the node does.
        when_placed: awaited when no other node has the devices any more, before anything is read or touched.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        claims: ClaimParts | None = None,
        sockets: ClaimSockets | None = None,
        meter: Meter | None = None,
        when_placed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.config = config
        self._when_placed = when_placed
        self.claims = claims
        self._sockets = sockets
        self._meter = meter or Meter()
        self._claim_parts = claims or ClaimParts()
        self.notice = ""  # what went wrong at the start and was mended, for people
        self._stack = AsyncExitStack()
        self._table = Table()
        self._procfs = ProcFs(config.proc_root, config.boot_id_file)
        self._boot_id = self._procfs.boot_id()
        self._nvml = Nvml(config.libnvml)
        self._inventory = Inventory(self._nvml)
        self._groups = self._in_force(Groups())
        self._link: Link | None = None
        pods = Pods(self._procfs, config.cgroup_root)
        self._names = ProcessNames(config.name, self._procfs, pods, self._inventory)
        self._commands: Commands | None = None
        self._survey: Survey | None = None

    async def start(self) -> None:
        """Takes up what was left, and serves.

        Raises:
            ConfigError, InvalidRequest: the configuration is at fault, or another node has its socket or state
                directory.
            Unavailable: there is no NVIDIA driver, or it cannot park processes; the hint says what to do.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends after what is under way has ended; nothing that is parked or running changes. Safe to repeat."""
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def linked(self) -> None:
        """Returns when the orchestrator has welcomed the node."""
        if self._link is None:
            raise ConfigError("this node has no orchestrator")
        await self._link.connected.wait()

    @property
    def connected(self) -> bool:
        """The orchestrator has welcomed it, and the stream holds."""
        return self._link is not None and self._link.connected.is_set()

    @property
    def parts(self) -> tuple[Part, ...]:
        """On it now, by job and group."""
        return self._table.parts()

    @property
    def devices(self) -> tuple[Device, ...]:
        """The node's devices, and those that its parts and claims still name although they are gone."""
        present = tuple(self._survey.devices) if self._survey else ()
        named = {device_id for part in self._table.parts() for device_id in part.device_ids}
        named |= {device_id for claim in self._claim_parts.claims.values() for device_id in claim.device_ids}
        lost = sorted(named - {device.device_id for device in present})
        return (*present, *(Device(each, "unknown", minor=-1, memory_bytes=0, fault="it is gone") for each in lost))

    @property
    def groups(self) -> Groups:
        """Those that jobs may register in now."""
        return self._groups.now

    async def _start(self) -> None:
        # Who has the claims on Kubernetes may be the other half of a rolling update, which ends soon.
        await reserve(self._checked(), self._stack, patient=self.claims is not None)
        if self._when_placed:
            await self._when_placed()
        devices = await self._open_inventory()
        self._groups = self._in_force(self._declared([device.device_id for device in devices]))
        backend = await open_backend(self.config, self._procfs, self._stack)
        self._survey = Survey(self._table, self._inventory, self._discovery(backend), backend)
        self._survey.devices = devices
        journal = Journal(self.config.state_dir, self._record)
        self._commands = Commands(self._workshop(backend, journal), lock_timeout_s=self.config.lock_timeout_s)
        await self._recover(journal)
        await self._take_claims()
        self._stack.push_async_callback(journal.close)
        self._stack.push_async_callback(self._commands.all_done)
        self._watch()
        if self.config.orchestrator:
            self._dial()
        await self._listen(journal)

    def _in_force(self, groups: Groups) -> GroupsInForce:
        orchestrated, claimed = bool(self.config.orchestrator), self.claims is not None
        return GroupsInForce(groups, self._table, orchestrated=orchestrated, claimed=claimed)

    def _declared(self, device_ids: list[str]) -> Groups:
        return self.claims.groups if self.claims else declared(self.config.groups, device_ids)

    def _checked(self) -> NodeConfig:
        config = self.config
        checked_name(config.name, "name")
        checked_socket_path(str(config.socket), "socket")
        if config.orchestrator:
            checked_address(config.orchestrator)
        return config

    async def _open_inventory(self) -> tuple[Device, ...]:
        self._stack.push_async_callback(self._inventory.close)
        try:
            await self._inventory.open()
            return await self._inventory.devices()
        except InventoryError as error:
            raise Unavailable(str(error), hint=error.hint) from error

    def _discovery(self, backend: CudaBackend) -> Discovery:
        dev_root = str(self.config.dev_root)
        return Discovery(
            self._nvml,
            self._procfs,
            Pods(self._procfs, self.config.cgroup_root),
            dev_root=dev_root,
            own_pids=lambda: backend.pids | {os.getpid()},
            marks=self._marks(),
        )

    def _marks(self) -> Marks | None:
        return Marks(self._procfs, self.config.socket.absolute()) if self.claims is None else None

    def _workshop(self, backend: CudaBackend, journal: Journal) -> Workshop:
        assert self._survey
        config = self.config
        cgroups = CgroupFs(config.cgroup_root)
        checks = Preflight(
            self._procfs, cgroups, margins=config.margins, require_persistence=config.require_persistence
        )
        return Workshop(
            table=self._table,
            backend=backend,
            survey=self._survey,
            inventory=self._inventory,
            nvml=self._nvml,
            preflight=checks,
            journal=journal,
            groups=self._groups,
            meter=self._meter,
        )

    def _record(self) -> Record:
        assert self._commands
        return Record(self._boot_id, self._commands.watermark, self._table.parts())

    async def _recover(self, journal: Journal) -> None:
        assert self._commands
        assert self._survey
        recovery = Recovery(
            self._table,
            covered=self._covered_when_lost,
            procfs=self._procfs,
            inventory=self._inventory,
            survey=self._survey,
            own_pids={os.getpid()},
            marks=self._marks(),
        )
        self._commands.watermark = await recovery.run(journal)
        self.notice = recovery.notice
        self._groups.unsure = recovery.without_record
        # Without an orchestrator nobody would ever end what a crash has interrupted between a lock and an unlock.
        halfway = [part.member for part in self._table.parts() if part.state is PartState.LOCKED]
        if halfway and not self.config.orchestrator:
            await self._commands.bring(dict.fromkeys(halfway, PartState.RUNNING))

    async def _take_claims(self) -> None:
        """From here on the claims show in the table, in time for the hello."""
        if self.claims is None:
            return
        self.claims.attach(self._table, self._gone)
        self._stack.callback(self.claims.detach)
        self._stack.callback(self.claims.listen(self._claims_changed))
        self._claims_changed()
        assert self._survey
        members = sorted({claim.member for claim in self.claims.claims.values()})
        try:
            await self._survey.look(members, thorough=True)  # parked ones too: the journal may be older than they are
        except (InventoryError, ScrambledListError) as error:
            log.error("cannot see what is on the devices: %s", error)

    def _claims_changed(self) -> None:
        self._groups.declare(self._claim_parts.groups)
        if self._link:
            self._link.tell_groups()

    def _covered_when_lost(self, group_id: str) -> tuple[str, ...]:
        """What a part may be on when nothing tells its devices. The orchestrator's groups are heard only after the
        hello, which names the parts; so with one it is every device at first."""
        if self.config.orchestrator:
            return tuple(device.device_id for device in self.devices)
        return self._groups.now.devices.get(group_id, ())

    def _watch(self) -> None:
        assert self._commands
        assert self._survey
        watch = Watch(
            self._table,
            self._survey,
            self._procfs,
            busy=self._commands.busy,
            interval_s=self.config.look_interval_s,
            claims=self._claim_parts,
            on_end=self._ended,
            on_process_end=self._process_ended,
        )
        watch.start()
        self._stack.push_async_callback(watch.stop)

    def _dial(self) -> None:
        assert self._commands
        self.config.tls.check()
        self._link = Link(
            self.config.orchestrator,
            tokens=TokenFile(self.config.token_file) if self.config.token_file else None,
            tls=self.config.tls,
            table=self._table,
            commands=self._commands,
            hello=self._hello,
            declared=lambda: self._groups.declared,
            adopt=self._groups.adopt,
        )
        task = asyncio.create_task(self._link.run())
        self._stack.push_async_callback(cancelled, task)

    async def _listen(self, journal: Journal) -> None:
        assert self._commands
        assert self._survey
        registration = Registration(
            self._table,
            self._groups,
            procfs=self._procfs,
            survey=self._survey,
            journal=journal,
            commands=self._commands,
            orchestrated=bool(self.config.orchestrator),
            on_end=self._ended,
        )
        service = SnapshotAgent(
            self._table,
            self._groups,
            commands=self._commands,
            registration=registration,
            devices=self._device_messages,
            orchestrated=bool(self.config.orchestrator),
            process_name=self._names.of,
        )
        options = [*SERVER_PINGS, *SERVER_LIMITS, ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(interceptors=[Decoding()], options=options)
        snapshot_agent_pb2_grpc.add_SnapshotAgentServicer_to_server(service, server)
        listen(server, self.config.socket, mode=self.config.socket_mode)
        self._stack.push_async_callback(server.stop, _STOP_GRACE_S)
        await server.start()
        await self._serve_claims()

    async def _serve_claims(self) -> None:
        survey, sockets = self._survey, self._sockets
        assert survey
        if sockets:
            self._stack.push_async_callback(sockets.stop)
            await sockets.serve(
                lambda uid: ClaimAgent(
                    uid,
                    self._claim_parts,
                    table=self._table,
                    survey=survey,
                    devices=lambda: self.devices,
                    process_name=self._names.inside,
                )
            )

    def _ended(self, member: Member) -> None:
        self._claim_parts.ended(member)
        self._gone(member)

    def _process_ended(self, process: ProcessId) -> None:
        told = self._names.ended(process) or any(process in part.roots for part in self._table.parts())
        if self._link and told:
            self._link.tell_process_end(self._names.of(process))

    def _gone(self, member: Member) -> None:
        if self._link:
            self._link.tell_end(member)

    def _device_messages(self) -> list[types_pb2.Device]:
        return [wire.to_device(device) for device in self.devices]

    async def _hello(self) -> agent_link_pb2.Hello:
        assert self._commands
        watermark = self._commands.watermark
        return agent_link_pb2.Hello(
            node=self.config.name,
            boot_id=self._boot_id,
            devices=self._device_messages(),
            parts=wire.to_parts(self._table.parts()),
            highest_epoch=watermark.epoch,
            highest_token=watermark.highest_token,
            groups=wire.to_groups(self._groups.declared),
        )
