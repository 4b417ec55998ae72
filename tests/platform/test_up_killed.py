"""kill -9 of `timeslice up`, which is orchestrator and node at once."""

from __future__ import annotations

import signal

import pytest
from cluster import GROUP, Job
from embedded import JOB_BYTES, Platform, started
from patience import eventually

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def job_of(platform: Platform, job_id: str) -> Job:
    own = {
        "TIMESLICE_ORCHESTRATOR": f"unix://{platform.state_dir}/orchestrator.sock",
        "TIMESLICE_NODE_SOCKET": f"{platform.state_dir}/node.sock",
        "TIMESLICE_GROUP_ID": GROUP,
    }
    return Job(job_id, {**platform.env, **own}, JOB_BYTES)


def test_holder_waiter_and_parked_bytes_outlive_a_kill_of_the_platform() -> None:
    with started("--group", GROUP) as platform:
        first, second = job_of(platform, "job-a"), job_of(platform, "job-b")
        try:
            first.does("acquire", "fill")
            second.tell("acquire")
            eventually(lambda: platform.group()["waiters"])
            first.does("yield")
            assert second.hears() == "done acquire"
            second.does("fill")
            first.tell("acquire")
            eventually(lambda: platform.group()["waiters"])
            platform.up.stop(signal.SIGKILL)
            second.does("check")
            platform.start()
            assert [holder["job_id"] for holder in platform.group()["holders"]] == ["job-b"]
            # A place that was taken in the very moment of the kill may not be on disk; its client asks again.
            eventually(lambda: [waiter["job_id"] for waiter in platform.group()["waiters"]] == ["job-a"])
            assert first.waits(0.1)
            second.does("check", "yield")
            assert first.hears() == "done acquire"
            first.does("check", "yield")
            second.does("acquire", "check", "yield")
        finally:
            first.kill()
            second.kill()
