"""What the two faces of a client share: configuration, channel, holdings and the threads behind them."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import TypedDict

import grpc
from timeslice_api.addresses import checked_address
from timeslice_api.errors import ForkedClient, NotHolder, TimesliceError
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc, snapshot_agent_pb2, snapshot_agent_pb2_grpc

from timeslice import lifetime
from timeslice.acquisition import Acquisition, Call, Grant, Want
from timeslice.channel import NODE_OPTIONS, Line, unix_address
from timeslice.delivery import Delivery
from timeslice.holding import Holding, Holdings, Sharer, lost_error
from timeslice.keepalive import KeepAlive
from timeslice.observe import PhaseRecord
from timeslice.presenting import presenting
from timeslice.settings import Given, Mode, resolve
from timeslice.waiting import WaitStatus

log = logging.getLogger("timeslice")

REGISTER_TIMEOUT_S = 10.0


class ClientOptions(TypedDict, total=False):
    """What a client may be told; each of the first nine falls back to the environment.

    Keys:
        job_id: name of the RL run.
        group_id: the default group.
        mode: on, observe or off.
        node_socket: path of the node's unix socket, for self-registration.
        observe_file: where observe mode records phases.
        token_file: with the token that says to the orchestrator who asks; read again when it changes.
        tls_ca, tls_cert, tls_key: PEM files for an orchestrator on another machine: whom to trust, and what to show
            where it asks clients for a certificate. Read again when they change.
        holder: who asks, for people; default `host:pid`.
        on_wait: called in the waiting thread with a WaitStatus after each bounded wait.
        on_lost, on_wanted: called in a background thread with the group ids.
        reacquire_lost: ask again at once for a lease that was lost, so that accelerator calls which wait can go on
            (default); otherwise leaving the region raises LeaseLost.
    """

    job_id: str | None
    group_id: str | None
    mode: str | None
    node_socket: str | None
    observe_file: str | None
    token_file: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    holder: str
    on_wait: Callable[[WaitStatus], None] | None
    on_lost: Callable[[tuple[str, ...]], None] | None
    on_wanted: Callable[[tuple[str, ...]], None] | None
    reacquire_lost: bool


class Session:
    """One client's state. Its channel is opened at the first use, never before a fork that nobody thought of."""

    def __init__(self, address: str | None, options: ClientOptions) -> None:
        given = Given(
            address=address,
            job_id=options.get("job_id"),
            group_id=options.get("group_id"),
            mode=options.get("mode"),
            node_socket=options.get("node_socket"),
            observe_file=options.get("observe_file"),
            token_file=options.get("token_file"),
            tls_ca=options.get("tls_ca"),
            tls_cert=options.get("tls_cert"),
            tls_key=options.get("tls_key"),
        )
        self.settings = resolve(given)
        if self.settings.address:
            checked_address(self.settings.address)
            self.settings.tls.check()
        self.options = options
        self.holdings = Holdings()
        self.delivery = Delivery()
        self._record = PhaseRecord(self.settings.job_id, self.settings.observe_file)
        self._keepalive = KeepAlive(
            self.settings.job_id,
            lambda: self.stub.KeepAlive,
            renewable=self.holdings.renewable,
            on_news=self._on_news,
        )
        self._lock = threading.Lock()
        self._orchestrator = Line(self.settings.address, self.settings.tls)
        self._node = Line(unix_address(self.settings.node_socket), options=NODE_OPTIONS)
        self._stub: tuple[grpc.Channel, orchestrator_pb2_grpc.OrchestratorStub] | None = None
        self._registered: set[str] = set()
        self._process = ""  # this process, as its node has named it
        self._regaining: dict[Holding, Acquisition] = {}
        self.forked = False
        self.closed = False
        lifetime.follow(self)

    @property
    def takes_turns(self) -> bool:
        """Whether the orchestrator is asked at all."""
        return self.settings.mode is Mode.ON

    @property
    def stub(self) -> orchestrator_pb2_grpc.OrchestratorStub:
        """The orchestrator. To be asked for anew before each call: its certificates may have changed."""
        channel = self._orchestrator.channel()
        if self._stub is None or self._stub[0] is not channel:
            asked = presenting(channel, self.settings.token_file)
            self._stub = channel, orchestrator_pb2_grpc.OrchestratorStub(asked)
        return self._stub[1]

    def check_usable(self) -> None:
        """Raises ForkedClient in a forked child, and TimesliceError after `close()`."""
        if self.forked:
            raise ForkedClient("this client belongs to the parent process", job_id=self.settings.job_id)
        if self.closed:
            raise TimesliceError("this client is closed", hint="make a new one", job_id=self.settings.job_id)

    def acquisition(self, group_ids: tuple[str, ...], timeout: float | None) -> Acquisition:
        """A new request for these groups."""
        holder = self.options.get("holder") or f"{socket.gethostname()}:{os.getpid()}"
        return Acquisition(
            Want(self.settings.job_id, group_ids, timeout, holder),
            lambda: self.stub.Acquire,
            registrations=tuple(self._registration(group) for group in group_ids if self._unregistered(group)),
            on_wait=self.options.get("on_wait"),
            process=self._process,
            on_process=self._named,
        )

    def _named(self, process: str) -> None:
        self._process = process

    def began(self, sharer: Sharer, grant: Grant) -> None:
        """The sharer has its lease."""
        sharer.waited_s, sharer.restored = grant.waited_s, grant.restored
        self.registered(grant.group_ids)
        self.holdings.add([sharer], grant)
        self.attend(grant)

    def registered(self, group_ids: tuple[str, ...]) -> None:
        """The node knows this process in these groups."""
        self._registered.update(group_ids)

    def attend(self, grant: Grant) -> None:
        """Renews the lease from now on."""
        if grant.lease_id:
            self._keepalive.attend()

    def yielding(self, holding: Holding) -> orchestrator_pb2.YieldRequest | None:
        """What gives an ended holding back; None when there is nothing to give back."""
        if self.settings.mode is Mode.OBSERVE:
            self._record.write(holding)
        if (regaining := self._regaining.pop(holding, None)) is not None:
            self.withdraw_later(regaining)
        if not holding.grant.lease_id or holding.lost.is_set():
            return None
        return orchestrator_pb2.YieldRequest(lease_id=holding.grant.lease_id, job_id=self.settings.job_id)

    def yielded(self, holding: Holding, answer: orchestrator_pb2.YieldResponse | None) -> None:
        """Looks at how a holding ended.

        Raises:
            LeaseLost: it had been taken away, and this client does not ask again by itself.
        """
        if answer is not None and answer.already_yielded:
            holding.lost.set()
        if not holding.lost.is_set():
            return
        error = lost_error(holding)
        if not self.options.get("reacquire_lost", True):
            raise error
        log.warning("%s before it was given back; the job's state was safe meanwhile", error.message)

    def withdraw_later(self, acquisition: Acquisition) -> None:
        """Takes a request out of the queue in the background."""
        self.delivery.add(self.stub.Withdraw, acquisition.withdrawal(), "a withdrawal")

    def yield_later(self, request: orchestrator_pb2.YieldRequest) -> None:
        """Gives a lease back in the background."""
        self.delivery.add(self.stub.Yield, request, "a yield")

    def share_to_end(self, group_ids: tuple[str, ...]) -> Sharer:
        """The share that `yield_()` means. Raises NotHolder when there is none."""
        sharer = self.holdings.newest(group_ids)
        if sharer is None:
            groups = " and ".join(group_ids)
            raise NotHolder(f"this client does not hold {groups}", job_id=self.settings.job_id, group_id=groups)
        return sharer

    def end(self, until: float) -> bool:
        """Gives everything back in the calling thread, until that time (monotonic seconds); False when it is short.

        In a forked child it does nothing at all: what is held belongs to the parent.
        """
        if self.forked or self.closed:
            return True
        self.closed = True
        self._keepalive.stop()
        self.delivery.stop()
        for acquisition in list(self._regaining.values()):
            self.withdraw_later(acquisition)
        for holding in self.holdings.clear():
            request = self.yielding(holding)
            if request is not None:
                self.yield_later(request)
        delivered = self.delivery.flush(until)
        self._orchestrator.close()
        self._node.close()
        return delivered

    def become_inert(self) -> None:
        """In a forked child: threads are gone, locks may be held for ever, and nothing here is the child's."""
        self.forked = True

    def _unregistered(self, group_id: str) -> bool:
        return bool(self.settings.node_socket) and group_id not in self._registered

    def _registration(self, group_id: str) -> Call:
        node = snapshot_agent_pb2_grpc.SnapshotAgentStub(self._node.channel())
        request = snapshot_agent_pb2.RegisterRequest(job_id=self.settings.job_id, group_id=group_id, pid=os.getpid())
        return Call(node.Register, request, REGISTER_TIMEOUT_S)

    def _on_news(self, lost: list[str], wanted: list[str]) -> None:
        for holding in self.holdings.mark_wanted(wanted):
            if (on_wanted := self.options.get("on_wanted")) is not None:
                on_wanted(holding.grant.group_ids)
        for holding in self.holdings.mark_lost(lost):
            log.warning("%s", lost_error(holding).message)
            if self.options.get("reacquire_lost", True):
                self._regain(holding)
            if (on_lost := self.options.get("on_lost")) is not None:
                on_lost(holding.grant.group_ids)

    def _regain(self, holding: Holding) -> None:
        """Stands in line again for a region whose accelerator calls may wait for it, so nobody else can ask."""
        from timeslice._sync.asking import regain

        acquisition = self.acquisition(holding.grant.group_ids, None)
        self._regaining[holding] = acquisition
        threading.Thread(target=regain, args=(self, holding, acquisition), name="timeslice-regain", daemon=True).start()

    def regained(self, holding: Holding, grant: Grant) -> None:
        """The lost holding has a new lease; when its region has ended meanwhile, the lease goes back."""
        self._regaining.pop(holding, None)
        if self.holdings.replace(holding, grant):
            log.info("%s is held again", " and ".join(grant.group_ids))
            self.attend(grant)
        else:
            self.yield_later(orchestrator_pb2.YieldRequest(lease_id=grant.lease_id, job_id=self.settings.job_id))
