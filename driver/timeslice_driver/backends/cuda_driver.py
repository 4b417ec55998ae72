"""The driver's own checkpoint functions, in helper processes: for drivers from 570 on."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from timeslice_driver.backends import cuda_errors
from timeslice_driver.backends.base import Capabilities
from timeslice_driver.backends.helper_pool import HelperLostError, HelperPool
from timeslice_driver.backends.helper_process import Greeting, HelperProcess
from timeslice_driver.faults import Fault
from timeslice_driver.job_files import JobFiles


class DriverCalls:
    """`Calls` by ctypes in helpers.

    Args:
        library: path or name of libcuda.so.1.
        job_files: where helpers get those of processes.
        start_s: how long a helper may take to initialise the driver (seconds).
    """

    def __init__(self, library: str, job_files: JobFiles, *, start_s: float) -> None:
        self._pool = HelperPool(library, job_files, start_s=start_s)
        self._library = library

    @property
    def pids(self) -> frozenset[int]:
        """See `Calls`."""
        return self._pool.pids

    async def open(self) -> Capabilities:
        """See `Calls`."""
        try:
            greeting = await self._pool.warm_up()
        except HelperLostError as error:
            hint = "install the NVIDIA driver (570 or newer), or name its library in `libcuda`"
            return Capabilities(
                "cuda", unavailable=Fault("DriverMissing", f"cannot use {self._library}: {error}", hint)
            )
        return Capabilities("cuda", unavailable=_unfit(greeting), detail=f"CUDA {_version(greeting.version)}")

    async def close(self) -> None:
        """See `Calls`."""
        await self._pool.close()

    def lend(self, job_file: str = "", *, of: int = 0) -> AbstractAsyncContextManager[HelperProcess]:
        """See `Calls`."""
        return self._pool.lend(job_file, of=of)


def _unfit(greeting: Greeting) -> Fault | None:
    if greeting.missing:
        return Fault(
            "DriverTooOld",
            f"the driver (CUDA {_version(greeting.version)}) has no {greeting.missing[0]}",
            "install driver 570 (CUDA 12.8) or newer, or the cuda-checkpoint command",
        )
    if greeting.code != cuda_errors.SUCCESS:
        meaning = cuda_errors.MEANINGS.get(greeting.code)
        name = f"{greeting.code} {meaning.name}" if meaning else str(greeting.code)
        return Fault("DriverUnusable", f"cuInit failed with {name}", meaning.hint if meaning else "")
    return None


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
