"""The nodes that are connected now, and the commands on their way to them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping

from timeslice_api.errors import InvalidRequest, TimesliceError, Unavailable
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import types_pb2

from timeslice_orchestrator.core.effects import SendCommand
from timeslice_orchestrator.core.model import MemberKey, NodeName
from timeslice_orchestrator.discovery.merge import NodeGroups
from timeslice_orchestrator.rpc.answers import PART_STATES
from timeslice_orchestrator.store import NodeRecord, Store

_log = logging.getLogger(__name__)

_TOKENS_OF_AN_EPOCH = 10**9
# Epochs and tokens have 64 bits on the wire and in stores, and a node that was taken over may tell any. A store that
# was lost may have known of so many leaders more; with so many such steps within so many seconds they last two years.
_LARGEST_STEP = 10_000
_STEPS, _STEPS_S = 10, 600.0
_MOST_PARTS = 20_000  # of a node; no more fit into a hello
_MAX_UNSENT = 1000  # commands to a node that does not read; far beyond what the core has under way with one node


class Link:
    """One node's stream, seen from the sending side.

    Attributes:
        node: what it said in its hello, with the groups that it declares by now.
        devices: those of the hello.
        ended: done when the stream has to end for a reason of this side; the reason is its exception.
    """

    def __init__(self, node: NodeRecord) -> None:
        self.node = node
        self.devices = frozenset(node.devices)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbox: asyncio.Queue[pb.OrchestratorMessage | None] = asyncio.Queue()
        self._groups: NodeGroups = {}
        self._members: set[MemberKey] = set()

    def told_of(self, members: Iterable[MemberKey], *, ended: Iterable[MemberKey] = ()) -> None:
        """Counts what the node says that it has. Raises InvalidRequest: more than any node has."""
        self._members.update(members)
        self._members.difference_update(ended)
        if len(self._members) > _MOST_PARTS:
            raise InvalidRequest(f"node {self.node.node} tells of more than {_MOST_PARTS} parts")

    def welcome(self, epoch: int, groups: NodeGroups) -> None:
        """Queues the first message: the epoch, and the groups that the node has."""
        self._groups = groups
        self.put(pb.OrchestratorMessage(welcome=pb.Welcome(epoch=epoch, groups=_messages(groups))))

    def tell_groups(self, groups: NodeGroups) -> None:
        """Queues the groups that the node has, if they are others than those told before."""
        if groups != self._groups:
            self._groups = groups
            self.put(pb.OrchestratorMessage(groups=pb.NodeGroups(groups=_messages(groups))))

    def put(self, message: pb.OrchestratorMessage) -> None:
        """Queues a message; a node that has not read a thousand of them is cut off, and its next hello sorts it out."""
        if self._outbox.qsize() < _MAX_UNSENT:
            self._outbox.put_nowait(message)
        else:
            self.end(Unavailable(f"node {self.node.node} does not read its commands"))

    async def next(self) -> pb.OrchestratorMessage | None:
        """The next message to write; None after the last."""
        return await self._outbox.get()

    def close(self) -> None:
        """Drops what is not written yet; there is no next message."""
        while not self._outbox.empty():
            self._outbox.get_nowait()
        self._outbox.put_nowait(None)

    def end(self, reason: TimesliceError) -> None:
        """Has the stream ended, with the reason told to the node."""
        if not self.ended.done():
            self.ended.set_exception(reason)


class Links:
    """The links by node name, and the epoch that their commands carry.

    Args:
        store: keeps the epoch.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._links: dict[NodeName, Link] = {}
        self._epochs = {store.epoch}  # of this process: results may come back for commands from before a raise
        self._steps: deque[float] = deque(maxlen=_STEPS)  # when the epoch was made higher by more than one

    @property
    def epoch(self) -> int:
        """Of this orchestrator, higher than any that a node has told of."""
        return self._store.epoch

    @property
    def token_floor(self) -> int:
        """Below every token of this epoch, and not below any of an earlier one. A node knows the epochs of all who ever
        granted its devices, but no token of a grant that moved nothing: those would be given out again if the store
        were lost."""
        return self._store.epoch * _TOKENS_OF_AN_EPOCH

    def highest_token(self, seen: int) -> int:
        """What the next token is to be above, after a node has told of one that it has seen."""
        return min(max(seen, self.token_floor), self.token_floor + _TOKENS_OF_AN_EPOCH)

    async def go_above(self, highest_epoch: int) -> None:
        """Raises the epoch above one that a node has seen. All further commands to all nodes carry the new one.

        Raises:
            InvalidRequest: no store that was lost explains an epoch so far ahead.
            Unavailable: a node has told of one ahead too often lately.
            StoreFailed: the epoch is as before.
        """
        if highest_epoch > self._store.epoch:
            self._check_step(highest_epoch)
        if highest_epoch >= self._store.epoch:
            raised = self._store.raise_epoch(highest_epoch)
            if raised is not None:
                await raised
            self._epochs.add(self._store.epoch)

    def _check_step(self, highest_epoch: int) -> None:
        if highest_epoch > self._store.epoch + _LARGEST_STEP:
            raise InvalidRequest(
                f"hello.highest_epoch {highest_epoch} is too far ahead of epoch {self._store.epoch}",
                hint="is it another orchestrator's node? with nothing parked there, remove its journal",
            )
        now = asyncio.get_running_loop().time()
        if len(self._steps) == _STEPS and now < self._steps[0] + _STEPS_S:
            raise Unavailable(f"the epoch was raised {_STEPS} times within {_STEPS_S:g} s: dial in again later")
        self._steps.append(now)
        _log.warning("a node has seen epoch %d of another orchestrator; this one's was %d", highest_epoch, self.epoch)

    def is_ours(self, epoch: int) -> bool:
        """Whether a command of that epoch came from this process."""
        return epoch in self._epochs

    def check(self, node: NodeRecord) -> None:
        """Raises InvalidRequest when another connected node has one of the devices."""
        for link in self._links.values():
            if link.node.node != node.node and (shared := link.devices.intersection(node.devices)):
                message = f"hello.devices: {sorted(shared)[0]} is a device of node {link.node.node}, which is connected"
                raise InvalidRequest(message, hint="give each node its own name and devices")

    def find(self, node: NodeName) -> Link | None:
        """The link of a node, if it is connected."""
        return self._links.get(node)

    def add(self, link: Link) -> None:
        """Makes it the link of its node; an older one must have been removed."""
        self._links[link.node.node] = link

    def remove(self, link: Link) -> bool:
        """Whether it was still the link of its node."""
        if self._links.get(link.node.node) is not link:
            return False
        del self._links[link.node.node]
        return True

    def tell_groups(self, by_node: Mapping[NodeName, NodeGroups]) -> None:
        """Tells each node whose groups have changed."""
        for name, link in self._links.items():
            link.tell_groups(by_node[name])

    def end_all(self, reason: TimesliceError) -> None:
        """Has every stream ended."""
        for link in self._links.values():
            link.end(reason)

    def send(self, command: SendCommand) -> None:
        """Queues a command. Without a link it is dropped: the core has heard NodeLost, and the next hello tells the
        truth."""
        link = self._links.get(command.node)
        if link is not None:
            link.put(pb.OrchestratorMessage(command=self._message(command)))

    def _message(self, command: SendCommand) -> pb.Command:
        return pb.Command(
            command_id=command.command_id,
            epoch=self._store.epoch,
            fencing_token=command.token,
            targets=[
                pb.Target(
                    member=types_pb2.MemberKey(job_id=member.job_id, group_id=member.group_id),
                    state=PART_STATES[state] if state else types_pb2.PART_STATE_UNSPECIFIED,
                )
                for member, state in command.targets
            ],
            lock_timeout_s=command.lock_timeout_s,
        )


def _messages(groups: NodeGroups) -> list[pb.NodeGroup]:
    return [pb.NodeGroup(group_id=group_id, device_ids=devices) for group_id, devices in groups.items()]
