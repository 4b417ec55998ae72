"""The slices as they are now: what the watch has told, and what this process has written since."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dra_kubeletplugin.apiserver import Change, Object

LASTING_S = 60.0  # a watch is later than that only when it missed an object that came and went between two lists


class Sight:
    """Slices by UID. Without own writes a slice would be created twice before the watch tells of it."""

    def __init__(
        self, watched: Callable[[], Mapping[str, Object]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watched = watched
        self._clock = clock
        self._written: dict[str, tuple[Object, float]] = {}
        self._deleted: dict[str, float] = {}

    def wrote(self, item: Object) -> None:
        """This process has written it, and the server answered so. To be told before what the watch says of it."""
        self._written[item["metadata"]["uid"]] = (item, self._clock())

    def deleted(self, item: Object) -> None:
        """It is gone, says the server. To be told before what the watch says of it."""
        self._written.pop(item["metadata"]["uid"], None)
        self._deleted[item["metadata"]["uid"]] = self._clock()

    def seen(self, change: Change) -> bool:
        """The watch told a change; returns whether it is news, and no echo of an own write."""
        item = change.new or change.old or {}
        uid = item["metadata"]["uid"]
        if change.new is None:
            self._written.pop(uid, None)
            return self._deleted.pop(uid, None) is None
        written = self._written.get(uid)
        if written is None:
            return uid not in self._deleted
        if _version(written[0]) > _version(item):
            return False
        del self._written[uid]
        return _version(written[0]) < _version(item)

    def slices(self) -> dict[str, Object]:
        """All of them, as far as is known."""
        expired = self._clock() - LASTING_S
        self._written = {uid: entry for uid, entry in self._written.items() if entry[1] > expired}
        self._deleted = {uid: at for uid, at in self._deleted.items() if at > expired}
        current = {uid: item for uid, item in self._watched().items() if uid not in self._deleted}
        return current | {uid: item for uid, (item, _) in self._written.items()}

    @property
    def settles_in_s(self) -> float | None:
        """When an own write that the watch has not told of is believed no longer; None: there is none."""
        if not self._written:
            return None
        return min(at for _, at in self._written.values()) + LASTING_S - self._clock()


def _version(item: Object) -> int:
    """Comparable since Kubernetes 1.35 says so, and in fact since ever."""
    return int(item["metadata"]["resourceVersion"])
