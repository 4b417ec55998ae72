"""A job's process: takes turns, writes device memory while it holds, and finds every byte again at its next turn."""

from __future__ import annotations

import ctypes
import random
import signal
import sys
import threading
import time
import zlib
from types import FrameType

from timeslice import OrchestratorClient
from timeslice_api.errors import TimesliceError

from timeslice_chaos.log import Log

CHUNKS = 3
GRANTED, REFUSED = "granted", "refused"  # lines of standard output
EXIT_REFUSED, EXIT_BROKEN = 3, 4


class DriverError(Exception):
    """A CUDA call failed."""


class Memory:
    """Device memory of that many bytes, and what should be in it."""

    def __init__(self, size: int, log: Log) -> None:
        self._size, self._log = size, log
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._address = ctypes.c_uint64()
        self._expected = b""
        self._turns = 0

    def fill(self) -> None:
        """Writes new bytes, piece by piece."""
        if not self._address:
            self._make()
        self._turns += 1
        pattern = random.Random(f"{self._log.pid} {self._turns}").randbytes(self._size)
        piece = self._size // CHUNKS
        for start in range(0, self._size, piece):
            self.write(start, pattern[start : start + piece])
        self._expected = pattern
        self._log.say("wrote", turn=self._turns, sum=zlib.crc32(pattern))

    def check(self) -> None:
        """Reads everything back, and logs whether it is what was written."""
        if not self._expected:
            return
        seen = ctypes.create_string_buffer(self._size)
        self._call("cuMemcpyDtoH_v2", seen, self._address, ctypes.c_size_t(self._size))
        self._log.say("found", turn=self._turns, sum=zlib.crc32(seen.raw), same=seen.raw == self._expected)

    def write(self, start: int, piece: bytes) -> None:
        """One copy to the device."""
        self._log.say("write", start=start)
        where = ctypes.c_uint64(self._address.value + start)
        self._call("cuMemcpyHtoD_v2", where, piece, ctypes.c_size_t(len(piece)))
        self._log.say("written", start=start)

    def _make(self) -> None:
        self._call("cuInit", 0)
        self._call("cuCtxCreate_v2", ctypes.byref(ctypes.c_void_p()), 0, 0)
        self._call("cuMemAlloc_v2", ctypes.byref(self._address), ctypes.c_size_t(self._size))

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise DriverError(f"{name} failed with CUresult {code}")


class Turns:
    """The loop of a job: acquire, check, write, hold for so many seconds, yield, and work elsewhere for a while."""

    def __init__(self, log: Log, job_id: str, size: int, held_s: float) -> None:
        self._log, self._held_s = log, held_s
        self._client = OrchestratorClient(job_id=job_id)
        self._memory = Memory(size, log)
        self._ending = threading.Event()
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ending.set()

    def run(self) -> int:
        """Until SIGTERM, or until the GPU or the orchestrator wants no more of it."""
        turn = 0
        while not self._ending.is_set():
            turn += 1
            self._log.say("asks", turn=turn)
            try:
                with self._client.acquire() as lease:
                    self._log.say("granted", turn=turn, lease=lease.lease_id, token=lease.token)
                    print(GRANTED, flush=True)
                    self._memory.check()
                    self._memory.fill()
                    time.sleep(self._held_s)
                    self._log.say("yields", turn=turn, lease=lease.lease_id, token=lease.token)
            except TimesliceError as error:
                return self._give_up(turn, error)
            self._log.say("yielded", turn=turn)
            self._ending.wait(random.uniform(0.0, 0.1))
        self._client.close()
        self._log.say("ends")
        return 0

    def _give_up(self, turn: int, error: TimesliceError) -> int:
        self._log.say("refused", turn=turn, error=type(error).__name__, text=str(error))
        print(REFUSED, type(error).__name__, error, flush=True)
        return EXIT_REFUSED


def main(log: Log, arguments: list[str]) -> int:
    """`JOB_ID BYTES [SECONDS]`; so long it holds after its writes."""
    job_id, size, *held_s = arguments
    log.say("job", job=job_id)
    try:
        return Turns(log, job_id, int(size), float(held_s[0]) if held_s else 0.0).run()
    except DriverError as error:
        log.say("broken", text=str(error))
        print("broken", error, file=sys.stderr)
        return EXIT_BROKEN
