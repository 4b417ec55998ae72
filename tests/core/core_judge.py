"""A world that watches: what must hold whatever happens, checked against the nodes, which are the truth."""

from __future__ import annotations

from core_world import EMPTY, FAILED, RUNNING, World
from timeslice_api.errors import TimesliceError
from timeslice_orchestrator.core.books import Books, Request
from timeslice_orchestrator.core.effects import Effect, Granted, SendCommand
from timeslice_orchestrator.core.events import Event, Resumed
from timeslice_orchestrator.core.model import CounterRecord, LeaseRecord, RequestRecord, key_of


class Judge(World):
    """Checks every effect as it comes; `check` and `finish` look at the whole."""

    open_: dict[str, tuple[str, tuple[str, ...]]]
    ended: dict[str, str]
    token: int
    asked_before: dict[str, set[str]]

    def do(self, event: Event) -> list[Effect]:
        if not hasattr(self, "open_"):
            self.open_, self.ended, self.token, self.asked_before = {}, {}, 0, {}
        effects = super().do(event)
        for effect in effects:
            if isinstance(effect, SendCommand):
                self._token_rises(effect.token)
        return effects

    @property
    def books(self) -> Books:
        return self.core._books

    def restart(self, *, connect: bool = True) -> None:
        """What was asked before and what after a grant is not stored."""
        self.asked_before = {request: {*self.open_} for request in self.leases}
        super().restart(connect=connect)

    def _token_rises(self, token: int) -> None:
        counters = self.store[key_of(CounterRecord())]
        assert isinstance(counters, CounterRecord)
        assert counters.token >= token, "a token is saved before it is used"

    def end(self, request: str, how: str) -> None:
        assert request in self.open_, f"{request} ends as {how}, but it ended as {self.ended.get(request)}"
        del self.open_[request]
        self.ended[request] = how

    def on_grant(self, granted: Granted) -> None:
        lease = granted.lease
        if granted.request_id in self.leases:
            assert self.leases[granted.request_id] == lease, "asked again, the same lease"
            return
        before = {d for held in self.leases.values() if held.job_id == lease.job_id for d in held.devices}
        assert granted.request_id in self.open_
        assert lease.token > self.token, "tokens only rise"
        self.token = lease.token
        self._nobody_else_is_there(lease.job_id, lease.devices)
        self._own_state_is_there(lease.job_id, lease.group_ids, lease.devices)
        self._nothing_is_drained(lease.group_ids, lease.devices - before)
        joined = before & (lease.devices | {d for d in before if self.books.devices[d].group_id in lease.group_ids})
        self._nobody_was_overtaken(granted.request_id, lease.devices, joined=joined)
        self.asked_before[granted.request_id] = {*self.open_}
        super().on_grant(granted)

    def _nobody_else_is_there(self, job: str, devices: frozenset[str]) -> None:
        for held in self.leases.values():
            assert held.job_id == job or not held.devices & devices, f"{held.job_id} holds what {job} is granted"
        for node in self.nodes.values():
            for key, part in node.parts.items():
                if part.devices & devices:
                    assert node.connected, "granted on a node that is not heard"
                    assert key.job_id == job or not part.on_devices, f"{key} is resident where {job} is granted"

    def _own_state_is_there(self, job: str, groups: tuple[str, ...], devices: frozenset[str]) -> None:
        """What is on nodes that were not heard since a restart, and are not awaited any longer, is taken care of when
        they are heard."""
        heard = {node.name for node in self.books.nodes.values() if node.heard}
        for node in (self.nodes[name] for name in self.nodes.keys() & heard):
            for key, part in node.parts.items():
                if key.job_id == job and key.group_id in groups:
                    assert part.state in (RUNNING, EMPTY), f"{key} is granted while {part.state} on {node.name}"

    def _nothing_is_drained(self, groups: tuple[str, ...], new: frozenset[str]) -> None:
        drained = {group for group in groups if ("drain", group) in self.store}
        assert not (drained and new), f"{new} granted while {drained} is draining"

    def _nobody_was_overtaken(
        self, request: str, devices: frozenset[str], *, joined: set[str] | frozenset[str]
    ) -> None:
        """On what its job did not hold yet; but for those who wait for what its job holds there, and so for itself."""
        mine = self.books.requests[request].record
        for device in devices - joined:
            for other in self.books.devices[device].queue:
                if other.record.ticket < mine.ticket and other.record.job_id != mine.job_id:
                    assert joined & {wanted.device_id for wanted in other.wants}, f"{request} overtook {other.record}"
                    break

    def on_refusal(self, request_id: str, error: TimesliceError) -> None:
        self.end(request_id, type(error).__name__)
        super().on_refusal(request_id, error)

    def on_loss(self, request_id: str, reason: str) -> None:
        self.end(request_id, reason)
        super().on_loss(request_id, reason)

    def forget_left(self) -> None:
        """Requests whose client stayed away for too long end without a word."""
        for request in [r for r in self.open_ if r not in self.books.requests]:
            assert self.books.ended[request].how.value == "left by its client"
            self.end(request, "left")

    def check(self) -> None:
        """What holds between any two events."""
        self.forget_left()
        assert set(self.books.requests) == set(self.open_)
        for device in self.books.devices:
            there = {
                k.job_id
                for n in self.nodes.values()
                for k, p in n.parts.items()
                if device in p.devices and p.on_devices
            }
            assert len(there) <= 1, f"{there} are both on {device}"
        self._store_is_complete()
        self._books_are_consistent()
        self._nobody_waits_in_a_circle()
        for group in self.core.groups():
            self.core.view(group, self.now)

    def _nobody_waits_in_a_circle(self) -> None:
        waiting = [request for request in self.books.requests.values() if not request.lease]
        left = {request: self._waits_for(request) for request in waiting}
        while free := [request for request, others in left.items() if not others & left.keys()]:
            for request in free:
                del left[request]
        assert not left, [request.record for request in left]

    def _waits_for(self, request: Request) -> set[Request]:
        job, others = request.record.job_id, set()
        own = [device for device in self.books.devices.values() if device.holder == job]
        joined = {d for d in own if d in request.wants or d.group_id in request.record.group_ids}
        for device in request.wants:
            if device.holder != job:
                others |= self._asked_while_holding(device.device_id)
                for earlier in device.queue[: device.queue.index(request)]:
                    if earlier.record.job_id != job:
                        if joined & {*earlier.wants}:
                            break
                        others.add(earlier)
        return others

    def _asked_while_holding(self, device: str) -> set[Request]:
        """What the holder of a device asks for, unless it did so before it held."""
        found = set()
        for held, lease in self.leases.items():
            if device in lease.devices:
                mine = (r for r in self.books.requests.values() if not r.lease and r.record.job_id == lease.job_id)
                found |= {r for r in mine if r.record.request_id not in self.asked_before[held]}
        return found

    def _store_is_complete(self) -> None:
        waiting = {r.record for r in self.books.requests.values() if not r.lease}
        held = {r.lease for r in self.books.requests.values() if r.lease}
        assert {r for r in self.store.values() if isinstance(r, RequestRecord)} == waiting
        assert {r.lease for r in self.store.values() if isinstance(r, LeaseRecord)} == held
        assert set(self.leases.values()) == held

    def _books_are_consistent(self) -> None:
        books = self.books
        assert not books.dirty
        assert not books.again
        asked = {request: request.process for request in books.requests.values() if request.process}
        assert {r: process for process, mine in books.processes.items() for r in mine} == asked
        for device in books.devices.values():
            tickets = [request.record.ticket for request in device.queue]
            assert tickets == sorted(set(tickets))
            assert sum(device.jobs.values()) == len(tickets)
            held = [r for r in books.requests.values() if r.lease and device.device_id in r.lease.devices]
            assert device.holds == len(held)
            assert {r.record.job_id for r in held} == ({device.holder} - {""})
        active = {handoff for device in books.devices.values() if (handoff := device.handoff)}
        sent = {command for handoff in active for command in (s.command_id for s in handoff.pending.values())}
        assert set(books.commands) == sent
        for node in books.nodes.values():
            assert set(node.handoffs) <= active
        assert books.waiting == sum(not r.lease for r in books.requests.values())

    def finish(self) -> None:
        """After all faults have stopped, whoever waits is served, one after the other, and nothing is left behind."""
        for name, node in self.nodes.items():
            if not node.connected:
                self.connect(name)
        for _ in range(300):
            self._everybody_asks_and_yields()
            self._admins_clean_up()
            if not self.open_:
                break
            self.until(self.now + 1.0)
        else:
            raise AssertionError([self.core.waiting(r, self.now) for r in self.open_])
        self.run()
        self.check()
        self._nothing_is_left_behind()

    def _admins_clean_up(self) -> None:
        for name, node in self.nodes.items():
            for key in [key for key, part in node.parts.items() if part.state is FAILED]:
                self.kill(key.job_id, key.group_id, name)
        for group in self.core.groups():
            self.do(Resumed(group))
        self.run()

    def _everybody_asks_and_yields(self) -> None:
        for request, (job, groups) in [*self.open_.items()]:
            if request in self.open_ and request not in self.leases:
                self.acquire(job, *groups, request=request)
        self.run()
        for request in [*self.leases]:
            self.use(request)
        for request in [*self.leases]:
            self.yield_(request)
            self.end(request, "yielded")
        self.run()
        self.forget_left()

    def _nothing_is_left_behind(self) -> None:
        books = self.books
        assert not books.jobs
        assert not books.commands
        assert not books.entangled
        assert not any(device.handoff or device.queue or device.holder for device in books.devices.values())
        for node in self.nodes.values():
            assert set(books.node(node.name).parts) == set(node.parts)
            for key, part in node.parts.items():
                known = books.members[key].parts[node.name]
                assert known.state is part.state or (known.assumed and part.state in (EMPTY, RUNNING))
