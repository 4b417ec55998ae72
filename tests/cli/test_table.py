from __future__ import annotations

import json

from timeslice.cli import table
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import types_pb2


def busy_group() -> pb.Group:
    group = pb.Group(group_id="trainer-group", handoffs=14, duty_cycle=0.634, blocked_reason="node-2 is not connected")
    group.devices.add(device_id="GPU-1", node="node-1", connected=True)
    group.devices.add(device_id="GPU-2", node="node-2", connected=False)
    member = group.members.add(job_id="job-a")
    member.parts.add(node="node-1", state=types_pb2.PART_STATE_RUNNING, bytes=3 << 29, processes=2)
    group.members.add(job_id="job-b", quarantine_reason="cannot be put back").parts.add(
        node="node-1", state=types_pb2.PART_STATE_FAILED, bytes=5 << 20, processes=1
    )
    group.holders.add(job_id="job-a", leases=2, held_s=12.4, fencing_token=7)
    group.waiters.add(job_id="job-b", request_id="r", position=1, waited_s=8.2, holder="host:1")
    return group


def test_a_group_is_a_line_with_its_jobs_below() -> None:
    assert table.text([busy_group()]) == (
        "GROUP          HOLDER    HELD  WAITING      DEVICES  DUTY  HAND-OFFS\n"
        "trainer-group  job-a x2  12 s  job-b (8 s)  2        63%   14\n"
        "  not served: node-2 is not connected\n"
        "  not connected: node-2\n"
        "  job-b in quarantine: cannot be put back\n"
        "  job-a  node-1  running  1.5 GiB  2 processes\n"
        "  job-b  node-1  failed   5 MiB    1 process\n"
    )


def test_times_run_on_between_changes() -> None:
    line = table.text([busy_group()], age_s=3600).splitlines()[1]
    assert "1 h 00 min  job-b (1 h 00 min)" in line


def test_a_hand_off_under_way_and_a_drain_are_shown() -> None:
    text = table.text([pb.Group(group_id="g", switching_to_job_id="job-b", under_way="n1 was told", draining=True)])
    assert "-> job-b" in text
    assert "\n  hand-off to job-b: n1 was told\n" in text
    assert "draining" in text


def test_a_reason_that_only_repeats_the_holder_is_left_out() -> None:
    group = pb.Group(group_id="g", blocked_reason="held by job-a")
    group.devices.add(device_id="GPU-1", node="node-1", connected=True)
    group.holders.add(job_id="job-a", held_s=200)
    assert table.text([group]).splitlines()[1:] == ["g      job-a   3 min 20 s  -        1        0%    0"]


def test_a_long_queue_shows_its_first_three_and_how_many_more() -> None:
    group = pb.Group(group_id="g")
    for place in range(1, 6):
        group.waiters.add(job_id=f"job-{place}", position=place, waited_s=9)
    assert "job-1 (9 s), job-2 (9 s), job-3 (9 s), 2 more " in table.text([group]).splitlines()[1]


def test_a_group_whose_nodes_never_came_says_so() -> None:
    assert "no devices: no node" in table.text([pb.Group(group_id="g")])


def test_no_groups_say_where_they_come_from() -> None:
    assert table.text([]).startswith("no groups")


def test_json_has_every_key_even_when_nothing_is_there() -> None:
    full, empty = table.as_json(busy_group()), table.as_json(pb.Group(group_id="g"))
    assert full.keys() == empty.keys()
    assert json.loads(json.dumps(full))["members"][0]["parts"] == [
        {"node": "node-1", "state": "running", "bytes": 3 << 29, "processes": 2}
    ]
    assert full["waiters"][0] == {
        "job_id": "job-b",
        "request_id": "r",
        "position": 1,
        "waited_s": 8.2,
        "holder": "host:1",
    }
