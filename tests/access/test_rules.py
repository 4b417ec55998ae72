"""What callers may, as a table: every kind of caller against every act."""

from __future__ import annotations

from dataclasses import replace

import pytest
from timeslice_api.errors import Forbidden
from timeslice_orchestrator.access.caller import ADMIN_ACTS, LOCAL, Act, Caller, Kind, Wish
from timeslice_orchestrator.access.rules import may, sees


class World:
    """A cluster where pods of namespace `team-a` have claims of job-a, and group `closed` admits nobody."""

    node_account = "system:serviceaccount:timeslice:timeslice-node"

    def jobs_of(self, caller: Caller) -> frozenset[str]:
        return frozenset({"job-a"}) if caller.namespace == "team-a" else frozenset()

    def admits(self, group_id: str, namespace: str) -> bool:
        return group_id != "closed"

    def stranger(self, job_id: str, group_id: str, namespace: str) -> str:
        return "team-b" if group_id == "taken" else ""


JOB = Caller(Kind.JOB, "token 'trainers'", jobs=frozenset({"job-a"}), groups=frozenset({"g"}))
ANY_JOB = Caller(Kind.JOB, "token 'anybody'", jobs=None)
NODE = Caller(Kind.NODE, "token 'n1'", node="n1")
ADMIN = Caller(Kind.ADMIN, "token 'operators'")
POD = Caller(Kind.POD, "pod team-a/p", node="n1", namespace="team-a", user="system:serviceaccount:team-a:default")
AGENT = replace(POD, name="pod timeslice/n", namespace="timeslice", user=World.node_account)
USER = Caller(Kind.USER, "user eve")

FOR_JOBS = (Act.ACQUIRE, Act.YIELD, Act.KEEP_ALIVE, Act.WITHDRAW)


def allowed(caller: Caller, wish: Wish) -> bool:
    try:
        may(caller, wish, World())
    except Forbidden:
        return False
    return True


def reason(caller: Caller, wish: Wish) -> str:
    with pytest.raises(Forbidden) as refused:
        may(caller, wish, World())
    return refused.value.message


def good_wish(act: Act) -> Wish:
    """What this act asks for when it stays within what the callers above are for."""
    if act is Act.SPEAK_FOR_NODE:
        return Wish(act, node="n1")
    return Wish(act, "job-a", ("g",))


MAY = {
    "local": (LOCAL, set(Act)),
    "job": (JOB, {*FOR_JOBS, Act.SEE}),
    "any job": (ANY_JOB, {*FOR_JOBS, Act.SEE}),
    "node": (NODE, {Act.SPEAK_FOR_NODE, Act.SEE}),
    "admin": (ADMIN, {*FOR_JOBS, *ADMIN_ACTS, Act.SEE}),
    "pod": (POD, {*FOR_JOBS, Act.SEE}),
    "agent": (AGENT, {Act.SPEAK_FOR_NODE, Act.SEE}),
    "user": (USER, set[Act]()),
}


@pytest.mark.parametrize("kind", MAY)
@pytest.mark.parametrize("act", Act)
def test_each_caller_may_what_it_is_for_and_nothing_else(kind: str, act: Act) -> None:
    caller, acts = MAY[kind]
    assert allowed(caller, good_wish(act)) == (act in acts)


@pytest.mark.parametrize("caller", [POD, USER, AGENT])
@pytest.mark.parametrize("act", sorted(ADMIN_ACTS, key=lambda act: act.value))
def test_what_kubernetes_grants_a_user_or_pod_may_do(caller: Caller, act: Act) -> None:
    assert allowed(caller, Wish(act, group_ids=("g",), granted=True))
    assert f"lacks the right to {act.value} timeslicegroups.timeslice.dev g" in reason(caller, Wish(act, "", ("g",)))


@pytest.mark.parametrize("caller", [JOB, NODE])
def test_a_grant_of_kubernetes_is_nothing_to_a_token_of_the_file(caller: Caller) -> None:
    assert not allowed(caller, Wish(Act.RELEASE, group_ids=("g",), granted=True))


@pytest.mark.parametrize("act", FOR_JOBS)
def test_a_refusal_says_for_what_the_token_is(act: Act) -> None:
    assert reason(JOB, Wish(act, "job-b")) == "token 'trainers' is for job job-a, not for job job-b"
    assert reason(POD, Wish(act, "job-b")) == (
        f"pod team-a/p has claims of job job-a, so it may not {act.value} for job job-b"
    )
    assert "has no claim of a job" in reason(AGENT, Wish(act, "job-b"))


def test_one_foreign_group_among_several_is_enough_to_be_refused() -> None:
    assert reason(JOB, Wish(Act.ACQUIRE, "job-a", ("g", "h"))) == "token 'trainers' is for group g, not for group h"
    assert reason(POD, Wish(Act.ACQUIRE, "job-a", ("g", "closed"))) == (
        "namespace team-a is not admitted by group closed"
    )


def test_a_job_of_another_namespace_keeps_its_name() -> None:
    assert reason(POD, Wish(Act.ACQUIRE, "job-a", ("taken",))) == (
        "the name job-a is taken in group taken by a job of namespace team-b"
    )


def test_a_node_speaks_for_no_other_node() -> None:
    assert reason(NODE, Wish(Act.SPEAK_FOR_NODE, node="n2")) == "token 'n1' is for node n1, not for node n2"
    assert reason(AGENT, Wish(Act.SPEAK_FOR_NODE, node="n2")) == "pod timeslice/n is on node n1, not on node n2"
    assert "which is not the service account of nodes" in reason(POD, Wish(Act.SPEAK_FOR_NODE, node="n1"))


def test_a_list_shows_a_caller_its_own_groups() -> None:
    assert [group for group in ("g", "h") if sees(JOB, group, World())] == ["g"]
    assert [group for group in ("g", "closed") if sees(POD, group, World())] == ["g"]
    assert sees(NODE, "h", World())
