"""Events for people: each said once, repeated seldom, and never so many that they hurt the API server.

Source of the rules: staging/src/k8s.io/api/events/v1 `Event` (k8s.io/api) and its validation: a note has at most 1,024
bytes, an event of a cluster's object lies in namespace `default`, and only the series of an event may change.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from dra_kubeletplugin.apiserver import (
    EVENTS,
    AlreadyExistsError,
    ApiServer,
    ApiServerError,
    Backoff,
    NotFoundError,
    Object,
)

_log = logging.getLogger(__name__)

CONTROLLER = "timeslice.dev/orchestrator"
_NOTE_BYTES = 1024
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about. A cluster's object has no namespace."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Note:
    """What is said.

    Attributes:
        reason: one stable word.
        action: what was tried.
        text: a sentence.
        lasting: it is worth saying though the object has gone meanwhile.
    """

    regarding: Regarding
    reason: str
    action: str
    text: str
    type: Literal["Normal", "Warning"] = "Warning"
    lasting: bool = False


@dataclass(slots=True)
class _Said:
    text: str
    at: float


class Events:
    """Says notes, from `run` on. Of one object and reason the newest text counts, and older ones that wait are dropped.

    Args:
        api: where events are made.
        instance: name of this process, for `reportingInstance`.
        per_minute: more are not sent in any 60 s; the rest waits.
        again_s: the same text is repeated after so many seconds, if it is still said.
        settle_s: so long at least between two texts of the same reason on the same object.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        api: ApiServer,
        instance: str,
        *,
        per_minute: int = 60,
        again_s: float = 600.0,
        settle_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._instance = instance
        self._again_s = again_s
        self._settle_s = settle_s
        self._clock = clock
        self._sent_at: deque[float] = deque(maxlen=per_minute)
        self._said: dict[str, dict[str, _Said]] = {}  # by the object's UID, then reason
        self._queue: dict[tuple[str, str], Note] = {}
        self._woken = asyncio.Event()
        self.sent = 0

    def say(self, note: Note) -> None:
        """Says it, soon, unless the same was said a short while ago."""
        key = (note.regarding.uid, note.reason)
        said = self._said.get(note.regarding.uid, {}).get(note.reason)
        if said is not None and said.text == note.text and self._clock() - said.at < self._again_s:
            self._queue.pop(key, None)
            return
        self._queue[key] = note
        self._woken.set()

    def forget(self, uid: str) -> None:
        """The object is gone: of what is still to be said of it only the lasting is."""
        self._said.pop(uid, None)
        for key in [key for key, note in self._queue.items() if key[0] == uid and not note.lasting]:
            del self._queue[key]

    async def run(self) -> None:
        """Sends what is said until it is cancelled. What the API server does not take now is tried again."""
        backoff = Backoff(shortest_s=1.0, longest_s=30.0)
        while True:
            note = await self._next()
            try:
                await self._send(note)
                backoff.reset()
            except ApiServerError as error:
                _log.warning(
                    "cannot tell %s/%s %s: %s", note.regarding.namespace, note.regarding.name, note.reason, error
                )
                if error.retryable:
                    self._again(note)
                    await asyncio.sleep(backoff.next_s())

    async def _next(self) -> Note:
        """The next note that may be sent, now."""
        while True:
            self._woken.clear()
            due = {key: self._due(note) for key, note in self._queue.items()}
            key = min(due, key=due.__getitem__, default=None)
            if key is not None and due[key] <= self._clock():
                return self._taken(key)
            try:
                async with asyncio.timeout(None if key is None else due[key] - self._clock()):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _due(self, note: Note) -> float:
        said = self._said.get(note.regarding.uid, {}).get(note.reason)
        full = len(self._sent_at) == self._sent_at.maxlen
        return max(said.at + self._settle_s if said else 0.0, self._sent_at[0] + _MINUTE_S if full else 0.0)

    def _taken(self, key: tuple[str, str]) -> Note:
        note = self._queue.pop(key)
        now = self._clock()
        self._sent_at.append(now)
        if not note.lasting:  # what is remembered of an object that has gone nobody would forget
            self._said.setdefault(note.regarding.uid, {})[note.reason] = _Said(note.text, now)
        return note

    def _again(self, note: Note) -> None:
        said = self._said.get(note.regarding.uid)
        known = said is not None and said.pop(note.reason, None) is not None
        if known or note.lasting:  # else it was forgotten meanwhile
            self._queue.setdefault((note.regarding.uid, note.reason), note)

    async def _send(self, note: Note) -> None:
        body = event_of(note, self._instance, datetime.now(UTC))
        self.sent += 1
        try:
            await self._api.create(EVENTS, body)
        except AlreadyExistsError:  # said before, perhaps by the leader before us
            await self._repeat(body)

    async def _repeat(self, body: Object) -> None:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            found = await self._api.get(EVENTS, name, namespace=namespace)
            count = (found.get("series") or {}).get("count", 1)
            series = {"count": count + 1, "lastObservedTime": body["eventTime"]}
            await self._api.patch(EVENTS, name, {"series": series}, namespace=namespace)
        except NotFoundError:  # it has just expired
            await self._api.create(EVENTS, body)


def event_of(note: Note, instance: str, now: datetime) -> Object:
    """The event's body. Its name is the same whoever says the same of the same object."""
    about = note.regarding
    digest = hashlib.sha256("\0".join((about.uid, note.reason, note.text)).encode()).hexdigest()
    regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        regarding["namespace"] = about.namespace
    return {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": f"{about.name[:230]}.{digest[:16]}", "namespace": about.namespace or "default"},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "action": note.action,
        "reason": note.reason,
        "type": note.type,
        "regarding": regarding,
        "note": _cut(note.text),
    }


def _cut(text: str) -> str:
    plain = text.encode()
    return text if len(plain) <= _NOTE_BYTES else plain[: _NOTE_BYTES - 4].decode(errors="ignore") + " …"
