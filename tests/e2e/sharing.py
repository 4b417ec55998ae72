"""TimesliceGroups of a test's own."""

from __future__ import annotations

from uuid import uuid4

import manifests
import yaml
from kube_cluster import Cluster
from reading import GROUPS, Object, condition, one
from waits import SOON_S, START_S, until


class Groups:
    """Makes groups with names that nobody else has, and removes them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: list[str] = []

    def create(self, name: str = "rl", *, node: str = "", ready: bool = True, **spec: object) -> str:
        """The name it got. Nodes offer it on return, unless ``ready`` is False. Without a node: all nodes'."""
        name = f"{name}-{uuid4().hex[:6]}"
        self._made.append(name)
        self.apply(manifests.group(name, node=node, **spec))  # type: ignore[arg-type]
        if ready:
            self.wait_ready(name)
        return name

    def apply(self, made: Object) -> None:
        """ClusterError with the API server's words when it is refused."""
        self._cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump(made))

    def get(self, name: str) -> Object:
        """Empty when it has gone."""
        return one(self._cluster, GROUPS, name)

    def status(self, name: str) -> Object:
        """What the orchestrator says of it."""
        found: Object = self.get(name).get("status") or {}
        return found

    def row(self, name: str) -> dict[str, str]:
        """What `kubectl get timeslicegroups` shows of it, by column."""
        head, line = self._cluster.kubectl("get", "timeslicegroups", name).splitlines()
        # A column may be empty, so that words cannot be counted: each begins where its head does.
        starts = [head.index(title) for title in head.split()]
        ends = [*starts[1:], len(line) + 1]
        return {title: line[a:b].strip() for title, a, b in zip(head.split(), starts, ends, strict=True)}

    def wait_ready(self, name: str, *, limit_s: float = SOON_S) -> None:
        """Its condition Ready is True: a node offers it."""

        def missing() -> str | None:
            found = condition(self.get(name), "Ready")
            return None if found.get("status") == "True" else str(found or "has no condition Ready")

        until(f"group {name} is not ready", missing, limit_s=limit_s)

    def delete(self, name: str) -> None:
        """Asks for it; it goes when no claim is allocated in it."""
        self._cluster.kubectl("delete", "timeslicegroup", name, "--ignore-not-found", "--wait=false")

    def wait_gone(self, name: str, *, limit_s: float = START_S) -> None:
        """There is no such group any more."""
        until(f"group {name} is still there", lambda: str(self.get(name)) if self.get(name) else None, limit_s=limit_s)

    def remove(self) -> None:
        """All of them; they are gone on return."""
        for name in self._made:
            self.delete(name)
        for name in self._made:
            self.wait_gone(name)
