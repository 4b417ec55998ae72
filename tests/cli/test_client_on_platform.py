"""The client against the real orchestrator and node, where its own tests use a scripted one."""

from __future__ import annotations

import asyncio
import threading

import pytest
from embedded import Platform
from patience import eventually, in_thread
from timeslice import AcquireTimeout, AsyncOrchestratorClient, NotHolder, OrchestratorClient

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def client_of(platform: Platform, job_id: str) -> OrchestratorClient:
    address = f"unix://{platform.state_dir}/orchestrator.sock"
    return OrchestratorClient(address, job_id=job_id, group_id="trainer-group")


def test_two_processes_of_a_job_hold_at_once_while_another_job_waits(platform: Platform) -> None:
    with (
        client_of(platform, "job-a") as first,
        client_of(platform, "job-a") as second,
        client_of(platform, "b") as other,
    ):
        served = threading.Event()

        def wait() -> None:
            with other.on_accelerators():
                served.set()

        with first.on_accelerators():
            waiting = in_thread(wait)
            eventually(lambda: platform.group()["waiters"])
            with second.on_accelerators(timeout=5):
                assert platform.group()["holders"][0]["leases"] == 2
            assert not served.is_set()
        assert served.wait(10)
        waiting.join(5)


def test_a_timeout_leaves_no_waiter_behind(platform: Platform) -> None:
    with client_of(platform, "job-a") as holder, client_of(platform, "job-b") as other, holder.on_accelerators():
        with pytest.raises(AcquireTimeout):
            other.acquire(timeout=0.2)
        with pytest.raises(AcquireTimeout):
            other.acquire(timeout=0)
        assert platform.group()["waiters"] == []


def test_a_cancelled_acquire_leaves_no_waiter_behind(platform: Platform) -> None:
    async def wait() -> None:
        address = f"unix://{platform.state_dir}/orchestrator.sock"
        async with AsyncOrchestratorClient(address, job_id="job-b", group_id="trainer-group") as other:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other.acquire(), 0.3)

    with client_of(platform, "job-a") as holder, holder.on_accelerators():
        asyncio.run(wait())
        assert platform.group()["waiters"] == []


def test_tokens_rise_from_grant_to_grant(platform: Platform) -> None:
    with client_of(platform, "job-a") as client:
        tokens = []
        for _ in range(3):
            with client.on_accelerators() as lease:
                tokens.append(lease.token)
        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0


def test_a_lease_released_by_force_is_noticed_at_the_yield_and_harms_nobody(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(platform, "job-a") as client:
        with client.on_accelerators():
            assert platform.timeslice("release", "--force", "trainer-group").returncode == 0
        assert "before it was given back" in caplog.text
        with pytest.raises(NotHolder):
            client.yield_()
