"""Tells the log of containers that have ended, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reading import Object

from timeslice_chaos.log import Log

_KILLED = -9
# 0: told to end, by a kubelet, too. 143: the same, before it had a handler. 3: nobody answers (the API server is away,
# or another one leads), so that it gave up; Kubernetes starts it again.
_ORDERLY, _GAVE_UP = (0, 143), 3
_BY_KILL = (137, 255)  # 255: the kubelet found it gone, after a power cut
_NO_MEMORY = "OOMKilled"
_OURS = ("node", "orchestrator")


class Ends:
    """Each container's end is told once, unless it was in order. Which pid it had is known of those that were seen
    while they ran, and of a job's process that has said goodbye; of others nobody knows who has killed them.

    Args:
        log: where they are told.
        said_goodbye: the pid of a job's process that has, in the pod of that name; 0 for none.
    """

    def __init__(self, log: Log, said_goodbye: Callable[[str], int]) -> None:
        self._log = log
        self._said_goodbye = said_goodbye
        self._pids: dict[str, int] = {}
        self._told: set[str] = set()

    def run(self, pids: Mapping[str, int]) -> None:
        """Containers that run now, with the pids of their first processes."""
        self._pids.update(pids)

    def take(self, pod: Object) -> None:
        """Tells of the pod's containers that have ended."""
        for container, over in _ended(pod):
            if container not in self._told:
                self._told.add(container)
                self._tell(pod, container, over)

    def _tell(self, pod: Object, container: str, over: Mapping[str, Any]) -> None:
        code, name, out_of_memory = over["exitCode"], pod["metadata"]["name"], over.get("reason") == _NO_MEMORY
        part = (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component")
        pid = self._pids.get(container, 0)
        killed = code in _BY_KILL and not out_of_memory
        if code in _ORDERLY or (part in _OURS and code == _GAVE_UP) or (killed and not pid):
            return
        pid = pid or self._said_goodbye(name)
        self._log.say("ended", pid=pid, name=name, status=_KILLED if killed else code, reason=over.get("reason"))


def _ended(pod: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for status in pod["status"].get("containerStatuses") or ():
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            if (over := state.get("terminated")) and over.get("containerID"):
                yield over["containerID"], over
