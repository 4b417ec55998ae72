"""Hand-offs under way: their start, the commands and answers, the way back after a fault, and their end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from timeslice_api.errors import OperationFailed

from timeslice_orchestrator.core import handoff as steps
from timeslice_orchestrator.core import members, queue
from timeslice_orchestrator.core.books import NEVER, Books, Handoff, Member, Node, Part, Request, Sent
from timeslice_orchestrator.core.effects import HandedOver, SendCommand
from timeslice_orchestrator.core.events import CommandDone
from timeslice_orchestrator.core.model import Fault, GroupId, MemberKey, PartReport, PartState, Setback, Timings
from timeslice_orchestrator.core.tables import RESIDENT, End, Phase, Role

_MOST_BYTES = (1 << 63) - 1  # of a sum: numbers of 64 bits carry it elsewhere


def start(books: Books, request: Request, *, leaving: Iterable[Member], coming: Iterable[Member]) -> None:
    """Begins to bring a request's job onto its devices. The caller has made sure that all of it is free to move."""
    roles = dict.fromkeys(leaving, Role.LEAVING) | dict.fromkeys(coming, Role.COMING)
    handoff = Handoff(
        request=request,
        roles={member.key: role for member, role in roles.items()},
        before={(m.key, node): part.state for m in roles for node, part in m.parts.items()},
        devices=request.wants,
        busy=tuple(dict.fromkeys([*request.wants, *(d for member in roles for d in member.devices)])),
        nodes=tuple(dict.fromkeys(part.node for member in roles for part in member.parts.values())),
        started_at=books.now,
    )
    for device in handoff.busy:
        device.handoff = handoff
    for node in handoff.nodes:
        node.handoffs[handoff] = None
    _touch(books, handoff)
    advance(books, handoff)


def advance(books: Books, handoff: Handoff) -> None:
    """Sends what is next when nothing is awaited; nodes that are not heard get it after their hello."""
    if handoff.pending:
        return
    handoff.backward = handoff.backward or handoff.fault is not None
    step = steps.plan(books, handoff)
    if not step:
        _finish(books, handoff)
        return
    handoff.phase, targets = step
    _send(books, handoff, targets)


def _send(books: Books, handoff: Handoff, targets: steps.Targets) -> None:
    heard = [name for name in targets if books.nodes[name].connected]
    token = books.next_token() if heard else 0
    for name in heard:
        was = {key: books.nodes[name].parts[key].state for key, _ in targets[name]}
        sent = Sent(books.next_command_id(), tuple(targets[name]), was, books.now)
        handoff.pending[name] = sent
        books.commands[sent.command_id] = handoff, name
        books.out.add(SendCommand(name, sent.command_id, token, sent.targets, books.settings.lock_timeout_s))


def answered(books: Books, node: Node, event: CommandDone) -> None:
    """Takes a node's result: the states always, the verdict on a command only once."""
    reports = {report.member: report for report in event.parts}
    handoff, name = books.commands.get(event.command_id, (None, ""))
    if handoff and name == node.name:
        del books.commands[event.command_id]
        sent = handoff.pending.pop(name)
        for key, target in sent.targets:
            if not event.refused:
                _take_answer(books, handoff, (node, key, sent.was[key]), reports.pop(key, None))
            if (part := node.parts.get(key)) and steps.missed(handoff, part, target):
                _fail(handoff, part, _refusal(event) or steps.fault_of(part, target))
    for report in reports.values():
        members.observe(books, node, report)
    if handoff:
        advance(books, handoff)


def lost(books: Books, node: Node) -> None:
    """The link to a node broke: its hand-offs wait for its hello, but nobody is kept locked for that."""
    for handoff in [*node.handoffs]:
        _forget_command(books, handoff, node)
        if handoff.phase is Phase.LOCK and not handoff.fault:
            handoff.fault = Fault("NodeLost", f"{node.name} is not connected", retryable=True)
        advance(books, handoff)


def heard(books: Books, node: Node) -> None:
    """A node has told all its states: what was on its way to it is void and sent anew, as far as it is still due."""
    for handoff in [*node.handoffs]:
        _forget_command(books, handoff, node)
        if handoff.pending and (handoff.backward or not handoff.fault):  # it need not wait for the others
            _send(books, handoff, steps.catch_up(books, handoff, node.name))
        advance(books, handoff)


def _forget_command(books: Books, handoff: Handoff, node: Node) -> None:
    if sent := handoff.pending.pop(node.name, None):
        del books.commands[sent.command_id]


def stuck(books: Books, handoff: Handoff) -> str:
    """Which node a hand-off waits for longer than it should; empty when none."""
    for node in handoff.nodes:
        if not node.connected:
            return f"{node.name} is not connected"
    for name, sent in handoff.pending.items():
        waited = books.now - sent.at
        if waited > books.settings.command_timeout_s:
            return f"{name} has not answered for {waited:.0f} s"
    return ""


def progress(books: Books, handoff: Handoff) -> str:
    """Which node does what, and since when: the oldest command that was not answered yet. Empty when none is."""
    if not handoff.pending:
        return ""
    name, sent = min(handoff.pending.items(), key=lambda each: each[1].at)
    wanted = ", ".join(f"{key.job_id} {state.value}" for key, state in sent.targets)
    others = f", and {len(handoff.pending) - 1} other nodes" if len(handoff.pending) > 1 else ""
    return f"{name} was told {books.now - sent.at:.0f} s ago ({wanted}){others}"


def _take_answer(
    books: Books, handoff: Handoff, at: tuple[Node, MemberKey, PartState], report: PartReport | None
) -> None:
    """What a node says of one part that a command named; nothing said means that it had ended before."""
    node, key, was = at  # how the part was when the command was sent; a report may have told of its move already
    role = handoff.roles[key]
    if not report:
        if key in node.parts:
            members.gone(books, node.parts[key])
        return
    members.observe(books, node, report, locked=role is Role.LEAVING and not report.fault)
    _add_time(handoff, node, report)
    if PartState.PARKED in (was, report.state) and not RESIDENT.isdisjoint((was, report.state)):
        handoff.moved.append((key.group_id, role, report.bytes_))


def _add_time(handoff: Handoff, node: Node, report: PartReport) -> None:
    key, took = (report.member.group_id, node.name), report.timings
    old = handoff.spent.get(key, (0.0, 0.0, 0.0, 0.0))
    new = took.lock_s, took.checkpoint_s, took.restore_s, took.unlock_s
    handoff.spent[key] = (old[0] + new[0], old[1] + new[1], old[2] + new[2], old[3] + new[3])


def _refusal(event: CommandDone) -> Fault | None:
    """A refused command says nothing of the parts, so it may always be tried again."""
    return replace(event.refused, retryable=True) if event.refused else None


def _fail(handoff: Handoff, part: Part, fault: Fault) -> None:
    key = part.member.key
    if handoff.backward:
        handoff.given_up.add((key, part.node.name))
        return
    role = handoff.roles[key]
    # What comes often fails only because what leaves did not, so the latter is the cause to tell.
    if not handoff.fault or (role is Role.LEAVING and handoff.culprit and handoff.roles[handoff.culprit] is not role):
        handoff.fault, handoff.culprit = fault, key
        hopeless = part.state is PartState.FAILED or (part.state is PartState.PARKED and not fault.retryable)
        handoff.refuses = role is Role.COMING and hopeless


def _finish(books: Books, handoff: Handoff) -> None:
    for device in handoff.busy:
        device.handoff = None
        books.dirty[device] = None
    for node in handoff.nodes:
        del node.handoffs[handoff]
    _touch(books, handoff)
    if not handoff.fault:
        _count(books, handoff)
    elif handoff.refuses:
        _refuse(books, handoff, handoff.fault)
    else:
        _back_off(books, handoff, handoff.fault)


def _count(books: Books, handoff: Handoff) -> None:
    for device in handoff.devices:
        device.failures, device.retry_at, device.setback = 0, -NEVER, None
    restored = any(role is Role.COMING for _, role, _ in handoff.moved)
    for request in _waiting(books, handoff):
        request.restored = request.restored or (restored and not set(handoff.devices).isdisjoint(request.wants))
    groups = [*queue.groups_of(books, handoff.request)]
    for group in groups:
        group.totals.handoffs += 1
        group.totals.handoff_s += books.now - handoff.started_at
    for group_id, role, bytes_ in handoff.moved:
        totals = books.group(group_id).totals
        if role is Role.LEAVING:
            totals.bytes_parked = min(totals.bytes_parked + bytes_, _MOST_BYTES)
        else:
            totals.bytes_restored = min(totals.bytes_restored + bytes_, _MOST_BYTES)
    took = _count_time(books, handoff)
    books.out.add(HandedOver(tuple(group.group_id for group in groups), books.now - handoff.started_at, took))


def _count_time(books: Books, handoff: Handoff) -> tuple[tuple[GroupId, Timings], ...]:
    """Adds the slowest node of each group to its totals, and returns it."""
    slowest: dict[GroupId, Sequence[float]] = {}
    for (group_id, _), took in handoff.spent.items():
        slowest[group_id] = tuple(map(max, slowest.get(group_id, took), took))
    for group_id, (lock_s, checkpoint_s, restore_s, unlock_s) in slowest.items():
        totals = books.group(group_id).totals
        totals.lock_s += lock_s
        totals.checkpoint_s += checkpoint_s
        totals.restore_s += restore_s
        totals.unlock_s += unlock_s
    return tuple((group_id, Timings(*took)) for group_id, took in slowest.items())


def _refuse(books: Books, handoff: Handoff, fault: Fault) -> None:
    assert handoff.culprit
    job_id, group_id = handoff.culprit.job_id, handoff.culprit.group_id
    for request in _waiting(books, handoff):
        if group_id in request.record.group_ids:
            error = OperationFailed(
                fault.message, reason=fault.reason, hint=fault.hint, job_id=job_id, group_id=group_id
            )
            queue.end(books, request, End.REFUSED, error)


def _back_off(books: Books, handoff: Handoff, fault: Fault) -> None:
    failures = 1 + max(device.failures for device in handoff.devices)
    settings = books.settings
    delay = min(settings.retry_max_s, settings.retry_min_s * 2.0 ** min(failures - 1, 30))
    at = books.now + (delay if fault.retryable else settings.retry_max_s)
    setback = Setback(handoff.culprit.job_id if handoff.culprit else "", fault)
    for device in handoff.devices:
        device.failures, device.retry_at, device.setback = failures, at, setback
    books.wake(at, handoff)


def _waiting(books: Books, handoff: Handoff) -> list[Request]:
    job = books.jobs.get(handoff.request.record.job_id)
    return [*job.waiting.values()] if job else []


def _touch(books: Books, handoff: Handoff) -> None:
    for group_id in dict.fromkeys(device.group_id for device in handoff.busy):
        books.out.touch(group_id)
