"""The prepared claims as parts and groups, without a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from timeslice_driver.backends.base import TargetState
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.parts import Held, Member, Part
from timeslice_driver.processes import ProcessId
from timeslice_driver.table import Table

A = Member("job-a", "trainers")
P = ProcessId(100, 5)


def claim(uid: str, *devices: str, pod: str = "pod-1", job: str = "job-a", group: str = "trainers") -> PreparedClaim:
    return PreparedClaim(uid, "rl", f"claim-{uid}", job, group, devices, {pod: "pod"})


class Ends:
    def __init__(self) -> None:
        self.told: list[Member] = []

    def __call__(self, member: Member) -> None:
        self.told.append(member)


def attached() -> tuple[ClaimParts, Table, Ends]:
    parts, table, ends = ClaimParts(), Table(), Ends()
    parts.attach(table, ends)
    return parts, table, ends


async def test_claims_come_before_the_table_or_after_it() -> None:
    parts, table, ends = ClaimParts(), Table(), Ends()
    await parts.add(claim("1", "GPU-1"))
    parts.attach(table, ends)
    await parts.add(claim("2", "GPU-0", pod="pod-2"))
    assert table.parts() == (Part(A, ("GPU-0", "GPU-1"), pods=frozenset({"pod-1", "pod-2"})),)
    assert parts.groups.devices == {"trainers": ("GPU-0", "GPU-1")}


async def test_the_same_claim_again_changes_nothing_and_tells_nobody() -> None:
    parts, _, _ = attached()
    told: list[int] = []
    unlisten = parts.listen(lambda: told.append(1))
    await parts.add(claim("1", "GPU-0"))
    await parts.add(claim("1", "GPU-0"))
    assert told == [1]
    unlisten()
    await parts.remove("1")
    assert told == [1]


async def test_an_unknown_claim_is_nothing_to_remove_or_to_refresh() -> None:
    parts, table, ends = attached()
    await parts.remove("1")
    await parts.refresh_pods("1", {"pod-2": "p"})
    assert (table.parts(), ends.told) == ((), [])


async def test_other_pods_of_a_claim_are_taken_over() -> None:
    parts, table, _ = attached()
    await parts.add(claim("1", "GPU-0"))
    await parts.refresh_pods("1", {"pod-1": "pod", "pod-2": "pod"})
    assert table.parts()[0].pods == {"pod-1", "pod-2"}


async def test_a_claim_that_changes_its_job_leaves_the_old_part() -> None:
    parts, table, ends = attached()
    await parts.add(claim("1", "GPU-0"))
    await parts.add(claim("1", "GPU-0", job="job-b"))
    assert [part.member.job_id for part in table.parts()] == ["job-b"]
    assert ends.told == [A]


async def test_a_device_is_in_the_group_of_its_first_claim() -> None:
    parts, _, _ = attached()
    await parts.add(claim("1", "GPU-0"))
    await parts.add(claim("2", "GPU-0", job="job-b"))
    await parts.add(claim("3", "GPU-0", "GPU-1", job="job-c", group="samplers"))
    assert parts.groups.devices == {"samplers": ("GPU-1",), "trainers": ("GPU-0",)}
    await parts.remove("1")
    assert parts.groups.devices["trainers"] == ("GPU-0",)
    await parts.remove("2")
    assert parts.groups.devices == {"samplers": ("GPU-0", "GPU-1")}


async def test_a_device_stays_with_a_part_for_as_long_as_a_process_has_state_on_it() -> None:
    parts, table, _ = attached()
    await parts.add(claim("1", "GPU-0"))
    await parts.add(claim("2", "GPU-1"))
    held = Held(P, TargetState.CHECKPOINTED, {"GPU-1": 7})
    table.put(replace(table.parts()[0], family=frozenset({P}), held={P: held}))
    await parts.remove("2")
    assert table.parts()[0].device_ids == ("GPU-0", "GPU-1")
    table.put(replace(table.parts()[0], family=frozenset(), held={}))
    assert table.parts()[0].device_ids == ("GPU-0",)


async def test_the_whole_set_at_once_removes_and_adds() -> None:
    parts, table, ends = attached()
    await parts.add(claim("1", "GPU-0"))
    await parts.replace([claim("2", "GPU-1", job="job-b")])
    assert [part.member.job_id for part in table.parts()] == ["job-b"]
    assert ends.told == [A]


class TestEnded:
    """Members whose processes have ended while their claims are prepared."""

    async def ended(self) -> tuple[ClaimParts, Table]:
        parts, table, _ = attached()
        await parts.add(claim("1", "GPU-0"))
        table.drop(A)
        parts.ended(A)
        return parts, table

    async def test_they_have_no_part_until_they_are_woken(self) -> None:
        parts, table = await self.ended()
        assert (table.parts(), [part.member for part in parts.dormant]) == ((), [A])
        assert parts.dormant[0].pods == {"pod-1"}
        parts.wake(A)
        assert [part.member for part in table.parts()] == [A]
        assert parts.dormant == ()

    async def test_a_repeated_prepare_does_not_wake_them_and_another_claim_does(self) -> None:
        parts, table = await self.ended()
        await parts.add(claim("1", "GPU-0"))
        assert table.parts() == ()
        await parts.add(claim("2", "GPU-1", pod="pod-2"))
        assert table.parts()[0].device_ids == ("GPU-0", "GPU-1")

    async def test_they_are_forgotten_with_their_last_claim(self) -> None:
        parts, table = await self.ended()
        await parts.remove("1")
        parts.wake(A)
        assert (table.parts(), parts.dormant) == ((), ())

    async def test_a_part_without_a_claim_is_none_to_wait_for(self) -> None:
        parts, _, _ = attached()
        parts.ended(A)
        assert parts.dormant == ()


@pytest.mark.parametrize("attached_again", [True, False])
async def test_a_table_that_is_no_longer_in_use_is_left_alone(attached_again: bool) -> None:
    parts, old, ends = attached()
    await parts.add(claim("1", "GPU-0"))
    parts.detach()
    table = Table()
    if attached_again:
        parts.attach(table, ends)
    await parts.remove("1")
    assert [part.member for part in old.parts()] == [A]
    assert ends.told == ([A] if attached_again else [])
