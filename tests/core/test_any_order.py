"""Whatever happens in whatever order: the rules of core_judge hold, and in the end everybody is served."""

from __future__ import annotations

import contextlib

import pytest
from core_judge import Judge
from core_world import BUSY, LOCKED, NO_MEMORY, PARKED, RUNNING, Breakage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from timeslice_api.errors import InvalidRequest, JobNotFound, TimesliceError, Unavailable
from timeslice_orchestrator.core.events import Drained, ForceReleased, PartsReported, ResetRequested, Resumed
from timeslice_orchestrator.core.model import MemberKey, Settings

GROUPS = {
    "t": {"n1": ["d1"], "n2": ["d2"], "n3": ["d3"]},
    "s": {"n1": ["d4"], "n3": ["d5", "d6"]},
    "u": {"n2": ["d7"]},
}
PLACES = [(group, node) for group, nodes in GROUPS.items() for node in nodes]
MEMBERS = [(job, group, node) for job in "abc" for group, node in PLACES]
JOBS = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from(["n1", "n2", "n3"])
SOME_GROUPS = st.lists(st.sampled_from([*GROUPS]), min_size=1, max_size=2, unique=True)
PROCESSES = st.sampled_from(["", "n1/1/1", "n1/2/2"])
BREAKAGES = st.sampled_from(
    [
        Breakage(LOCKED, BUSY),
        Breakage(PARKED, NO_MEMORY),
        Breakage(PARKED, BUSY),
        Breakage(RUNNING, BUSY),
        Breakage(LOCKED, NO_MEMORY),
        Breakage(PARKED, None, resident=True),
        Breakage(PARKED, None, resident=False),
        Breakage(LOCKED, None, resident=True),
        Breakage(RUNNING, None, resident=True),
    ]
)


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = Judge(GROUPS, Settings(restart_grace_s=3.0, lease_ttl_s=8.0, lease_grace_s=8.0))

    def pick(self, data: st.DataObject, things: object) -> str:
        return data.draw(st.sampled_from(sorted(things)))  # type: ignore[call-overload, no-any-return]

    @initialize(members=st.sets(st.sampled_from(MEMBERS), min_size=5))
    def jobs_start(self, members: set[tuple[str, str, str]]) -> None:
        for job, group, node in sorted(members):
            self.world.join(job, group, **{node: GROUPS[group][node]})

    # clients

    @rule(job=JOBS, groups=SOME_GROUPS)
    def phase(self, job: str, groups: list[str]) -> None:
        """An acquire that is served at once, if nothing is in the way, is used and given back."""
        before = set(self.world.open_)
        self.acquire(job, groups)
        self.world.run()
        for request in set(self.world.leases) - before:
            self.world.use(request)
            self.world.yield_(request)
            self.world.end(request, "yielded")

    @rule(jobs=st.permutations("abc"), groups=SOME_GROUPS, data=st.data())
    def hand_off_begins(self, jobs: list[str], groups: list[str], data: st.DataObject) -> None:
        """One job uses its devices and gives them back, the other asks; the other rules see to the rest."""
        self.phase(jobs[0], groups)
        self.acquire(jobs[1], groups)
        for job in data.draw(st.lists(st.sampled_from(jobs[:2]), max_size=2)):
            place = data.draw(st.sampled_from([place for place in PLACES if place[0] in groups]))
            self.something_will_break(job, place, data.draw(BREAKAGES))
        for node in data.draw(st.lists(NODES, max_size=3)):
            self.execute(node)

    @precondition(lambda self: any(node.inbox for node in self.world.nodes.values()))
    @rule(data=st.data(), executed=st.integers(0, 2))
    def link_breaks_under_way(self, data: st.DataObject, executed: int) -> None:
        self.link_breaks(self.pick(data, [n.name for n in self.world.nodes.values() if n.inbox]), executed)

    @rule()
    def all_ask_again(self) -> None:
        for request, (job, groups) in [*self.world.open_.items()]:
            if request in self.world.open_:
                self.world.acquire(job, *groups, request=request)

    @rule(job=JOBS, groups=SOME_GROUPS, process=PROCESSES)
    def acquire(self, job: str, groups: list[str], process: str = "") -> None:
        if sum(open_job == job for open_job, _ in self.world.open_.values()) >= 3:
            return
        request = f"r{len(self.world.open_) + len(self.world.ended)}"
        self.world.open_[request] = job, tuple(groups)
        try:
            self.world.acquire(job, *groups, request=request, process=process)
        except TimesliceError:
            del self.world.open_[request]
            self.world.ended[request] = "raised"

    @precondition(lambda self: self.world.open_)
    @rule(data=st.data(), process=PROCESSES)
    def ask_again(self, data: st.DataObject, process: str) -> None:
        request = self.pick(data, self.world.open_)
        job, groups = self.world.open_[request]
        self.world.acquire(job, *groups, request=request, process=process)

    @rule(node=NODES, process=st.sampled_from(["n1/1/1", "n1/2/2"]))
    def process_ends(self, node: str, process: str) -> None:
        if self.world.nodes[node].connected:
            self.world.do(PartsReported(node, ended_processes=(process,)))

    @precondition(lambda self: self.world.ended)
    @rule(data=st.data())
    def ask_for_what_has_ended(self, data: st.DataObject) -> None:
        request = self.pick(data, self.world.ended)
        if request in self.world.books.ended:
            with pytest.raises(TimesliceError):
                self.world.acquire("a", "t", request=request)

    @precondition(lambda self: self.world.open_)
    @rule(data=st.data())
    def ask_for_something_else(self, data: st.DataObject) -> None:
        with pytest.raises(InvalidRequest):
            self.world.acquire("z", "t", request=self.pick(data, self.world.open_))

    @precondition(lambda self: self.world.open_)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        self.world.detach(self.pick(data, self.world.open_))

    @precondition(lambda self: self.world.open_)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        request = self.pick(data, self.world.open_)
        assert self.world.withdraw(request, self.world.open_[request][0])
        self.world.end(request, "withdrawn")

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data())
    def yield_(self, data: st.DataObject) -> None:
        request = self.pick(data, self.world.leases)
        assert not self.world.yield_(request).already_yielded
        self.world.end(request, "yielded")

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        assert not self.world.renew(self.pick(data, self.world.leases)).lost

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        self.world.use(self.pick(data, self.world.leases))

    # nodes

    @rule(node=NODES)
    def execute(self, node: str) -> None:
        if self.world.nodes[node].inbox:
            self.world.nodes[node].execute()

    @rule(node=NODES)
    def deliver(self, node: str) -> None:
        if self.world.nodes[node].outbox:
            self.world.deliver(node)

    @rule()
    def all_answer(self) -> None:
        self.world.run()

    @rule(job=JOBS, place=st.sampled_from(PLACES))
    def processes_start(self, job: str, place: tuple[str, str]) -> None:
        group, node = place
        sim = self.world.nodes[node]
        if MemberKey(job, group) in sim.parts or not sim.connected:
            return
        while sim.outbox:
            self.world.deliver(node)
        self.world.join(job, group, **{node: GROUPS[group][node]})

    @rule(job=JOBS, place=st.sampled_from(PLACES))
    def processes_die(self, job: str, place: tuple[str, str]) -> None:
        group, node = place
        sim, key = self.world.nodes[node], MemberKey(job, group)
        if sim.parts.pop(key, None) and sim.connected:
            sim.outbox.append(PartsReported(node, ended=(key,)))

    @rule(job=JOBS, place=st.sampled_from(PLACES), breakage=BREAKAGES)
    def something_will_break(self, job: str, place: tuple[str, str], breakage: Breakage) -> None:
        self.world.break_(job, place[0], place[1], breakage)

    @rule(node=NODES, executed=st.integers(0, 2))
    def link_breaks(self, node: str, executed: int) -> None:
        sim = self.world.nodes[node]
        if not sim.connected:
            return
        for _ in range(min(executed, len(sim.inbox))):
            sim.execute()
        self.world.lose(node)

    @rule(node=NODES, executed=st.integers(0, 2))
    def hello(self, node: str, executed: int) -> None:
        sim = self.world.nodes[node]
        for _ in range(min(executed, len(sim.inbox))):
            sim.execute()
        self.world.connect(node)

    # admins, time, the orchestrator

    @rule(seconds=st.sampled_from([0.3, 2.0, 6.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.until(self.world.now + seconds)

    @rule(group=st.sampled_from([*GROUPS]), job=st.sampled_from(["", "a"]))
    def force_release(self, group: str, job: str) -> None:
        self.world.do(ForceReleased(group, job))

    @rule(group=st.sampled_from([*GROUPS]))
    def drain(self, group: str) -> None:
        self.world.do(Drained(group))

    @rule(group=st.sampled_from([*GROUPS]))
    def resume(self, group: str) -> None:
        self.world.do(Resumed(group))

    @rule(group=st.sampled_from(["", *GROUPS]), job=st.sampled_from("ab"))
    def reset(self, group: str, job: str) -> None:
        with contextlib.suppress(JobNotFound, Unavailable):
            self.world.do(ResetRequested("reset", job, group))

    @rule(connect=st.booleans())
    def restart(self, connect: bool) -> None:
        self.world.forget_left()
        self.world.restart(connect=connect)
        if not connect:
            for node in self.world.nodes.values():
                node.connected = False

    @invariant()
    def the_rules_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.finish()


TestAnyOrder = AnyOrder.TestCase
LIMIT_S = 1800 if settings.default.max_examples > 1000 else 120
TestAnyOrder.pytestmark = [pytest.mark.timeout(LIMIT_S)]  # type: ignore[attr-defined]
