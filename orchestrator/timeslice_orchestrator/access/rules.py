"""What callers may: one table, of kinds and acts, and no I/O. Whatever is not in it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from timeslice_api.errors import Forbidden

from timeslice_orchestrator.access.caller import ADMIN_ACTS, Act, Caller, Kind, Wish


class World(Protocol):
    """What a decision needs to know beside the caller's own word. Nobody but Kubernetes has pods."""

    def jobs_of(self, caller: Caller) -> frozenset[str]:
        """The jobs of the pod's claims."""
        ...

    def admits(self, group_id: str, namespace: str) -> bool:
        """Whether the group admits claims of the namespace. One that nobody knows admits all: the core refuses it."""
        ...

    def stranger(self, job_id: str, group_id: str, namespace: str) -> str:
        """The other namespace that the job's name belongs to in the group, since its claims were first; or empty."""
        ...

    @property
    def node_account(self) -> str:
        """The service account of nodes, as Kubernetes names it as a user."""
        ...


_RESOURCE: Final = "timeslicegroups.timeslice.dev"
_Rule: TypeAlias = Callable[[Caller, Wish, World], str]  # why not; empty: it may


def may(caller: Caller, wish: Wish, world: World) -> None:
    """Decides, and for that asks nobody. What Kubernetes has decided is in the wish.

    Raises:
        Forbidden: the caller may not; the message says what it may.
    """
    rule = _RULES[caller.kind].get(wish.act, _never)
    if why := rule(caller, wish, world):
        raise Forbidden(why, hint=_hint(caller, wish), job_id=wish.job_id, group_id=" and ".join(wish.group_ids))


def sees(caller: Caller, group_id: str, world: World) -> bool:
    """Whether a list of groups shows it this one."""
    rule = _RULES[caller.kind].get(Act.SEE, _never)
    return not rule(caller, Wish(Act.SEE, group_ids=(group_id,)), world)


def _never(caller: Caller, wish: Wish, world: World) -> str:
    return f"{caller.name} may not {wish.act.value}"


def _always(caller: Caller, wish: Wish, world: World) -> str:
    return ""


def _when_granted(caller: Caller, wish: Wish, world: World) -> str:
    if wish.granted:
        return ""
    what = " ".join((_RESOURCE, *wish.group_ids[:1]))
    return f"{caller.name} lacks the right to {verb_of(wish.act)} {what}"


def verb_of(act: Act) -> str:
    """The verb of RBAC that stands for an act with a group."""
    return "get" if act is Act.SEE else act.value


def _own_job(caller: Caller, wish: Wish, world: World) -> str:
    if caller.jobs is not None and wish.job_id not in caller.jobs:
        return f"{caller.name} is for {_listed('job', caller.jobs)}, not for job {wish.job_id}"
    return _own_groups(caller, wish, world)


def _own_groups(caller: Caller, wish: Wish, world: World) -> str:
    foreign = [group for group in wish.group_ids if caller.groups is not None and group not in caller.groups]
    if foreign and caller.groups is not None:
        return f"{caller.name} is for {_listed('group', caller.groups)}, not for group {foreign[0]}"
    return ""


def _own_node(caller: Caller, wish: Wish, world: World) -> str:
    return "" if caller.node == wish.node else f"{caller.name} is for node {caller.node}, not for node {wish.node}"


def _job_of_pod(caller: Caller, wish: Wish, world: World) -> str:
    jobs = world.jobs_of(caller)
    if wish.job_id not in jobs:
        has = f"has claims of {_listed('job', jobs)}" if jobs else "has no claim of a job"
        return f"{caller.name} {has}, so it may not {wish.act.value} for job {wish.job_id}"
    return _groups_of_pod(caller, wish, world) or _name_of_others(caller, wish, world)


def _groups_of_pod(caller: Caller, wish: Wish, world: World) -> str:
    closed = next((group for group in wish.group_ids if not world.admits(group, caller.namespace)), "")
    return f"namespace {caller.namespace} is not admitted by group {closed}" if closed else ""


def _name_of_others(caller: Caller, wish: Wish, world: World) -> str:
    for group in wish.group_ids:
        if other := world.stranger(wish.job_id, group, caller.namespace):
            return f"the name {wish.job_id} is taken in group {group} by a job of namespace {other}"
    return ""


def _node_of_pod(caller: Caller, wish: Wish, world: World) -> str:
    if caller.user != world.node_account:
        return f"{caller.name} is {caller.user}, which is not the service account of nodes"
    return "" if caller.node == wish.node else f"{caller.name} is on node {caller.node}, not on node {wish.node}"


_FOR_JOBS: Final = (Act.ACQUIRE, Act.YIELD, Act.KEEP_ALIVE, Act.WITHDRAW)
_ADMIN: Final[Mapping[Act, _Rule]] = dict.fromkeys(ADMIN_ACTS, _always)
_BY_RBAC: Final[Mapping[Act, _Rule]] = dict.fromkeys(ADMIN_ACTS, _when_granted)

_RULES: Final[Mapping[Kind, Mapping[Act, _Rule]]] = {
    Kind.LOCAL: dict.fromkeys(Act, _always),
    Kind.ADMIN: {**dict.fromkeys(_FOR_JOBS, _always), **_ADMIN, Act.SEE: _always},
    Kind.JOB: {**dict.fromkeys(_FOR_JOBS, _own_job), Act.SEE: _own_groups},
    Kind.NODE: {Act.SPEAK_FOR_NODE: _own_node, Act.SEE: _always},
    Kind.POD: {
        **dict.fromkeys(_FOR_JOBS, _job_of_pod),
        **_BY_RBAC,
        Act.SEE: _groups_of_pod,
        Act.SPEAK_FOR_NODE: _node_of_pod,
    },
    Kind.USER: {**_BY_RBAC, Act.SEE: _when_granted},
}


def _listed(what: str, names: frozenset[str]) -> str:
    some = sorted(names)
    return f"{what}{'s' if len(some) > 1 else ''} {', '.join(some) or 'none'}"


def _hint(caller: Caller, wish: Wish) -> str:
    if caller.kind is Kind.USER or (caller.kind is Kind.POD and wish.act in ADMIN_ACTS):
        return f"a role of Kubernetes has to allow {verb_of(wish.act)}; jobs ask from their pods"
    if wish.act in ADMIN_ACTS:
        return "ask with a token of role admin"
    if wish.act is Act.SPEAK_FOR_NODE:
        return "each node needs a token of its own"
    if caller.kind is Kind.JOB:
        return (
            "correct TIMESLICE_JOB_ID or the group, or have the token's entry in the orchestrator's tokens file changed"
        )
    return "leave the job's name to TIMESLICE_JOB_ID, which comes with the pod's claim"
