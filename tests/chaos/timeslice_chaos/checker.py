"""Reads the log of a run afterwards, and says what was promised and not kept."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from timeslice_chaos.log import Event

ENDLESS = float("inf")


@dataclass(frozen=True)
class Violation:
    """A promise that was broken: which, when (seconds of the log), and how."""

    promise: str
    at: float
    text: str


@dataclass(frozen=True)
class Span:
    """A time in which a process could do something on a device."""

    begin: float
    end: float
    pid: int
    job: str

    def overlaps(self, other: Span) -> bool:
        """Whether there is a moment of both."""
        return self.begin < other.end and other.begin < self.end


def check(events: Sequence[Event]) -> list[Violation]:
    """All violations, in the order of time."""
    promises: Sequence[Callable[[History], Iterator[Violation]]] = (
        _one_job_runs_on_a_device,
        _writes_do_not_meet,
        _leases_are_kept,
        _every_byte_came_back,
        _tokens_rise,
        _acquires_end_once,
        _no_job_fails,
        _nobody_crashes,
    )
    history = History(events)
    return sorted((each for promise in promises for each in promise(history)), key=lambda each: each.at)


class History:
    """A log, sorted by what the promises are about."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.jobs = {event.pid: str(event["job"]) for event in events if event.what == "job"}
        self.deaths = _deaths(events)
        self.running = _running(self)
        self.devices = {event.pid: str(event["device"]) for event in events if event.what == "context"}

    def by_pid(self, *names: str) -> dict[int, list[Event]]:
        """Events of jobs' processes with these names."""
        found: dict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.role == "job" and event.what in names:
                found[event.pid].append(event)
        return found


def _deaths(events: Iterable[Event]) -> dict[int, float]:
    """When each process was over at the latest: nothing of it runs once SIGKILL was sent or it said goodbye."""
    deaths: dict[int, float] = {}
    for event in events:
        if event.what in ("gone", "ends", "broken", "refused") or (event.what != "fault" and _kills(event)):
            deaths.setdefault(event.pid, event.at)
    return deaths


def _running(history: History) -> dict[str, list[Span]]:
    """When each process was free to use its device: from its context, or the begin of an unlock, to the end of a lock
    that succeeded. By device."""
    since: dict[int, float] = {}
    device: dict[int, str] = {}
    spans: dict[str, list[Span]] = defaultdict(list)

    def close(pid: int, end: float) -> None:
        begin = since.pop(pid, None)
        if begin is not None:
            spans[device[pid]].append(Span(begin, min(end, history.deaths.get(pid, ENDLESS)), pid, history.jobs[pid]))

    for event in history.events:
        if event.role != "gpu":
            continue
        if event.what == "context":
            device[event.pid] = event["device"]
            since.setdefault(event.pid, event.at)
        elif event.what == "begin" and event["call"] == "unlock":
            since.setdefault(event.pid, event.at)
        elif (event.what == "end" and event["state"] != "running") or event.what == "gone":
            close(event.pid, event.at)
    for pid in list(since):
        close(pid, ENDLESS)
    return spans


def _one_job_runs_on_a_device(history: History) -> Iterator[Violation]:
    """What the GPU itself saw."""
    for device, spans in history.running.items():
        for first, second in _meetings(spans):
            text = f"{first.job} ({first.pid}) and {second.job} ({second.pid}) were both unlocked on {device}"
            yield Violation("one job on a device", second.begin, text)


def _writes_do_not_meet(history: History) -> Iterator[Violation]:
    """What the jobs saw. A call that a lock holds up is no write for as long as that lasts."""
    written: dict[str, list[Span]] = defaultdict(list)
    for pid, events in history.by_pid("write", "written").items():
        device = history.devices.get(pid)
        if device is None:
            continue
        for begin, end in _pairs(events, history.deaths.get(pid, ENDLESS)):
            written[device] += _clipped(Span(begin, end, pid, history.jobs[pid]), history.running[device])
    for device, spans in written.items():
        for first, second in _meetings(spans):
            text = f"{first.job} ({first.pid}) and {second.job} ({second.pid}) wrote to {device} at the same time"
            yield Violation("one job writes", second.begin, text)


def _pairs(events: Sequence[Event], death: float) -> Iterator[tuple[float, float]]:
    for begin, end in zip(events, [*events[1:], None], strict=True):
        if begin.what == "write":
            yield begin.at, end.at if end is not None and end.what == "written" else death


def _clipped(write: Span, running: Iterable[Span]) -> list[Span]:
    return [
        Span(max(write.begin, span.begin), min(write.end, span.end), write.pid, write.job)
        for span in running
        if span.pid == write.pid and span.overlaps(write)
    ]


def _meetings(spans: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Pairs of different jobs that overlap."""
    open_: list[Span] = []
    for second in sorted(spans, key=lambda span: span.begin):
        open_ = [first for first in open_ if first.overlaps(second)]
        yield from ((first, second) for first in open_ if first.job != second.job)
        open_.append(second)


_SHORTEST_LEASE_S = 4.0
_LOSING_S = 30.0  # for so long afterwards leases may be lost that jobs do not know to be lost
_LOSING = ("lost", "cut", "power", "away")  # kinds of faults; of a link or a process only if it lasts


def _leases_are_kept(history: History) -> Iterator[Violation]:
    """Nobody is granted a device while another job holds it, before that one's lease could have run out."""
    held: dict[str, list[Span]] = defaultdict(list)
    for pid, events in history.by_pid("granted", "yields", "refused").items():
        for begin, end in zip(events, [*events[1:], None], strict=True):
            if begin.what == "granted" and pid in history.devices:
                over = end.at if end is not None else history.deaths.get(pid, ENDLESS)
                held[history.devices[pid]].append(Span(begin.at, over, pid, history.jobs[pid]))
    excuses = [event for event in history.events if _may_lose_leases(event)]
    for device, spans in held.items():
        for first, second in _meetings(spans):
            recent = [event for event in excuses if second.begin - _LOSING_S < event.at < second.begin]
            excused = any(event.what == "strikes" or event.pid in (first.pid, second.pid) for event in recent)
            if not excused and second.begin - first.begin < _SHORTEST_LEASE_S:
                text = f"{second.job} ({second.pid}) was granted {device} while {first.job} ({first.pid}) held it"
                yield Violation("leases are kept", second.begin, text)


def _may_lose_leases(event: Event) -> bool:
    """A process that was stopped for long hears too late of its grant, or of its loss."""
    if event.what == "strikes":
        return event["kind"] in _LOSING or (event["kind"] == "link" and "noticed" in event["where"])
    return event.what == "stops"


def _every_byte_came_back(history: History) -> Iterator[Violation]:
    """Each job compares all its bytes at each turn, and tells their sums."""
    for pid, events in history.by_pid("wrote", "found").items():
        last = None
        for event in events:
            if event.what == "wrote":
                last = event["sum"]
            elif not event["same"] or event["sum"] != last:
                text = f"{history.jobs[pid]} ({pid}) wrote {last} and found {event['sum']} in turn {event['turn']}"
                yield Violation("every byte comes back", event.at, text)


def _tokens_rise(history: History) -> Iterator[Violation]:
    """A lease has one token and one owner; of two jobs that held one after the other, the later has the greater one."""
    grants = [event for event in history.events if event.role == "job" and event.what == "granted"]
    owners: dict[str, Event] = {}
    for event in grants:
        owner = owners.setdefault(event["lease"], event)
        if owner.pid != event.pid or owner["token"] != event["token"]:
            text = f"lease {event['lease']} of {owner.pid} with token {owner['token']} was given to {event.pid} again"
            yield Violation("tokens rise", event.at, text)
    given: dict[int, Event] = {}
    for event in grants:
        if given.setdefault(event["token"], event) is not event:
            yield Violation("tokens rise", event.at, f"token {event['token']} was given to two leases")
    yield from _falling(history)


def _falling(history: History) -> Iterator[Violation]:
    """By the last write of each turn, which has the token that the job holds by then: a lease that was lost has been
    granted anew meanwhile."""
    writes = history.by_pid("written")
    last_writes: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for pid, turns in history.by_pid("yields").items():
        times = [event.at for event in writes.get(pid, [])]
        for turn in turns:
            if index := bisect.bisect(times, turn.at):
                entry = times[index - 1], turn["token"], history.jobs[pid]
                last_writes[history.devices[pid]].append(entry)
    for device, found in last_writes.items():
        for (_, before, first), (at, after, second) in pairwise(sorted(found)):
            if first != second and after < before:
                text = f"on {device} {second} wrote with token {after} after {first} with {before}"
                yield Violation("tokens rise", at, text)


def _acquires_end_once(history: History) -> Iterator[Violation]:
    """Every acquire is granted or refused, once, unless its process ended; every grant is yielded, once."""
    names = ("asks", "granted", "refused", "yielded")
    for pid, events in history.by_pid(*names).items():
        turns: dict[int, list[str]] = defaultdict(list)
        for event in events:
            turns[event["turn"]].append(event.what)
        last = max(turns)
        for turn, told in turns.items():
            whole = told in (["asks", "granted", "yielded"], ["asks", "refused"], ["asks", "granted", "refused"])
            cut_off = turn == last and pid in history.deaths and told in (["asks"], ["asks", "granted"])
            if not whole and not cut_off:
                text = f"turn {turn} of {history.jobs[pid]} ({pid}) was {', '.join(told)}"
                yield Violation("each acquire ends once", events[-1].at, text)


_PATIENCE = {"call", "nth", "delay_ms"}  # a fault that has no more than these makes a call slow, which is no excuse
_OF_THE_GPU = frozenset({"JobQuarantined", "OperationFailed"})  # what a job is told when its state was spoilt


def _no_job_fails(history: History) -> Iterator[Violation]:
    """An error reaches a job only when the GPU had a fault with one of its processes before."""
    struck: dict[str, float] = {}
    spoilt: set[int] = set()
    for event in history.events:
        job = history.jobs.get(event.pid, "")
        if event.what == "fault" and event["fault"].keys() - _PATIENCE:
            struck.setdefault(job, event.at)
            if {"poison", "fail_state"} & event["fault"].keys():
                spoilt.add(event.pid)
        elif event.what == "refused" and not (event["error"] in _OF_THE_GPU and job in struck):
            yield Violation("no job fails", event.at, f"{job} ({event.pid}) got {event['error']}: {event['text']}")
        elif event.what == "broken" and event.pid not in spoilt:
            yield Violation("no job fails", event.at, f"{job} ({event.pid}): {event['text']}")


_KILLED, _GAVE_UP = -9, (3, 4)  # exit statuses; the second are a job's after an error, which is judged above


def _nobody_crashes(history: History) -> Iterator[Violation]:
    """Whoever ended was killed, or is a job that was told to go."""
    killed = {event.pid for event in history.events if _kills(event)}
    gave_up = {event.pid for event in history.events if event.what in ("refused", "broken")}
    for event in history.events:
        if event.what == "ended":
            fine = (event["status"] == _KILLED and event.pid in killed) or (
                event["status"] in _GAVE_UP and event.pid in gave_up
            )
            if not fine:
                text = f"{event['name']} ({event.pid}) ended with status {event['status']} by itself"
                yield Violation("nobody crashes", event.at, text)


def _kills(event: Event) -> bool:
    """Whether the event is the end of its process by SIGKILL, whoever sent it."""
    if event.what == "fault":
        return bool(event["fault"].get("kill_target"))
    return event.what == "kills" or (event.what == "struck" and event.get("action") == "kill")
