"""Scripted faults: which call they hit and what they do."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_emulator import Emulator, Fault
from gpu_emulator.faults import FaultScript
from gpu_emulator.puppet import Puppet, start_agent, start_job

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20


def test_a_fault_hits_the_nth_call_that_matches_and_no_other() -> None:
    script = FaultScript([Fault("lock", nth=2, rc=600), Fault("lock", pid=7, nth=1, rc=999)])
    hits = [script.match(("lock",), pid, "-") for pid in (5, 7, 7)]
    assert [hit.rc if hit else None for hit in hits] == [None, 600, None]
    assert script.match(("unlock",), 7, "-") is None


def test_a_fault_without_nth_hits_every_call_of_the_process_with_that_name() -> None:
    script = FaultScript([Fault("alloc", pid="rank1", rc=2)])
    assert [script.match(("alloc",), 5, name) is not None for name in ("rank1", "rank0", "rank1")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[{"call": "lock", "colour": 1}]', "colour"),
        ('[{"pid": 1}]', "with a call"),
        ("[1]", "with a call"),
        ("{", "faults.json"),
    ],
)
def test_a_bad_fault_script_is_named_with_its_mistake(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "faults.json").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        FaultScript.load(tmp_path / "faults.json")


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock", "get_state"])
def test_a_call_fails_with_the_scripted_code_and_does_nothing(
    start_emulator: Callable[..., Emulator], call: str
) -> None:
    emulator = start_emulator(faults=[{"call": call, "nth": 1, "rc": 999}])
    with start_job(emulator, MIB) as job, start_agent(emulator) as agent:
        for step in ("get_state", "lock", "checkpoint", "restore", "unlock"):
            if step == call:
                assert agent.call(step, pid=job.pid)[0] == 999
            agent.must(step, pid=job.pid)


def test_an_allocation_of_a_named_process_fails(emulator: Emulator) -> None:
    emulator.inject(Fault("alloc", pid="rank1", nth=1, rc=2))
    with start_job(emulator, name="rank0") as first, start_job(emulator, name="rank1") as second:
        assert first.call("allocate", size=4 * MIB)[0] == 0
        assert second.call("allocate", size=4 * MIB)[0] == 2
        assert second.call("allocate", size=4 * MIB)[0] == 0


def test_a_delay_holds_up_the_call_and_clearing_the_script_ends_it(
    emulator: Emulator, job: Puppet, agent: Puppet
) -> None:
    emulator.inject(Fault("get_state", delay_ms=1500))
    began = time.monotonic()
    assert agent.must("get_state", pid=job.pid) == 0
    assert time.monotonic() - began >= 1.5
    emulator.clear_faults()
    began = time.monotonic()
    assert agent.must("get_state", pid=job.pid) == 0
    assert time.monotonic() - began < 1.5


def test_a_hung_call_ends_with_its_caller_and_touches_nobody_else(
    emulator: Emulator, job: Puppet, agent: Puppet
) -> None:
    emulator.inject(Fault("lock", nth=1, hang=True))
    with start_agent(emulator) as victim:
        assert victim.is_blocked(victim.begin("lock", pid=job.pid))
        assert job.call("device_count") == (0, 1)
    agent.must("lock", pid=job.pid)


def test_an_answer_that_is_lost_leaves_the_work_done(emulator: Emulator, job: Puppet, agent: Puppet) -> None:
    agent.must("lock", pid=job.pid)
    emulator.inject(Fault("checkpoint", nth=1, hang=True, after=True))
    with start_agent(emulator) as victim:
        assert victim.is_blocked(victim.begin("checkpoint", pid=job.pid))
    assert agent.must("get_state", pid=job.pid) == 2


def test_a_poisoned_process_cannot_be_restored(emulator: Emulator, job: Puppet, agent: Puppet) -> None:
    agent.must("lock", pid=job.pid)
    agent.must("checkpoint", pid=job.pid)
    emulator.inject(Fault("restore", nth=1, poison=True))
    assert [agent.call("restore", pid=job.pid)[0] for _ in range(2)] == [2, 304]


def test_the_target_is_killed_in_the_middle_of_a_call(emulator: Emulator, job: Puppet, agent: Puppet) -> None:
    agent.must("lock", pid=job.pid)
    emulator.inject(Fault("checkpoint", nth=1, kill_target=True))
    assert agent.call("checkpoint", pid=job.pid)[0] == 999
    assert job.process.wait(10) == -signal.SIGKILL
    assert agent.call("get_state", pid=job.pid)[0] == 1


def test_the_caller_crashes_inside_the_library(emulator: Emulator, job: Puppet) -> None:
    emulator.inject(Fault("lock", nth=1, crash_caller=True))
    with start_agent(emulator) as victim:
        with pytest.raises((EOFError, BrokenPipeError)):
            victim.call("lock", pid=job.pid)
        assert victim.process.wait(10) == -signal.SIGSEGV
    assert job.call("device_count") == (0, 1)


def test_cu_init_fails_hangs_or_crashes_as_scripted(emulator: Emulator) -> None:
    emulator.inject(Fault("init", pid="refused", rc=999))
    emulator.inject(Fault("init", pid="stuck", hang=True))
    emulator.inject(Fault("init", pid="crashing", crash_caller=True, rc=999))
    with Puppet(emulator, name="refused") as job:
        assert job.call("init")[0] == 999
    with Puppet(emulator, name="stuck") as job:
        assert job.is_blocked(job.begin("init"))
    with Puppet(emulator, name="crashing") as job:
        job.begin("init")
        assert job.process.wait(10) == -signal.SIGSEGV
    with Puppet(emulator) as job:
        job.must("init")


def test_one_copy_is_slow_and_the_next_is_not(emulator: Emulator, agent: Puppet) -> None:
    emulator.inject(Fault("checkpoint", nth=1, bandwidth=50 * MIB))
    with start_job(emulator, 40 * MIB) as job:
        seconds = []
        for _ in range(2):
            agent.must("lock", pid=job.pid)
            began = time.monotonic()
            agent.must("checkpoint", pid=job.pid)
            seconds.append(time.monotonic() - began)
            agent.must("restore", pid=job.pid)
            agent.must("unlock", pid=job.pid)
    assert seconds[0] >= 0.8 > seconds[1]


def test_an_unknown_field_is_refused_over_the_control_connection(emulator: Emulator) -> None:
    with pytest.raises(ValueError, match="colour"):
        emulator.request(do="inject", fault={"call": "lock", "colour": 1})
    with pytest.raises(ValueError, match="unknown request"):
        emulator.request(do="dance")
    with pytest.raises(ValueError, match="unknown flag"), start_job(emulator) as job:
        emulator.set_flags(job.pid, "purple")


def test_a_trace_tells_what_moved_and_which_faults_struck(
    start_emulator: Callable[..., Emulator], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    emulator = start_emulator(trace=trace)
    emulator.inject(Fault("lock", nth=2, rc=600))
    with start_agent(emulator) as agent:
        with start_job(emulator, MIB) as job:
            agent.must("lock", pid=job.pid)
            agent.must("unlock", pid=job.pid)
            assert agent.call("lock", pid=job.pid)[0] == 600
        until = time.monotonic() + 10
        while "gone" not in trace.read_text() and time.monotonic() < until:
            time.sleep(0.01)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    told = [(line["what"], line.get("call"), line.get("state")) for line in lines if line["pid"] == job.pid]
    assert told == [
        ("context", None, None),
        ("begin", "lock", None),
        ("end", "lock", "locked"),
        ("begin", "unlock", None),
        ("end", "unlock", "running"),
        ("fault", "lock", None),
        ("gone", None, None),
    ]
    assert [line["fault"] for line in lines if "fault" in line] == [{"call": "lock", "nth": 2, "rc": 600}]
