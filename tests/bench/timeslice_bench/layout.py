"""Which nodes, devices, groups and jobs a scenario has."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from string import ascii_lowercase


@dataclass(frozen=True)
class Group:
    """A group of `nodes` nodes of its own, one device each; with `members`, its jobs have a part on each node.

    Attributes:
        sharers: how many jobs it has, 26 at most.
        answer_s: how long its nodes take for the answer to a command (seconds); None: they never answer.
    """

    group_id: str
    nodes: int = 1
    members: bool = True
    sharers: int = 2
    answer_s: float | None = 0.0

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that share it."""
        return tuple(f"{self.group_id}-job-{letter}" for letter in ascii_lowercase[: self.sharers])

    def node_names(self) -> list[str]:
        """Its nodes."""
        return [f"{self.group_id}-node-{n}" for n in range(self.nodes)]


@dataclass(frozen=True)
class Layout:
    """All groups of one orchestrator."""

    groups: tuple[Group, ...]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(group.nodes for group in self.groups)

    def to_json(self) -> str:
        """For the command line of the agents' process."""
        return json.dumps([asdict(group) for group in self.groups])

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """The inverse of `to_json`."""
        return cls(tuple(Group(**fields) for fields in json.loads(text)))


def one_group_per(nodes: Iterable[int]) -> Layout:
    """A group `nodes-n` with members for each number of nodes."""
    return Layout(tuple(Group(f"nodes-{n}", n) for n in nodes))


def same_groups(count: int, group: Group) -> tuple[Group, ...]:
    """`count` groups as the given one, each with a number behind its name."""
    return tuple(replace(group, group_id=f"{group.group_id}-{n}") for n in range(count))


def many_groups(count: int, *, members: bool) -> Layout:
    """`count` groups of one node each."""
    return Layout(tuple(Group(f"group-{n}", 1, members) for n in range(count)))
