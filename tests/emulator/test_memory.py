"""Device memory: capacity, addresses, copies, and what becomes of it when processes end or fork."""

import signal
from collections.abc import Callable

import pytest
from gpu_emulator import Emulator
from gpu_emulator.puppet import Puppet, start_agent, start_job

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20
PAGE = 2 * MIB


def used(emulator: Emulator, device: int = 0) -> int:
    return int(emulator.snapshot()["devices"][device]["used"])


def test_a_device_that_is_full_says_out_of_memory_and_goes_on_serving(emulator: Emulator) -> None:
    with start_job(emulator, 100 * MIB) as first, start_job(emulator) as second:
        assert second.call("allocate", size=200 * MIB) == (2, 0)
        assert second.call("allocate", size=100 * MIB)[0] == 0
        assert first.call("allocate", size=60 * MIB) == (2, 0)
        assert used(emulator) == 200 * MIB + 2 * PAGE


def test_freed_memory_can_be_allocated_again_in_pieces_that_are_not_adjacent(emulator: Emulator) -> None:
    with start_job(emulator) as job:
        pointers = [job.must("allocate", size=30 * MIB) for _ in range(8)]
        for pointer in pointers[::2]:
            job.must("free", pointer=pointer)
        large = job.must("allocate", size=100 * MIB)
        job.must("fill", pointer=large, size=100 * MIB, seed=5)
        assert job.must("matches", pointer=large, size=100 * MIB, seed=5)


def test_small_allocations_share_device_pages_and_keep_apart(emulator: Emulator) -> None:
    with start_job(emulator) as job:
        before = used(emulator)
        pointers = [job.must("allocate", size=1000) for _ in range(100)]
        assert used(emulator) == before + PAGE
        for seed, pointer in enumerate(pointers):
            job.must("fill", pointer=pointer, size=1000, seed=seed)
        assert all(job.must("matches", pointer=pointer, size=1000, seed=seed) for seed, pointer in enumerate(pointers))
        for pointer in pointers:
            job.must("free", pointer=pointer)
        assert used(emulator) == before


def test_a_context_costs_device_memory_until_it_is_destroyed(emulator: Emulator) -> None:
    with start_agent(emulator) as job:
        assert used(emulator) == 0
        first, second = job.must("create_context", device=0), job.must("create_context", device=0)
        assert used(emulator) == PAGE
        job.must("destroy_context", context=second)
        job.must("destroy_context", context=first)
        assert used(emulator) == 0
        assert job.call("destroy_context", context=first)[0] == 201


def test_the_overhead_of_a_context_can_be_switched_off(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(context_overhead=0)
    with start_job(emulator):
        assert used(emulator) == 0


def test_destroying_a_context_frees_what_was_allocated_in_it(emulator: Emulator) -> None:
    with start_agent(emulator) as job:
        context = job.must("create_context", device=0)
        pointer = job.must("allocate", size=10 * MIB)
        job.must("destroy_context", context=context)
        assert used(emulator) == 0
        job.must("create_context", device=0)
        assert job.call("free", pointer=pointer)[0] == 1


def test_a_primary_context_lives_until_it_is_released_as_often_as_retained(emulator: Emulator) -> None:
    with start_agent(emulator) as job:
        context = job.must("retain_primary", device=0)
        assert job.must("retain_primary", device=0) == context
        job.must("set_current", context=context)
        job.must("allocate", size=4 * MIB)
        job.must("release_primary", device=0)
        assert used(emulator) == 4 * MIB + PAGE
        job.must("release_primary", device=0)
        assert used(emulator) == 0
        assert job.call("release_primary", device=0)[0] == 201


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("allocate", {"size": 10}), ("synchronize", {}), ("memory_info", {}), ("free", {"pointer": 1 << 21})],
)
def test_calls_that_need_a_context_say_so(
    emulator: Emulator, agent: Puppet, call: str, arguments: dict[str, int]
) -> None:
    assert agent.call(call, **arguments)[0] == 201


def test_calls_before_cu_init_are_refused(emulator: Emulator) -> None:
    with Puppet(emulator) as job:
        assert job.call("device_count")[0] == 3
        assert job.call("get_state", pid=job.pid)[0] == 3


def test_copies_beyond_an_allocation_are_refused(job: Puppet) -> None:
    pointer = job.must("allocate", size=4 * MIB)
    assert job.call("fill", pointer=pointer, size=4 * MIB + 1, seed=0)[0] == 1
    assert job.call("fill", pointer=pointer + 4 * MIB - 10, size=11, seed=0)[0] == 1
    assert job.call("fill", pointer=pointer + 4 * MIB - 10, size=10, seed=0)[0] == 0
    assert job.call("free", pointer=pointer + 512)[0] == 1


def test_bytes_are_copied_and_set_on_the_device(job: Puppet) -> None:
    one, two = job.must("allocate", size=5 * MIB), job.must("allocate", size=5 * MIB)
    job.must("fill", pointer=one, size=5 * MIB, seed=3)
    job.must("copy", target=two, source=one, size=5 * MIB)
    assert job.must("matches", pointer=two, size=5 * MIB, seed=3)
    job.must("set_words", pointer=one, value=7, count=1024)
    job.must("set_words", pointer=two, value=7, count=1024)
    assert job.must("digest", pointer=one, size=4096) == job.must("digest", pointer=two, size=4096)
    assert job.must("digest", pointer=one, size=5 * MIB) == job.must("digest", pointer=two, size=5 * MIB)


def test_dereferencing_a_device_pointer_on_the_host_faults(job: Puppet) -> None:
    pointer = job.must("allocate", size=4 * MIB)
    with pytest.raises((EOFError, BrokenPipeError)):
        job.call("dereference", pointer=pointer)
    assert job.process.wait(10) == -signal.SIGSEGV


def test_a_killed_process_releases_everything(emulator: Emulator, agent: Puppet) -> None:
    job = start_job(emulator, 50 * MIB)
    with job:
        assert used(emulator) > 50 * MIB
        agent.must("lock", pid=job.pid)
        agent.must("checkpoint", pid=job.pid)
    processes = emulator.snapshot()["processes"]
    assert [process["pid"] for process in processes] == [agent.pid]
    assert used(emulator) == 0
    assert agent.call("get_state", pid=job.pid)[0] == 1


def test_a_forked_child_may_not_use_the_gpu_and_does_not_disturb_its_parent(emulator: Emulator, job: Puppet) -> None:
    pointer = job.must("allocate", size=4 * MIB)
    job.must("fill", pointer=pointer, size=4 * MIB, seed=1)
    assert job.call("in_forked_child", call="init", arguments={})[0] == 3
    assert job.call("in_forked_child", call="device_count", arguments={})[0] == 3
    assert job.call("in_forked_child", call="get_state", arguments={"pid": job.pid})[0] == 3
    assert job.must("matches", pointer=pointer, size=4 * MIB, seed=1)
    assert job.must("memory_info")[1] == 256 * MIB


def test_a_process_that_forked_before_cu_init_may_use_the_gpu_in_its_child(emulator: Emulator) -> None:
    with Puppet(emulator) as job:
        assert job.call("in_forked_child", call="init", arguments={})[0] == 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("1", [1]), ("2,0", [2, 0]), ("0,7,1", [0]), ("", None), ("-1", None)],
)
def test_cuda_visible_devices_chooses_and_orders_devices(
    start_emulator: Callable[..., Emulator], visible: str, expected: list[int] | None
) -> None:
    emulator = start_emulator(gpus=3, memory=16 * MIB)
    uuids = [device["uuid"] for device in emulator.snapshot()["devices"]]
    with Puppet(emulator, env={"CUDA_VISIBLE_DEVICES": visible}) as job:
        code, _ = job.call("init")
        assert code == (0 if expected else 100)
        for ordinal, physical in enumerate(expected or []):
            assert job.must("device_uuid", device=ordinal) == uuids[physical].removeprefix("GPU-").replace("-", "")


def test_cuda_visible_devices_accepts_the_beginning_of_a_uuid(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(gpus=2, memory=16 * MIB)
    uuid = emulator.snapshot()["devices"][1]["uuid"]
    with Puppet(emulator, env={"CUDA_VISIBLE_DEVICES": uuid[:12]}) as job:
        job.must("init")
        assert job.must("device_count") == 1
        assert job.must("device_uuid", device=0) == uuid.removeprefix("GPU-").replace("-", "")
        job.must("create_context", device=0)
        assert used(emulator, 0) == 0
        assert used(emulator, 1) == PAGE
