"""Who makes a call, and what calls ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Kind(Enum):
    """What a caller is; each has its own row in the rules."""

    LOCAL = "local"  # on a unix socket that only its owner can open, or on the loopback of an open orchestrator
    JOB = "job"
    NODE = "node"
    ADMIN = "admin"
    POD = "pod"  # of Kubernetes, by a service account's token that is bound to it
    USER = "user"  # of Kubernetes, a person or a service account whose token is bound to no pod


class Act(Enum):
    """What a call does; the value is its name in messages and in the audit log."""

    ACQUIRE = "acquire"
    YIELD = "yield"
    KEEP_ALIVE = "keep alive"
    WITHDRAW = "withdraw"
    SEE = "see"
    SPEAK_FOR_NODE = "speak for a node"
    RELEASE = "release"
    DRAIN = "drain"
    RESUME = "resume"
    RESET = "reset"


ADMIN_ACTS = frozenset({Act.RELEASE, Act.DRAIN, Act.RESUME, Act.RESET})


@dataclass(frozen=True)
class Caller:
    """Somebody whose word was checked.

    Attributes:
        name: for people and the audit log.
        jobs: of a JOB or POD: those for which it may speak; None: any.
        groups: of a JOB: those in which it may; None: any that admits the job.
        node: of a NODE: the one for which it speaks. Of a POD: where it runs.
        namespace, pod_uid: of a POD.
        user, roles, extra: as Kubernetes knows a POD or USER: its name, groups, and what else it says of it.
    """

    kind: Kind
    name: str
    jobs: frozenset[str] | None = frozenset()
    groups: frozenset[str] | None = None
    node: str = ""
    namespace: str = ""
    pod_uid: str = ""
    user: str = ""
    roles: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def sees_ids(self) -> bool:
        """Whether it is shown the ids of requests, of which those of leases are made."""
        return self.kind not in {Kind.JOB, Kind.POD}


LOCAL = Caller(Kind.LOCAL, "the local socket", jobs=None)


@dataclass(frozen=True)
class Wish:
    """What a call asks for: an act, and the job, groups or node that it names.

    Attributes:
        granted: Kubernetes has said that its user may; nothing else decides on that.
    """

    act: Act
    job_id: str = ""
    group_ids: tuple[str, ...] = ()
    node: str = ""
    granted: bool = False


class Authenticator(Protocol):
    """One way to find out who presents a token."""

    async def caller(self, token: str) -> Caller:
        """Who it is. Within seconds; a token that was seen before costs a lookup.

        Raises:
            Unauthenticated: the token is nobody's, or not good any more; the message says what is wrong with it.
            Unavailable: nobody can tell now.
        """
        ...
