"""Deadlocks: would a request close a circle of jobs that wait for each other?

A request waits for the holders of its devices and for earlier requests of other jobs on them. A job that asks while it
holds is taken to give nothing back before it gets what it asks for; requests that were already waiting when a lease was
granted were made by somebody who does not hold it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from timeslice_api.errors import WouldDeadlock

from timeslice_orchestrator.core import queue
from timeslice_orchestrator.core.books import Books, Device, Request
from timeslice_orchestrator.core.model import JobId


@dataclass(frozen=True, slots=True)
class _Edge:
    """`waiter` cannot be served before `other` is, since `other`'s job holds the device or is before it in line."""

    waiter: Request
    other: Request
    device: Device
    held: bool


class _Search:
    """A walk along the edges from a request; each queue and each holder is looked at about once."""

    def __init__(self, books: Books, start: Request) -> None:
        self._books = books
        self._start = start
        self._holders: set[Device] = set()
        self._looked: dict[Device, tuple[int, JobId, int]] = {}

    def edges(self, waiter: Request) -> Iterator[_Edge]:
        """What a request waits for, less what was found from another."""
        job_id = waiter.record.job_id
        joined = queue.joined(self._books, waiter)
        for device in waiter.wants:
            if device.holder == job_id:
                continue
            if device.holder and device not in self._holders:
                yield from self._held(waiter, device)
            yield from self._before(waiter, device, joined)

    def _held(self, waiter: Request, device: Device) -> Iterator[_Edge]:
        self._holders.add(device)
        job = self._books.jobs[device.holder]
        leases = (held for held in job.held.values() if held.lease and device.device_id in held.lease.devices)
        since = min(held.granted_after for held in leases)
        others = [*job.waiting.values()]
        if device.holder == self._start.record.job_id:  # which may not be in the queue yet
            others.append(self._start)
        for other in others:
            if queue.ticket_of(other) > since:
                yield _Edge(waiter, other, device, held=True)

    def _before(self, waiter: Request, device: Device, joined: set[Device]) -> Iterator[_Edge]:
        """Below `seen` all were found; up to `end` all but those of `job_id`, whose request looked then."""
        seen, job_id, end = self._looked.get(device, (0, "", 0))
        mine, place = waiter.record.job_id, queue.place(device, queue.ticket_of(waiter))
        if joined:  # it passes some, whom nobody else may overlook for that
            for other in queue.ahead(device, waiter, joined):
                yield _Edge(waiter, other, device, held=False)
            return
        for other in device.queue[seen:place]:
            if other.record.job_id != mine:
                yield _Edge(waiter, other, device, held=False)
        if mine != job_id:
            seen = max(seen, min(end, place))
        self._looked[device] = (seen, mine, place) if place > end else (seen, job_id, end)


def closed_by(books: Books, request: Request) -> WouldDeadlock | None:
    """The error that names the circle which a request closes, whether or not it is in the queue yet."""
    if not (books.entangled or _holds(books, request.record.job_id)):
        return None
    search, edges, todo = _Search(books, request), dict[Request, _Edge](), deque([request])
    while todo:
        for edge in search.edges(todo.popleft()):
            if edge.other is request:
                return _error(_circle(edges, edge, request))
            if edge.other not in edges:
                edges[edge.other] = edge
                todo.append(edge.other)
    return None


def _holds(books: Books, job_id: JobId) -> bool:
    return job_id in books.jobs and bool(books.jobs[job_id].held)


def _circle(edges: dict[Request, _Edge], last: _Edge, start: Request) -> list[_Edge]:
    circle = [last]
    while circle[0].waiter is not start:
        circle.insert(0, edges[circle[0].waiter])
    return circle


def _error(circle: list[_Edge]) -> WouldDeadlock:
    last, job_id = circle[-1], circle[0].waiter.record.job_id
    text = f"{job_id} holds {last.device.group_id}, waits" if last.held else f"{job_id} waits"
    for edge in circle[:-1]:
        how = "held by" if edge.held else "behind"
        text += f" for {edge.device.group_id} {how} {edge.other.record.job_id}, which waits"
    text += f" for {last.device.group_id}" + ("" if last.held else f" behind {job_id}")
    return WouldDeadlock(text, job_id=job_id, group_id=circle[0].device.group_id)
