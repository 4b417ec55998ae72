"""An admin's reset of a job in quarantine: the drivers are asked for its true state.

A quarantine ends when nothing of its member is failed (`members.end_stale_quarantine`), so all that a reset does is to
have the nodes look, and to tell what came of it.
"""

from __future__ import annotations

from timeslice_api.errors import JobNotFound, OperationFailed, TimesliceError, Unavailable

from timeslice_orchestrator.core import groups, members
from timeslice_orchestrator.core.books import Asked, Books, Member, Node, Reset
from timeslice_orchestrator.core.effects import ResetDone, SendCommand
from timeslice_orchestrator.core.events import CommandDone, ResetRequested
from timeslice_orchestrator.core.model import Fault, MemberKey


def begin(books: Books, event: ResetRequested) -> None:
    """Asks the nodes of the job's members that are in quarantine. A job that is in none is reset already."""
    quarantined = [member for member in _chosen(books, event) if member.quarantine]
    by_node: dict[Node, list[MemberKey]] = {}
    for member in quarantined:
        _check_nodes(member)
        for part in member.parts.values():
            by_node.setdefault(part.node, []).append(member.key)
    reset = Reset(event.reset_id, tuple(member.key for member in quarantined))
    for node, keys in by_node.items():
        _ask(books, reset, Asked(node, tuple(keys)))
    _finish(books, reset)


def answered(books: Books, node: Node, event: CommandDone) -> bool:
    """Takes a node's answer; False when it is none to a reset's question to that node."""
    reset = books.resets.get(event.command_id)
    if not reset or reset.pending[event.command_id].node is not node:
        return False
    asked = _close(books, reset, event.command_id)
    told = {report.member for report in event.parts}
    for report in event.parts:
        members.observe(books, node, report)
    if event.refused:
        reset.error = OperationFailed(f"{node.name}: {event.refused.message}", reason=event.refused.reason)
    else:
        for key in asked.members:
            if key in node.parts and key not in told:  # it has ended
                members.gone(books, node.parts[key])
    _finish(books, reset)
    return True


def lost(books: Books, node: Node) -> None:
    """What a node was asked is void: its link broke, or is a new one."""
    for command_id, reset in [*books.resets.items()]:
        if reset.pending[command_id].node is node:
            _close(books, reset, command_id)
            reset.error = Unavailable(f"the link to {node.name} broke before it had answered")
            _finish(books, reset)


def _chosen(books: Books, event: ResetRequested) -> list[Member]:
    if event.group_id:
        groups.known(books, event.group_id)
    found = [member for key, member in sorted(books.members.items()) if key.job_id == event.job_id]
    found = [member for member in found if event.group_id in ("", member.key.group_id)]
    if not found:
        where = f" in group {event.group_id}" if event.group_id else ""
        raise JobNotFound(f"no node has a job {event.job_id!r}{where}", job_id=event.job_id, group_id=event.group_id)
    return found


def _check_nodes(member: Member) -> None:
    away = [part.node.name for part in member.parts.values() if not part.node.connected]
    if away or not member.parts:
        who = f"{away[0]} is not connected" if away else "its node was not heard yet"
        message = f"nobody can tell the state of {member.key.job_id} in {member.key.group_id}: {who}"
        raise Unavailable(message, job_id=member.key.job_id, group_id=member.key.group_id)


def _ask(books: Books, reset: Reset, asked: Asked) -> None:
    command_id = books.next_command_id()
    reset.pending[command_id], books.resets[command_id] = asked, reset
    targets = tuple((key, None) for key in asked.members)
    books.out.add(SendCommand(asked.node.name, command_id, books.next_token(), targets, books.settings.lock_timeout_s))


def _close(books: Books, reset: Reset, command_id: int) -> Asked:
    del books.resets[command_id]
    return reset.pending.pop(command_id)


def _finish(books: Books, reset: Reset) -> None:
    """When all have answered: by what they told, each quarantine has ended or has not."""
    if reset.pending:
        return
    error, ended = reset.error, []
    for key in reset.members:
        member = books.members.get(key)
        if member and member.quarantine:
            error = error or _stays(member)
        else:
            ended.append(key)
    books.out.add(ResetDone(reset.reset_id, tuple(ended), error))


def _stays(member: Member) -> TimesliceError:
    faults = [part.fault for part in member.parts.values() if part.fault]
    fault = faults[0] if faults else Fault("Quarantined", member.quarantine)
    job_id, group_id = member.key
    message = f"{job_id} stays in quarantine in {group_id}: {fault.message}"
    return OperationFailed(message, reason=fault.reason, hint=fault.hint, job_id=job_id, group_id=group_id)
