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
            group = platform.group()
            assert [holder["job_id"] for holder in group["holders"]] == ["job-b"]
            assert [waiter["job_id"] for waiter in group["waiters"]] == ["job-a"]
            assert first.waits(0.1)
            second.does("check", "yield")
            assert first.hears() == "done acquire"
            first.does("check", "yield")
            second.does("acquire", "check", "yield")
        finally:
            first.kill()
            second.kill()
