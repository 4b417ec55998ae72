"""What must not be left when all jobs have ended in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kube_cluster import Cluster
from node_state import NodeState
from reading import Object
from team import Team
from waits import START_S, until


def leftovers(cluster: Cluster, team: Team, *, group: Callable[[], Object], claims: Collection[str]) -> list[str]:
    """In words: what is there still when its time is over.

    Args:
        group: tells the status of the team's group.
        claims: UIDs of all that the team has ever had.
    """

    def unfinished() -> str | None:
        return ", ".join(each["metadata"]["name"] for each in [*team.pods(), *team.claims()]) or None

    def in_use() -> str | None:
        status = group()
        return str(status) if any(status.get(name) for name in ("members", "holder", "waiting")) else None

    def memory() -> str | None:
        found = [node.gpus.control.snapshot() for node in cluster.nodes.values()]
        return str(found) if any(device["used"] for each in found for device in each["devices"]) else None

    def on_nodes() -> str | None:
        left = {name: NodeState(node).left(*claims) for name, node in cluster.nodes.items()}
        return str(left) if any(left.values()) else None

    checks = {
        "pods or claims are left": unfinished,
        "the group is in use": in_use,
        "device memory is in use": memory,
        "claims have left something on a node": on_nodes,
    }
    return [text for what, missing in checks.items() for text in _lacks(what, missing)]


def _lacks(what: str, missing: Callable[[], str | None]) -> Iterator[str]:
    try:
        until(what, missing, limit_s=START_S)
    except AssertionError as error:
        yield str(error)
