"""Deadlocks: would a request close a circle of jobs that wait for each other?

A request waits for the holders of its devices and for earlier requests of other jobs on them; a job that holds and
waits is taken to give nothing back before it gets what it waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from timeslice_api.errors import WouldDeadlock
from timeslice_orchestrator.core.books import Books, Device, Request
from timeslice_orchestrator.core.queue import ticket_of


@dataclass(frozen=True, slots=True)
class _Edge:
    """`waiter` cannot be served before `other` is, since `other`'s job holds the device or is before it in line."""

    waiter: Request
    other: Request
    device: Device
    held: bool


def closed_by(books: Books, request: Request) -> WouldDeadlock | None:
    """The error that names the circle which a request closes, whether or not it is in the queue yet."""
    edges: dict[Request, _Edge] = {}
    todo = deque([request])
    while todo:
        waiter = todo.popleft()
        for edge in _edges(books, waiter, request):
            if edge.other is request:
                return _error(_circle(edges, edge, request))
            if edge.other not in edges:
                edges[edge.other] = edge
                todo.append(edge.other)
    return None


def _edges(books: Books, waiter: Request, start: Request) -> Iterator[_Edge]:
    job_id = waiter.record.job_id
    for device in waiter.wants:
        if device.holder == job_id:
            continue
        if device.holder:
            if device.holder == start.record.job_id:
                yield _Edge(waiter, start, device, held=True)
            for other in books.jobs[device.holder].waiting.values():
                yield _Edge(waiter, other, device, held=True)
        yield from _before(waiter, device)


def _before(waiter: Request, device: Device) -> Iterator[_Edge]:
    for other in device.queue:
        if ticket_of(other) >= ticket_of(waiter):
            return
        if other.record.job_id != waiter.record.job_id:
            yield _Edge(waiter, other, device, held=False)


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
