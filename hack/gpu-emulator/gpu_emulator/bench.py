"""Speed of parking and restoring, as a share of a plain memcpy of the same bytes into equally fresh memory."""

import argparse
import ctypes
import json
import mmap
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from gpu_emulator.emulator import Emulator
from gpu_emulator.quantities import parse_bytes

_TIME_LIMIT = 120.0


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUresult {code}")


def _target(size: int) -> None:
    """A process with that many bytes of touched device memory, until its input ends."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    _check(cuda.cuInit(0))
    _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    _check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    _check(cuda.cuMemsetD8_v2(pointer, 7, ctypes.c_size_t(size)))
    print("ready", flush=True)
    sys.stdin.read()


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _memcpy_seconds(size: int, rounds: int) -> list[float]:
    """Plain memcpy from touched memory into fresh huge pages, which is what a checkpoint allocates as well."""
    source = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    source.madvise(mmap.MADV_HUGEPAGE)
    source_address = ctypes.addressof((ctypes.c_char * size).from_buffer(source))
    ctypes.memset(source_address, 7, size)

    def once() -> float:
        fresh = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        fresh.madvise(mmap.MADV_HUGEPAGE)
        address = ctypes.addressof((ctypes.c_char * size).from_buffer(fresh))
        return _timed(lambda: ctypes.memmove(address, source_address, size))

    return [once() for _ in range(rounds)]


def _caller(pid: int, size: int, rounds: int) -> None:
    """Measures as a checkpointing agent would, and prints seconds as JSON."""
    cuda = ctypes.CDLL("libcuda.so.1")
    _check(cuda.cuInit(0))
    seconds: dict[str, list[float]] = {"lock": [], "checkpoint": [], "restore": [], "unlock": [], "get_state": []}
    state = ctypes.c_int()
    for _ in range(rounds):
        seconds["get_state"].append(_timed(lambda: _check(cuda.cuCheckpointProcessGetState(pid, ctypes.byref(state)))))
        for call in ("Lock", "Checkpoint", "Restore", "Unlock"):
            function = getattr(cuda, f"cuCheckpointProcess{call}")
            seconds[call.lower()].append(_timed(lambda function=function: _check(function(pid, None))))  # type: ignore[misc]
    seconds["memcpy"] = _memcpy_seconds(size, rounds)
    print(json.dumps({name: statistics.median(values) for name, values in seconds.items()}))


def measure(size: int, rounds: int = 9) -> dict[str, float]:
    """Median seconds of ``lock``, ``checkpoint``, ``restore``, ``unlock``, ``get_state`` and ``memcpy``.

    ``park_vs_memcpy`` and ``restore_vs_memcpy`` are their speeds as multiples of the memcpy's.
    """
    me = [sys.executable, "-m", "gpu_emulator.bench"]
    with Emulator(memory=size + (16 << 20)) as emulator:
        env = {**emulator.env, "PYTHONPATH": ":".join(filter(None, sys.path))}
        target = subprocess.Popen(
            [*me, "--target", str(size)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with target:
            try:
                if target.stdout is None or target.stdout.readline() != "ready\n":
                    raise RuntimeError("the target did not start")
                measured = subprocess.run(
                    [*me, "--caller", str(target.pid), str(size), str(rounds)],
                    env=env,
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=_TIME_LIMIT,
                )
            finally:
                target.kill()
    seconds: dict[str, float] = json.loads(measured.stdout)
    seconds["park_vs_memcpy"] = seconds["memcpy"] / seconds["checkpoint"]
    seconds["restore_vs_memcpy"] = seconds["memcpy"] / seconds["restore"]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default=256 << 20, help="device memory of the target; 256MiB")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--target", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--caller", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        _target(options.target)
    elif options.caller:
        _caller(*options.caller)
    else:
        for name, value in measure(options.size, options.rounds).items():
            print(f"{name:18} {value:9.2f} x" if "vs" in name else f"{name:18} {value * 1000:9.2f} ms")


if __name__ == "__main__":
    main()
