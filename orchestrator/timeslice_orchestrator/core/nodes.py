"""What nodes say. These are facts: nothing here is refused."""

from __future__ import annotations

from timeslice_orchestrator.core import clients, handoffs, members, resets
from timeslice_orchestrator.core.books import Books, Node
from timeslice_orchestrator.core.events import NodeConnected, NodeLost, PartsReported


def connected(books: Books, event: NodeConnected) -> None:
    """A hello is the whole truth of a node: what it does not name has ended there."""
    node = books.node(event.node)
    node.connected = node.heard = True
    books.raise_token(event.highest_token)
    told = {report.member for report in event.parts}
    for report in event.parts:
        members.observe(books, node, report)
    for key in [key for key in node.parts if key not in told]:
        members.gone(books, node.parts[key])
    _end_stale_quarantines(books, node)
    resets.lost(books, node)
    handoffs.heard(books, node)
    _look_again(books, node)


def lost(books: Books, event: NodeLost) -> None:
    """The link broke. Nothing changes on the node by that."""
    node = books.node(event.node)
    node.connected = False
    resets.lost(books, node)
    handoffs.lost(books, node)
    _look_again(books, node)


def reported(books: Books, event: PartsReported) -> None:
    """Parts changed by themselves, or ended."""
    node = books.node(event.node)
    for report in event.parts:
        members.observe(books, node, report)
    for key in event.ended:
        if key in node.parts:
            members.gone(books, node.parts[key])
    for process in event.ended_processes:
        clients.process_ended(books, process)


def _look_again(books: Books, node: Node) -> None:
    books.dirty.update(dict.fromkeys(node.devices.values()))
    for part in node.parts.values():
        books.dirty.update(dict.fromkeys(map(books.device, sorted(part.devices))))
    groups = {device.group_id for device in node.devices.values()} | {key.group_id for key in node.parts}
    for group_id in sorted(groups):
        books.out.touch(group_id)


def _end_stale_quarantines(books: Books, node: Node) -> None:
    """This hello may have been the last that was missing to know that nothing of a member has failed."""
    for group_id in sorted({device.group_id for device in node.devices.values()}):
        group = books.group(group_id)
        for member in [m for m in group.members.values() if m.quarantine]:
            members.end_stale_quarantine(books, member)
            if not member.quarantine and not member.parts:
                members.remove(books, member)
